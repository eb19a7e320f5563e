// yamux over a WebSocket, the client's side: many streams of bytes in one. Whatever the other side can fill is bounded: a stream's unread bytes
// by its window or one frame, the streams that it opens by `inboundMax`, and what we send by what it reads.
// Source: docs/spec/sync.md, "Mode A"; the yamux specification.

import { Bell } from "./bell.js"
import { ByteQueue } from "./bytes.js"
import { ClosedError, ProtocolError } from "./errors.js"

const HEADER_BYTES = 12
const BODY_BYTES_MAX = 65_536 - HEADER_BYTES
/** Bytes that each side may send at first, by the specification. */
const WINDOW_BYTES = 256 * 1024
/** Our window of streams that we open, larger because answers are. */
const OPENED_WINDOW_BYTES = 1024 * 1024
const [DATA, WINDOW, PING, GO_AWAY] = [0, 1, 2, 3]
const [SYN, ACK, FIN, RST] = [1, 2, 4, 8]

/** One stream, read by one reader and written by one writer at a time. */
export class MuxedStream {
	/** Bytes that arrived and were not taken. */
	unread = new ByteQueue()
	/** Bytes that we may still send. */
	sendWindow = WINDOW_BYTES
	hasClosed = false
	isAtEnd = false
	/** Why it ended early. @type {string | null} */
	failure = null
	changed = new Bell()

	/** @param {Muxer} muxer @param {number} id @param {boolean} isInbound @param {object} [place] The log's place, if we opened it. */
	constructor(muxer, id, isInbound, place) {
		this.muxer = muxer
		this.id = id
		this.isInbound = isInbound
		this.place = place
		this.window = isInbound ? WINDOW_BYTES : OPENED_WINDOW_BYTES
		/** Bytes that the other side may still send. */
		this.credit = this.window
		muxer.streams.set(id, this)
		muxer.send(WINDOW, isInbound ? ACK : SYN, id, this.window - WINDOW_BYTES)
	}

	/** Write all bytes, waiting while the other side's window is full. @param {Uint8Array} bytes */
	async write(bytes) {
		for (let at = 0; at < bytes.length; ) {
			if (this.failure !== null || this.hasClosed) throw new ClosedError(this.failure ?? "our side of the stream is closed")
			const size = Math.min(bytes.length - at, this.sendWindow, BODY_BYTES_MAX)
			if (size > 0) this.muxer.send(DATA, 0, this.id, size, bytes.subarray(at, at + size))
			else await this.changed.heard()
			this.sendWindow -= size
			at += size
		}
	}

	/** Wait until so many bytes are unread; false if the stream ends before. @param {number} size */
	async has(size) {
		this.#grant(size - this.unread.size, 1)
		while (this.unread.size < size) {
			if (this.failure !== null) throw new ClosedError(this.failure)
			if (this.isAtEnd) return false
			await this.changed.heard()
		}
		return true
	}

	/** @param {number} size At most what is unread. */
	take(size) {
		const bytes = this.unread.take(size)
		this.#grant(this.window - this.unread.size, this.window / 2)
		return bytes
	}

	/** Let the other side send `room` bytes in all, if that is at least `least` more than it may already. @param {number} room @param {number} least */
	#grant(room, least) {
		const due = room - this.credit
		if (due < least || this.isAtEnd || this.failure !== null) return
		this.credit += due
		this.muxer.send(WINDOW, 0, this.id, due)
	}

	/** Close our side after what was written. */
	close() {
		if (this.hasClosed || this.failure !== null) return
		this.hasClosed = true
		this.muxer.send(WINDOW, FIN, this.id, 0)
		this.muxer.settle(this)
	}

	/** End both sides. @param {string} [reason] */
	reset(reason = "the stream was reset here") {
		if (this.failure !== null) return
		if (!(this.hasClosed && this.isAtEnd)) this.muxer.send(WINDOW, RST, this.id, 0)
		this.unread = new ByteQueue()
		this.fail(reason)
	}

	/** @param {string} reason */
	fail(reason) {
		this.failure ??= reason
		this.muxer.settle(this)
		this.changed.ring()
	}

	/** Note that the other side closed its side. */
	end() {
		this.isAtEnd = true
		this.muxer.settle(this)
		this.changed.ring()
	}
}

