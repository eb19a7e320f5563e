// A log's place on a connection to a hub. All logs that a page has at one server share a WebSocket where the hub lets them; elsewhere each
// has its own. A log asks for its place by the stream for refusals, and either side gives up the log by ending that stream.
// Source: docs/spec/sync.md, "Mode A" and "Several logs on one connection".

import { Channel, NotSpoken } from "./channel.js"
import { ClosedError, ProtocolError } from "./errors.js"
import { Muxer } from "./muxer.js"

const DIAL_S = 10
/** Logs that ask for a place at a time: a hub allows streams only for those that have one. */
const ASKED_AT_ONCE = 32
const ASK_S = 5
const PING_S = 30
const SILENT_S = 120
/** What waits to go out on a connection: a hub that lets us send this much reads what it lets us send, or is none. */
const UNSENT_BYTES_MAX = 8 * 1024 * 1024
/** Streams that a hub may open for each log, and further ones for the first. */
const [STREAMS_A_LOG, STREAMS_BESIDE] = [4, 12]
const REFUSAL_BYTES_MAX = 16 * 1024
const REASON_CHARS_MAX = 512
const NO_ANSWER = "no hub answers there, or it does not let this page in"

/** The connection that logs may share, by server. @type {Map<string, HubConnection>} */
const connections = new Map()

/** The server gave no answer, whichever of its logs was asked for. */
class NotReached extends ClosedError {}

/** One WebSocket. It lasts until it breaks or no log uses it. */
class HubConnection {
	/** Who uses it or asks to, by the protocol of the sessions that the hub begins. @type {Map<string, Place>} */
	places = new Map()
	/** The hub lets no other log use it. */
	isForOne = false
	isOpen = false
	#asked = 0
	/** The latest that asks, of those who do one after the other. @type {Promise<unknown>[]} */
	#turns = []

