// A log's place on a connection to a hub. A page's logs at one server share a WebSocket if the hub allows it; otherwise each has its own. A
// log asks for its place by opening the stream of refusals, and either side gives up the log by ending that stream.
// Source: docs/spec/sync.md, "Mode A" and "Several logs on one connection".

import { Channel, NotSpoken } from "./channel.js"
import { ClosedError, ProtocolError } from "./errors.js"
import { Muxer } from "./muxer.js"

const DIAL_S = 10
/** Logs that ask for a place at a time: the streams that a hub allows grow only with the logs that have one. */
const ASKED_AT_ONCE = 32
/** Logs that a hub allows on one connection. */
const LOGS_MAX = 256
const ASK_S = 5
const PING_S = 30
const SILENT_S = 120
/** Bytes that may wait in the browser: a hub whose windows allow more and that does not read them is not honest. */
const UNSENT_BYTES_MAX = 8 * 1024 * 1024
/** Streams that a hub may have open for each log, and in addition on each connection. */
const [STREAMS_A_LOG, STREAMS_BESIDE] = [4, 12]
const REFUSAL_BYTES_MAX = 16 * 1024
const REASON_CHARS_MAX = 512
const NO_ANSWER = "no hub answers there, or it does not let this page in"

/** The latest connection that logs may share, by the URL without the topic. @type {Map<string, HubConnection>} */
const connections = new Map()

/** The server could not be reached, so none of its logs can be. */
class NotReached extends ClosedError {}

/** One WebSocket, which is closed when no log uses it any more. */
class HubConnection {
	/** The logs that use it or ask to, by the protocol of the sessions that the hub begins. @type {Map<string, Place>} */
	places = new Map()
	/** The hub allows one log on a connection. */
	isForOne = false
	isOpen = false
	#asked = 0
	/** The last question in each of the `ASKED_AT_ONCE` rows. @type {Promise<unknown>[]} */
	#turns = []

