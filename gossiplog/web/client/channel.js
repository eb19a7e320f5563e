// A channel: a stream of frames for one protocol, agreed upon by multistream-select 1.0. Its lines are frames as well.

import { concat, utf8 } from "./bytes.js"
import { ClosedError, DecodeError, GossipLogError, ProtocolError } from "./errors.js"
import { frame } from "./protobuf.js"
import { decodeVarint } from "./varint.js"

/** @typedef {import("./muxer.js").MuxedStream} MuxedStream */
/** @typedef {import("./muxer.js").Muxer} Muxer */

const MULTISTREAM = "/multistream/1.0.0\n"
const LINE_BYTES_MAX = 1024
const FRAME_BYTES_MAX = 4 * 1024 * 1024
const PROPOSALS_MAX = 32

/** The other side does not speak the protocol. */
export class NotSpoken extends GossipLogError {}

export class Channel {
	/** @param {MuxedStream} stream */
	constructor(stream) {
		this.stream = stream
		/** What arrived and was not taken. @type {Uint8Array} */
		this.buffer = new Uint8Array(0)
		/** What has to be agreed upon before the first frame. @type {string | null} */
		this.proposed = null
	}

	/** Propose a protocol, and write its first frame after it without waiting. @param {Muxer} muxer @param {string} protocol @param {Uint8Array} first */
	static open(muxer, protocol, first = new Uint8Array(0)) {
		const channel = new Channel(muxer.open())
		channel.proposed = protocol + "\n"
		channel.stream.write(concat([line(MULTISTREAM), line(channel.proposed), first])).catch(() => {})
		return channel
	}

	/** Answer what is proposed on a stream that the other side opened: null, unless it is this one protocol. @param {MuxedStream} stream @param {string} protocol */
	static async accept(stream, protocol) {
		const channel = new Channel(stream)
		if ((await channel.#line()) !== MULTISTREAM) throw new ProtocolError("no multistream-select")
		await stream.write(line(MULTISTREAM))
		for (let proposals = 0; proposals < PROPOSALS_MAX; proposals++) {
			const proposed = await channel.#line()
			if (proposed === null) return null
			await stream.write(line(proposed === protocol + "\n" ? proposed : "na\n"))
			if (proposed === protocol + "\n") return channel
		}
		return null
	}

	/** @param {Uint8Array} bytes A frame. */
	async send(bytes) {
		await this.stream.write(bytes)
	}

	/** The next frame, without its length; null at the end. @param {number} [patience] In seconds. */
	async next(patience = Infinity) {
		let timer
		if (patience < Infinity) timer = setTimeout(() => this.stream.fail(`nothing came within ${patience} s`), 1000 * patience)
		try {
			await this.agree()
			return await this.#frame(FRAME_BYTES_MAX)
		} finally {
			clearTimeout(timer)
		}
	}

	/** A frame that is here already; null if there is none. */
	take() {
		return this.proposed === null ? this.#cut(FRAME_BYTES_MAX) : null
	}

	/** Wait for the other side's answer to what was proposed. */
	async agree() {
		if (this.proposed === null) return
		if ((await this.#line()) !== MULTISTREAM) throw new ProtocolError("no multistream-select")
		const answer = await this.#line()
		if (answer === "na\n" || answer === null) throw new NotSpoken(`the hub does not speak ${this.proposed.trim()}`)
		if (answer !== this.proposed) throw new ProtocolError("an answer to another proposal")
		this.proposed = null
	}

	async #line() {
		const bytes = await this.#frame(LINE_BYTES_MAX)
		return bytes === null ? null : String.fromCharCode(...bytes)
	}

	/** @param {number} most */
	async #frame(most) {
		for (;;) {
			const bytes = this.#cut(most)
			if (bytes !== null) return bytes
			const more = await this.stream.read()
			if (more === null) {
				if (this.buffer.length) throw new ClosedError("the stream ended within a frame")
				return null
			}
			this.buffer = this.buffer.length ? concat([this.buffer, more]) : more
		}
	}

	/** @param {number} most */
	#cut(most) {
		const prefix = this.buffer.subarray(0, 9).findIndex((byte) => byte < 0x80)
		if (prefix < 0) {
			if (this.buffer.length >= 9) throw new DecodeError("a frame without a length")
			return null
		}
		const [size, start] = decodeVarint(this.buffer)
		if (size > most) throw new DecodeError(`a frame of ${size} bytes, at most ${most} are taken`)
		if (this.buffer.length - start < size) return null
		const bytes = this.buffer.subarray(start, start + size)
		this.buffer = this.buffer.subarray(start + size)
		return bytes
	}
}

/** @param {string} text */
const line = (text) => frame([utf8(text)])