	/** @param {string} target @param {string | null} server Under which other logs find it. */
	constructor(target, server) {
		const socket = new WebSocket(target)
		socket.binaryType = "arraybuffer"
		/** @param {Uint8Array} bytes */
		const write = (bytes) => {
			if (this.isOpen) socket.send(/** @type {Uint8Array<ArrayBuffer>} */ (bytes))
			if (socket.bufferedAmount > UNSENT_BYTES_MAX) this.fail(new ProtocolError("the hub does not read what it lets us send"))
		}
		const muxer = (this.muxer = new Muxer(write, (stream) => void this.#serve(stream).catch(() => stream.reset())))
		const opened = new Promise((resolve, reject) => {
			socket.onopen = () => {
				this.isOpen = true
				clearTimeout(dialling)
				muxer.ping()
				resolve(null)
			}
			/** End it, for the first reason that there is. @param {Error} error */
			this.fail = (error) => {
				this.isOpen = false
				if (connections.get(String(server)) === this) connections.delete(String(server))
				clearInterval(pinging)
				clearTimeout(dialling)
				socket.onerror = socket.onclose = socket.onmessage = socket.onopen = null
				socket.close()
				reject(error)
				for (const place of this.places.values()) if (place.isIn) place.fail(error)
				muxer.end("the connection ended")
			}
		})
		/** Settled when it is open, or will not be, with a reason. */
		this.opened = opened.catch(async (error) => {
			throw error.message === NO_ANSWER ? await refusalOf(target) : error
		})
		this.opened.catch(() => {})
		/** @param {string} reason */
		const end = (reason) => this.fail(new ClosedError(this.isOpen ? reason : NO_ANSWER))
		// Node 20 says of a WebSocket that was refused that there is an error, and never that it is closed.
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
			if (Date.now() - heardAt > 1000 * SILENT_S) end("the hub is silent")
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

	/** Ask for a place when it is one's turn. @param {() => Promise<boolean>} ask */
	inTurn(ask) {
		const turn = this.#asked++ % ASKED_AT_ONCE
		const asked = (this.#turns[turn] ?? Promise.resolve()).then(ask)
		this.#turns[turn] = asked.catch(() => {})
		return asked
	}

	/** End all that a log has on it; with the last one it is closed. @param {Place} place */
	drop(place) {
		if (this.places.get(place.protocol) === place) this.places.delete(place.protocol)
		for (const stream of [...this.muxer.streams.values()]) if (stream.place === place) stream.reset()
		if (!this.places.size) this.fail(new ClosedError("no log uses the connection"))
	}

	/** Hand over what the hub opens. @param {import("./muxer.js").MuxedStream} stream */
	async #serve(stream) {
		const accepted = await Channel.accept(stream, this.places)
		if (accepted !== null) await accepted[1].serve(accepted[0])
		stream.close()
	}
}

export class Place {
	isEnded = false
	/** Whether the log uses the connection: with its end the place is lost, and not looked for elsewhere. */
	isIn = false
	/** On which the hub says what it does not take. @type {Channel | null} */
	#refusals = null
	/** @type {HubConnection | null} */
	#connection = null

	/** @param {string} target @param {string} topic @param {(channel: Channel) => Promise<void>} serve Given each session that the hub begins. */
	constructor(target, topic, serve) {
		this.target = target
		this.topic = topic
		this.protocol = `/gossiplog/reconcile/1/${topic}`
		this.serve = serve
		/** Rejected with the end of the place. */
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

	/** Find a place: on the connection that other logs of the server have, or on one that is dialled now. */
	async enter() {
		const server = serverOf(this.target, this.topic)
		for (let shared; (shared = connections.get(String(server))) !== undefined && !shared.isForOne; ) {
			try {
				await Promise.race([shared.opened, this.over])
			} catch (error) {
				if (this.isEnded || error instanceof NotReached) throw error
				continue // that was about another log
			}
			if (await Promise.race([shared.inTurn(() => this.#ask(shared)), this.over])) return
			if (shared.isOpen) break
		}
		this.#connection = new HubConnection(this.target, server)
		this.#connection.add(this)
		this.isIn = true
		await this.#connection.opened
	}

	/** Ask for a place on a connection; false where the hub gives none, or the connection ends. Why it gives none, it says when it is dialled. @param {HubConnection} connection */
	async #ask(connection) {
		if (!connection.isOpen || connection.isForOne || this.isEnded || connection.places.has(this.protocol)) return false
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

	/** The stream that is the log's place. */
	get refusals() {
		return (this.#refusals ??= Channel.open(this, `/gossiplog/refusals/1/${this.topic}`, { most: REFUSAL_BYTES_MAX }))
	}

	/** Open a stream. */
	open() {
		if (this.isEnded || this.#connection === null) throw new ClosedError("the connection is at its end")
		return this.#connection.muxer.open(this)
	}

	/** Give it up; the others on the connection go on. */
	leave() {
		this.fail(new ClosedError("the link was closed"))
		this.#connection?.drop(this)
	}
}

/** What the URLs of all logs of a server begin and end with; null where a URL does not end with the topic. @param {string} target @param {string} topic */
function serverOf(target, topic) {
	const url = new URL(target)
	const path = url.pathname.replace(/%3a/gi, ":")
	if (!path.endsWith(`/${topic}`)) return null
	url.pathname = path.slice(0, -topic.length)
	return url.href
}

/** Why a hub does not let us in: of a WebSocket that was refused the platform says nothing, but the hub's HTTP API does. @param {string} target */
async function refusalOf(target) {
	const url = new URL(target)
	url.protocol = url.protocol.replace("ws", "http")
	url.pathname = `${url.pathname.replace(/\/$/, "")}/api/clock`
	const ask = (/** @type {RequestMode} */ mode) => fetch(url, { mode, signal: AbortSignal.timeout(1000 * ASK_S) })
	try {
		const answer = await ask("cors")
		const body = answer.ok ? undefined : (await answer.body?.getReader().read())?.value
		return new ClosedError(new TextDecoder().decode(body).slice(0, REASON_CHARS_MAX).trim() || NO_ANSWER)
	} catch {
		// Without asking to read the answer, one learns whether there is any.
		return ask("no-cors").then(() => new ClosedError(NO_ANSWER), () => new NotReached(NO_ANSWER))
	}
}