	/** @param {string} target @param {string | null} server The key in `connections`; null if no other log may use it. */
	constructor(target, server) {
		const socket = new WebSocket(target)
		socket.binaryType = "arraybuffer"
		/** @param {Uint8Array} bytes */
		const write = (bytes) => {
			if (this.isOpen) socket.send(/** @type {Uint8Array<ArrayBuffer>} */ (bytes))
			if (socket.bufferedAmount > UNSENT_BYTES_MAX) this.fail(new ProtocolError("the hub does not read what it lets us send"))
		}
		const muxer = (this.muxer = new Muxer(write, (stream) => void this.#serve(stream).catch(() => stream.reset())))
		/** Take no further logs. */
		this.retire = () => {
			if (connections.get(String(server)) === this) connections.delete(String(server))
		}
		const opened = new Promise((resolve, reject) => {
			socket.onopen = () => {
				this.isOpen = true
				clearTimeout(dialling)
				muxer.ping()
				resolve(null)
			}
			/** End the connection, and tell its logs why; only the first call has an effect on them. @param {Error} error */
			this.fail = (error) => {
				this.isOpen = false
				this.retire()
				clearInterval(pinging)
				clearTimeout(dialling)
				socket.onerror = socket.onclose = socket.onmessage = socket.onopen = null
				socket.close()
				reject(error)
				for (const place of this.places.values()) if (place.isIn) place.fail(error)
				muxer.end("the connection ended")
			}
		})
		/** Resolved when it is open; rejected with the reason if it does not open. */
		this.opened = opened.catch(async (error) => {
			throw error.message === NO_ANSWER ? await refusalOf(target) : error
		})
		this.opened.catch(() => {})
		/** @param {string} reason */
		const end = (reason) => this.fail(new ClosedError(this.isOpen ? reason : NO_ANSWER))
		// Node 20 fires only `error` for a WebSocket that was refused, and never `close`.
		socket.onerror = () => end("the connection broke")
		socket.onclose = ({ code, reason }) => (reason ? this.fail(new ClosedError(reason)) : end(`the connection ended (${code})`))
		let heardAt = Date.now()
		socket.onmessage = ({ data }) => {
			heardAt = Date.now()
			try {
				if (!(data instanceof ArrayBuffer)) throw new ProtocolError("the hub sent text")
				muxer.receive(new Uint8Array(data))
			} catch (error) {
				this.fail(/** @type {Error} */ (error))
			}
		}
		const pinging = setInterval(() => {
			// The clock, because others may stand still while the machine sleeps. It may be set back, too.
			if (Math.abs(Date.now() - heardAt) > 1000 * SILENT_S) end("the hub is silent")
			muxer.ping()
		}, 1000 * PING_S)
		const dialling = setTimeout(() => this.fail(new NotReached(`the hub did not answer within ${DIAL_S} s`)), 1000 * DIAL_S)
		if (server !== null && !connections.has(server)) connections.set(server, this)
	}

	/** @param {Place} place */
	add(place) {
		this.places.set(place.protocol, place)
		this.muxer.inboundMax = STREAMS_BESIDE + STREAMS_A_LOG * this.places.size
	}

	/** Ask for a place once fewer than `ASKED_AT_ONCE` others do. @param {() => Promise<boolean>} ask */
	inTurn(ask) {
		const turn = this.#asked++ % ASKED_AT_ONCE
		const asked = (this.#turns[turn] ?? Promise.resolve()).then(ask)
		this.#turns[turn] = asked.catch(() => {})
		return asked
	}

	/** Reset a log's streams; after the last log, close the connection. @param {Place} place */
	drop(place) {
		if (this.places.get(place.protocol) === place) this.places.delete(place.protocol)
		for (const stream of [...this.muxer.streams.values()]) if (stream.place === place) stream.reset()
		if (!this.places.size) this.fail(new ClosedError("no log uses the connection"))
	}

	/** Hand a session that the hub begins to its log. @param {import("./muxer.js").MuxedStream} stream */
	async #serve(stream) {
		const accepted = await Channel.accept(stream, this.places)
		if (accepted !== null) await accepted[1].serve(accepted[0])
		stream.close()
	}
}

export class Place {
	isEnded = false
	/** Whether the place was given, so that it is lost with the connection. Before that, a connection's end only means to look elsewhere. */
	isIn = false
	/** The stream of refusals, once it is open. @type {Channel | null} */
	#refusals = null
	/** @type {HubConnection | null} */
	#connection = null

	/** @param {string} target @param {string} topic @param {(channel: Channel) => Promise<void>} serve Called with each session that the hub begins. */
	constructor(target, topic, serve) {
		this.target = target
		this.topic = topic
		this.protocol = `/gossiplog/reconcile/1/${topic}`
		this.serve = serve
		/** Rejected when the place is lost or left. */
		this.over = /** @type {Promise<never>} */ (
			new Promise((_, reject) => {
				this.fail = (/** @type {Error} */ error) => {
					this.isEnded = true
					reject(error)
				}
			})
		)
		this.over.catch(() => {})
	}

	/** Find a place: on the connection that other logs of the server use, or on a new one. */
	async enter() {
		const server = serverOf(this.target, this.topic)
		for (let shared; (shared = connections.get(String(server))) !== undefined && !shared.isForOne; ) {
			try {
				await Promise.race([shared.opened, this.over])
			} catch (error) {
				if (this.isEnded || error instanceof NotReached) throw error
				continue // the hub refused the log that was dialled for
			}
			if (await Promise.race([shared.inTurn(() => this.#ask(shared)), this.over])) return
			if (shared.places.size >= LOGS_MAX) shared.retire()
			else if (shared.isOpen) break
		}
		this.#connection = new HubConnection(this.target, server)
		this.#connection.add(this)
		this.isIn = true
		await this.#connection.opened
	}

	/** Ask for a place on a connection; false if it is full or ends, or the hub gives none. It gives the reason on a connection of the log's own. @param {HubConnection} connection */
	async #ask(connection) {
		if (!connection.isOpen || connection.isForOne || this.isEnded || connection.places.has(this.protocol) || connection.places.size >= LOGS_MAX) return false
		this.#connection = connection
		connection.add(this)
		try {
			await this.refusals.agree(DIAL_S)
			return (this.isIn = true)
		} catch (error) {
			if (error instanceof NotSpoken) connection.isForOne = true
			connection.drop(this)
			this.#refusals = this.#connection = null
			if (this.isEnded) throw error
			return false
		}
	}

	/** The stream of refusals, opened on first use. */
	get refusals() {
		return (this.#refusals ??= Channel.open(this, `/gossiplog/refusals/1/${this.topic}`, { most: REFUSAL_BYTES_MAX }))
	}

	/** Open a stream. */
	open() {
		if (this.isEnded || this.#connection === null) throw new ClosedError("the connection is at its end")
		return this.#connection.muxer.open(this)
	}

	/** Give up the place. Other logs on the connection go on. */
	leave() {
		this.fail(new ClosedError("the link was closed"))
		this.#connection?.drop(this)
	}
}

/** Return a log's URL without its topic, which is the same for all logs of the server; null if its path does not end with the topic. @param {string} target @param {string} topic */
function serverOf(target, topic) {
	const url = new URL(target)
	const path = url.pathname.replace(/%3a|%23/gi, decodeURIComponent)
	if (!path.endsWith(`/${topic}`)) return null
	url.pathname = path.slice(0, -topic.length)
	return url.href
}

/** Return why a hub refused a WebSocket. The platform does not tell, so the hub's HTTP API is asked for the same log. @param {string} target */
async function refusalOf(target) {
	const url = new URL(target)
	url.protocol = url.protocol.replace("ws", "http")
	url.pathname = `${url.pathname.replace(/\/$/, "")}/api/clock`
	const ask = (/** @type {RequestMode} */ mode) => fetch(url, { mode, signal: AbortSignal.timeout(1000 * ASK_S) })
	try {
		const answer = await ask("cors")
		const body = answer.ok ? undefined : (await answer.body?.getReader().read())?.value
		const reason = new TextDecoder().decode(body).slice(0, REASON_CHARS_MAX).trim() || NO_ANSWER
		// A proxy's own answer is a page of HTML.
		return new ClosedError(reason[0] === "<" ? `the server refused with HTTP status ${answer.status}` : reason)
	} catch {
		// A page that may not read the answer can still learn whether there is one.
		return ask("no-cors").then(() => new ClosedError(NO_ANSWER), () => new NotReached(NO_ANSWER))
	}
}
