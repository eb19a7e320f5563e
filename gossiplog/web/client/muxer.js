// yamux over a WebSocket, the client's side: many streams of bytes in one. Everything that the other side can fill has an end: a stream's
// buffer at its window, the streams that it opens at 16.
// Source: docs/spec/sync.md, "Mode A"; the yamux specification.

import { concat } from "./bytes.js"
import { ClosedError, ProtocolError } from "./errors.js"

const HEADER_BYTES = 12
const BODY_BYTES_MAX = 65_536 - HEADER_BYTES
/** What each side may send at first, by the specification. */
const WINDOW_BYTES = 256 * 1024
/** Of a stream that we open: the answers are what we want. */
const OPENED_WINDOW_BYTES = 1024 * 1024
const INBOUND_MAX = 16
const DATA = 0
const WINDOW = 1
const PING = 2
const GO_AWAY = 3
const SYN = 1
const ACK = 2
const FIN = 4
const RST = 8

/** One stream, read by one reader and written by one writer at a time. */
export class MuxedStream {
	/** @param {Muxer} muxer @param {number} id @param {boolean} isInbound */
	constructor(muxer, id, isInbound) {
		this.muxer = muxer
		this.id = id
		this.isInbound = isInbound
		/** What arrived and was not read. @type {Uint8Array[]} */
		this.chunks = []
		this.window = isInbound ? WINDOW_BYTES : OPENED_WINDOW_BYTES
		/** Bytes that the other side may still send, and that were read since we said so. */
		this.credit = this.window
		this.readBytes = 0
		this.sendWindow = WINDOW_BYTES
		this.isAnnounced = false
		this.isFinishedSending = false
		this.isFinishedReceiving = false
		/** Why it ended early. @type {string | null} */
		this.failure = null
		/** @type {(() => void)[]} */
		this.waiting = []
	}

