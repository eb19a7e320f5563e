// A channel: a stream of frames for one protocol, agreed on by multistream-select 1.0, whose lines are frames too.

import { concat, utf8 } from "./bytes.js"
import { ClosedError, DecodeError, GossipLogError, ProtocolError } from "./errors.js"
import { frame } from "./protobuf.js"
import { decodeVarint } from "./varint.js"

/** @typedef {import("./muxer.js").MuxedStream} MuxedStream */
/** Where streams are opened. @typedef {{ open(): MuxedStream }} Place */

const MULTISTREAM = "/multistream/1.0.0\n"
const LINE_BYTES_MAX = 1024
const FRAME_BYTES_MAX = 4 * 1024 * 1024
const PREFIX_BYTES_MAX = 8
const PROPOSALS_MAX = 32

/** The other side does not speak the protocol. */
export class NotSpoken extends GossipLogError {}

export class Channel {
	/** The protocol that the other side has not agreed to yet. @type {string | null} */
	#proposed = null

	/** @param {MuxedStream} stream @param {number} most Bytes of a frame. */
	constructor(stream, most = FRAME_BYTES_MAX) {
		this.stream = stream
		this.most = most
	}

	/** Propose a protocol, and write its first frame after it without waiting. @param {Place} place @param {string} protocol @param {{ first?: Uint8Array, most?: number }} [options] */
	static open(place, protocol, { first = new Uint8Array(0), most } = {}) {
		const channel = new Channel(place.open(), most)
		channel.#proposed = protocol + "\n"
		channel.stream.write(concat([line(MULTISTREAM), line(channel.#proposed), first])).catch(() => {})
		return channel
	}

	/** Agree to the first proposed protocol that is in a map, on a stream that the other side opened; null if none is. @template T @param {MuxedStream} stream @param {Map<string, T>} spoken By protocol. @returns {Promise<[Channel, T] | null>} */
	static async accept(stream, spoken) {
		const channel = new Channel(stream)
		if ((await channel.#line()) !== MULTISTREAM) throw new ProtocolError("no multistream-select")
		await stream.write(line(MULTISTREAM))
		for (let proposals = 0; proposals < PROPOSALS_MAX; proposals++) {
			const proposed = await channel.#line()
			if (proposed === null) return null
			const found = spoken.get(proposed.trimEnd())
			await stream.write(line(found === undefined ? "na\n" : proposed))
			if (found !== undefined) return [channel, found]
		}
		return null
	}

	/** @param {Uint8Array} bytes A frame. */
	async send(bytes) {
		await this.stream.write(bytes)
	}

	/** The next frame, without its length; null at the end. @param {number} [patience] In seconds. */
	async next(patience) {
		return this.#within(patience, async () => {
			await this.#agree()
			return this.#frame(this.most)
		})
	}

	/** The next frame if it has arrived; else null. */
	take() {
		const found = this.#proposed === null ? this.#cut(this.most) : null
		return typeof found === "number" ? null : found
	}

	/** Wait for the other side's answer to what was proposed. @param {number} [patience] In seconds. */
	agree(patience) {
		return this.#within(patience, () => this.#agree())
	}

	/** @template T @param {number} patience @param {() => Promise<T>} wait */
	async #within(patience = Infinity, wait) {
		const timer = patience < Infinity ? setTimeout(() => this.stream.reset(`nothing came within ${patience} s`), 1000 * patience) : undefined
		try {
			return await wait()
		} finally {
			clearTimeout(timer)
		}
	}

	async #agree() {
		if (this.#proposed === null) return
		if ((await this.#line()) !== MULTISTREAM) throw new ProtocolError("no multistream-select")
		const answer = await this.#line()
		if (answer === "na\n" || answer === null) throw new NotSpoken(`the hub does not speak ${this.#proposed.trim()}`)
		if (answer !== this.#proposed) throw new ProtocolError("an answer to another proposal")
		this.#proposed = null
	}

	async #line() {
		const bytes = await this.#frame(LINE_BYTES_MAX)
		return bytes === null ? null : String.fromCharCode(...bytes)
	}

	/** @param {number} most */
	async #frame(most) {
		for (;;) {
			const found = this.#cut(most)
			if (typeof found !== "number") return found
			if (await this.stream.has(found)) continue
			if (this.stream.unread.size) throw new ClosedError("the stream ended within a frame")
			return null
		}
	}

	/** The next frame; if it has not arrived, how many unread bytes it takes. @param {number} most */
	#cut(most) {
		const { bytes } = this.stream.unread
		const last = bytes.subarray(0, PREFIX_BYTES_MAX).findIndex((byte) => byte < 0x80)
		if (last < 0 && bytes.length >= PREFIX_BYTES_MAX) throw new DecodeError("a frame without a length")
		if (last < 0) return bytes.length + 1
		const [size, start] = decodeVarint(bytes)
		if (size > most) throw new DecodeError(`a frame of ${size} bytes, at most ${most} are taken`)
		return bytes.length < start + size ? start + size : this.stream.take(start + size).subarray(start)
	}
}

/** @param {string} text */
const line = (text) => frame([utf8(text)])