/** One connection. `receive` throws if the other side breaks the protocol; the connection is of no use after that. */
export class Muxer {
	/** @type {Map<number, MuxedStream>} */
	streams = new Map()
	isEnded = false
	/** Streams that the other side may have open. */
	inboundMax = 16
	#nextId = 1
	/** The frame that has not arrived whole: at most a header and as much data as a window. */
	#partial = new ByteQueue()
	/** Bytes that may still arrive for streams that have ended. */
	#strayLeft = 0

	/** @param {(bytes: Uint8Array) => void} write @param {(stream: MuxedStream) => void} onStream Called with each stream that the other side opens. */
	constructor(write, onStream) {
		this.write = write
		this.onStream = onStream
	}

	/** @param {object} place The log's place. */
	open(place) {
		const stream = new MuxedStream(this, this.#nextId, false, place)
		this.#nextId += 2
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

	/** Take bytes that arrived. @param {Uint8Array} bytes */
	receive(bytes) {
		this.#partial.push(bytes)
		while (this.#partial.size >= HEADER_BYTES) {
			const view = new DataView(this.#partial.bytes.slice(0, HEADER_BYTES).buffer)
			const [kind, flags, id, length] = [view.getUint8(1), view.getUint16(2), view.getUint32(4), view.getUint32(8)]
			if (view.getUint8(0) !== 0 || kind > GO_AWAY || (id === 0) !== kind >= PING) throw new ProtocolError("what arrives is not yamux")
			const size = HEADER_BYTES + (kind === DATA ? length : 0)
			if (size > HEADER_BYTES + OPENED_WINDOW_BYTES) throw noRoom(id, length)
			if (this.#partial.size < size) return
			this.#onFrame(kind, flags, id, length, this.#partial.take(size).subarray(HEADER_BYTES))
		}
	}

	/** Forget a stream that has ended on both sides. @param {MuxedStream} stream */
	settle(stream) {
		const isOver = stream.failure !== null || (stream.hasClosed && stream.isAtEnd)
		if (isOver && this.streams.delete(stream.id)) this.#strayLeft += stream.credit
	}

	/** @param {number} kind @param {number} flags @param {number} id @param {number} length @param {Uint8Array} body */
	#onFrame(kind, flags, id, length, body) {
		if (kind === GO_AWAY) return this.end("the hub ends the connection")
		if (kind === PING) return flags & SYN ? this.send(PING, ACK, 0, length) : undefined
		if (flags & SYN) this.#onOpened(id)
		const stream = this.streams.get(id)
		if (stream === undefined) {
			this.#strayLeft -= body.length
			if (this.#strayLeft < 0) throw noRoom(id, length)
			return
		}
		if (kind === WINDOW) stream.sendWindow += length
		else if (length > stream.credit || (length > 0 && stream.isAtEnd)) throw noRoom(id, length)
		stream.credit -= body.length
		stream.unread.push(body)
		if (flags & RST) stream.fail("the hub reset the stream")
		else if (flags & FIN) stream.end()
		else stream.changed.ring()
	}

	/** @param {number} id */
	#onOpened(id) {
		if (this.streams.has(id) || id % 2 === 1) throw new ProtocolError(`stream ${id} was opened with an id of ours, or twice`)
		if ([...this.streams.values()].filter(({ isInbound }) => isInbound).length < this.inboundMax) return this.onStream(new MuxedStream(this, id, true))
		this.send(WINDOW, RST, id, 0)
		this.#strayLeft += WINDOW_BYTES
	}
}

/** @param {number} id @param {number} length */
const noRoom = (id, length) => new ProtocolError(`${length} bytes on stream ${id}, which has no room for them`)