	/** Write all of it; waits while the other side's window is full. @param {Uint8Array} bytes */
	async write(bytes) {
		for (let at = 0; at < bytes.length; ) {
			if (this.failure !== null || this.isFinishedSending) throw new ClosedError(this.failure ?? "our side of the stream is closed")
			const size = Math.min(bytes.length - at, this.sendWindow, BODY_BYTES_MAX)
			if (size === 0) {
				await this.changed()
				continue
			}
			this.sendWindow -= size
			this.muxer.send(DATA, this.#announcement(), this.id, size, bytes.subarray(at, at + size))
			at += size
		}
	}

	/** The next bytes that arrived; null at the end. @returns {Promise<Uint8Array | null>} */
	async read() {
		while (this.chunks.length === 0) {
			if (this.failure !== null) throw new ClosedError(this.failure)
			if (this.isFinishedReceiving) return null
			await this.changed()
		}
		const bytes = concat(this.chunks.splice(0))
		this.readBytes += bytes.length
		if (2 * this.readBytes >= this.window && !this.isFinishedReceiving && this.failure === null) {
			this.muxer.send(WINDOW, this.#announcement(), this.id, this.readBytes)
			this.credit += this.readBytes
			this.readBytes = 0
		}
		return bytes
	}

	/** Open it, with the window that we have for it. */
	announce() {
		this.isAnnounced = true
		this.muxer.send(WINDOW, this.isInbound ? ACK : SYN, this.id, this.window - WINDOW_BYTES)
	}

	/** Close our side, after what was written. */
	close() {
		if (this.isFinishedSending || this.failure !== null) return
		this.isFinishedSending = true
		this.muxer.send(WINDOW, FIN | this.#announcement(), this.id, 0)
		this.muxer.settle(this)
	}

	/** End both sides. */
	reset() {
		if (this.failure !== null) return
		if (!(this.isFinishedSending && this.isFinishedReceiving)) this.muxer.send(WINDOW, RST, this.id, 0)
		this.chunks = []
		this.fail("the stream was reset here")
	}

	/** @param {string} reason */
	fail(reason) {
		this.failure ??= reason
		this.muxer.settle(this)
		this.wake()
	}

	wake() {
		for (const resume of this.waiting.splice(0)) resume()
	}

	/** @returns {Promise<void>} */
	changed() {
		return new Promise((resolve) => this.waiting.push(resolve))
	}

	#announcement() {
		if (this.isAnnounced) return 0
		this.isAnnounced = true
		return this.isInbound ? ACK : SYN
	}
}

/** One connection. What breaks the protocol is thrown by `receive`; the connection is of no use after that. */
export class Muxer {
	/** @param {(bytes: Uint8Array) => void} write @param {(stream: MuxedStream) => void} onStream Given each stream that the other side opens. */
	constructor(write, onStream) {
		this.write = write
		this.onStream = onStream
		/** @type {Map<number, MuxedStream>} */
		this.streams = new Map()
		this.nextId = 1
		this.partial = new Uint8Array(0)
		this.isEnded = false
		/** Of the data that is arriving: what is left of it, and its stream, unless nobody wants it. */
		this.bodyLeft = 0
		/** @type {MuxedStream | undefined} */
		this.bodyStream = undefined
		this.isBodyLast = false
		/** What may still be under way to streams that have ended. */
		this.discardLeft = 0
	}

	open() {
		if (this.isEnded) throw new ClosedError("the connection is at its end")
		const stream = new MuxedStream(this, this.nextId, false)
		this.nextId += 2
		this.streams.set(stream.id, stream)
		stream.announce()
		return stream
	}

	ping() {
		this.send(PING, SYN, 0, 0)
	}

	/** @param {string} reason */
	end(reason) {
		this.isEnded = true
		for (const stream of [...this.streams.values()]) stream.fail(reason)
	}

	/** @param {number} kind @param {number} flags @param {number} id @param {number} length @param {Uint8Array} [body] */
	send(kind, flags, id, length, body) {
		if (this.isEnded) return
		const bytes = new Uint8Array(HEADER_BYTES + (body?.length ?? 0))
		const view = new DataView(bytes.buffer)
		view.setUint8(1, kind)
		view.setUint16(2, flags)
		view.setUint32(4, id)
		view.setUint32(8, length)
		if (body !== undefined) bytes.set(body, HEADER_BYTES)
		this.write(bytes)
	}

	/** Take bytes as they come, cut anywhere. @param {Uint8Array} bytes */
	receive(bytes) {
		const data = this.partial.length ? concat([this.partial, bytes]) : bytes
		let at = 0
		while (at < data.length) {
			if (this.bodyLeft > 0) {
				const piece = data.subarray(at, at + this.bodyLeft)
				at += piece.length
				this.#onBody(piece)
			} else if (data.length - at < HEADER_BYTES) {
				break
			} else {
				this.#onHeader(new DataView(data.buffer, data.byteOffset + at, HEADER_BYTES))
				at += HEADER_BYTES
			}
		}
		this.partial = data.slice(at)
	}

	/** @param {MuxedStream} stream */
	settle(stream) {
		const isOver = stream.failure !== null || (stream.isFinishedSending && stream.isFinishedReceiving)
		if (isOver && this.streams.delete(stream.id)) this.discardLeft += stream.credit
	}

	/** @param {DataView} view */
	#onHeader(view) {
		const [kind, flags, id, length] = [view.getUint8(1), view.getUint16(2), view.getUint32(4), view.getUint32(8)]
		if (view.getUint8(0) !== 0 || kind > GO_AWAY || (id === 0) !== kind >= PING) throw new ProtocolError("what arrives is not yamux")
		if (kind === PING) {
			if (flags & SYN) this.send(PING, ACK, 0, length)
			return
		}
		if (kind === GO_AWAY) return this.end("the hub ends the connection")
		let stream = this.streams.get(id)
		if (flags & SYN) {
			if (stream !== undefined || id % 2 === 1) throw new ProtocolError(`stream ${id} was opened with an id of ours, or twice`)
			stream = this.#onOpened(id)
		}
		if (kind === DATA) {
			this.bodyLeft = length
			this.bodyStream = stream
			this.isBodyLast = false
			if (stream === undefined) this.#discard(length)
		}
		if (stream === undefined) return
		if (flags & RST) return stream.fail("the hub reset the stream")
		if (kind === WINDOW) {
			stream.sendWindow += length
			stream.wake()
		} else if (length > stream.credit || (length > 0 && stream.isFinishedReceiving)) {
			throw new ProtocolError(`${length} bytes on stream ${id}, which has no room for them`)
		}
		if (flags & FIN && length > 0 && kind === DATA) this.isBodyLast = true
		else if (flags & FIN) this.#onFinished(stream)
	}

	/** @param {number} id */
	#onOpened(id) {
		if ([...this.streams.values()].filter(({ isInbound }) => isInbound).length >= INBOUND_MAX) {
			this.send(WINDOW, RST, id, 0)
			this.discardLeft += WINDOW_BYTES
			return undefined
		}
		const stream = new MuxedStream(this, id, true)
		this.streams.set(id, stream)
		this.onStream(stream)
		return stream
	}

	/** @param {Uint8Array} piece */
	#onBody(piece) {
		this.bodyLeft -= piece.length
		const stream = this.bodyStream
		if (stream === undefined) return
		stream.credit -= piece.length
		if (stream.failure === null) stream.chunks.push(piece.slice())
		stream.wake()
		if (this.bodyLeft === 0 && this.isBodyLast) this.#onFinished(stream)
	}

	/** @param {MuxedStream} stream */
	#onFinished(stream) {
		stream.isFinishedReceiving = true
		this.settle(stream)
		stream.wake()
	}

	/** Let pass what may have been under way when its stream ended. @param {number} length */
	#discard(length) {
		this.discardLeft -= length
		if (this.discardLeft < 0) throw new ProtocolError(`${length} bytes on a stream that is not open`)
	}
}
