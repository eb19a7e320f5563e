// Presence: what those who have the log open state of themselves. It is signed, sent to those who are connected, and never stored. A page
// trusts its hub to leave out what has ended and who is not a member, but verifies all signatures.
// Source: docs/spec/presence.md.

import { compare, concat, utf8 } from "./bytes.js"
import { decode, encode, isMap } from "./cbor.js"
import { verify } from "./ed25519.js"
import { didOf, publicKeyOf } from "./entry.js"
import { ClosedError, GossipLogError, ProtocolError } from "./errors.js"

/** @typedef {import("./client.js").Presence} TypedPresence The public part, in client.d.ts. */
/** A receiver of presence: a hub, or the other tabs. @typedef {{ send: (bodies: Uint8Array[]) => void }} PresencePeer */
/** Values that were stated together; `made` and `until` are times of `performance.now`. @typedef {{ seq: number, made: number, until: number, body: Uint8Array, states: Record<string, any> }} Statement */
/** @typedef {{ did: string, seq: number, source: PresencePeer | null, newest: Map<string, Statement> }} Session */

const STATES_BYTES_MAX = 1_024
const NAMES_MAX = 16
const NAME_CHARS_MAX = 64
const DEPTH_MAX = 8
const TTL_MAX_MS = 60_000
const SESSIONS_MAX = 1_024
const MARKS_MAX = 16_384
const GATHER_MS = 20
const OWN_PAUSE_MS = 40
const SWEEP_MS = 100
const WINDOW_MS = 24 * 3_600_000
const [ID_AT, SEQ_AT, TTL_AT, SIGNATURE_AT, STATES_AT] = [3, 43, 51, 53, 117]
const DEPARTURE_BYTES = 49

/** @implements {TypedPresence} */
export class Presence {
	/** By author's key and session. @type {Map<string, Session>} */
	#sessions = new Map()
	/** The last sequence numbers of sessions that have ended. @type {Map<string, number>} */
	#marks = new Map()
	/** @type {Set<PresencePeer>} */
	#peers = new Set()
	/** Frames that go out next, each with the peer that it came from. @type {[Uint8Array, PresencePeer | null][]} */
	#gathered = []
	/** @type {Set<(did: string, name: string) => void>} */
	#followers = new Set()
	#session = crypto.getRandomValues(new Uint8Array(8))
	#seq = 0
	/** Our next statement, which collects values until its turn comes. @type {{ states: Record<string, any>, ttl: number, done: Promise<void> } | null} */
	#next = null
	#turn = Promise.resolve()
	/** @type {ReturnType<typeof setInterval> | undefined} */
	#sweeping
	#isClosed = false
	#begin = () => {}

	/** @param {string} topic @param {import("./log.js").AnySigner | undefined} signer */
	constructor(topic, signer) {
		this.topic = topic
		this.signer = signer
		/** Resolved once the page or another tab uses presence. @type {Promise<void>} */
		this.inUse = new Promise((resolve) => (this.#begin = resolve))
	}

	/** The current values, by author and then by name. */
	get states() {
		this.use()
		/** @type {Record<string, Record<string, any>>} */
		const states = {}
		for (const { did, newest } of this.#sessions.values()) {
			for (const name of newest.keys()) {
				const value = this.#value(did, name)
				if (value !== null) (states[did] ??= {})[name] = value
			}
		}
		return states
	}

	/** State values for `ttl` seconds; null takes a name back. Values that have to wait go out together with later ones. @param {Record<string, any>} states @param {{ ttl?: number }} [options] */
	async set(states, { ttl = 10 } = {}) {
		if (!Object.keys(states).length || !(ttl > 0 && 1000 * ttl <= TTL_MAX_MS)) throw new GossipLogError("presence has a name at least, and lasts for more than 0 and at most 60 s")
		await this.#state(states, Math.ceil(1000 * ttl))
	}

	/** End everything that was stated here. */
	async leave() {
		if (this.#seq || this.#next) await this.#state({}, 0)
	}

	/** Yield the current values, then changes; null ends a value. */
	async *[Symbol.asyncIterator]() {
		/** @type {Map<string, any>} */
		const shown = new Map()
		/** @type {Map<string, { author: string, name: string }>} */
		const changed = new Map()
		let wake = () => {}
		/** @param {string} author @param {string} name */
		const follow = (author, name) => {
			const key = `${author} ${name}`
			if (compare(encode(this.#value(author, name)), encode(shown.get(key) ?? null)) === 0) changed.delete(key)
			else changed.set(key, { author, name })
			wake()
		}
		for (const [did, states] of Object.entries(this.states)) for (const name in states) follow(did, name)
		this.#followers.add(follow)
		try {
			while (!this.#isClosed) {
				for (const [key, { author, name }] of changed) {
					changed.delete(key)
					const value = this.#value(author, name)
					if (value === null) shown.delete(key)
					else shown.set(key, value)
					yield { author, name, value }
				}
				if (!changed.size) await new Promise((resolve) => (wake = () => resolve(null)))
			}
		} finally {
			this.#followers.delete(follow)
		}
	}

	// For the log, its links and its other tabs

	use() {
		if (this.#isClosed) throw new ClosedError("the log is closed")
		this.#begin()
	}

	close() {
		this.#isClosed = true
		clearInterval(this.#sweeping)
		for (const follower of this.#followers) follower("", "")
	}

	/** Send a peer the current values, and from now on what changes. @param {PresencePeer} peer */
	enter(peer) {
		this.#peers.add(peer)
		this.tellAll(peer)
	}

	/** @param {PresencePeer} peer */
	tellAll(peer) {
		const known = [...this.#sessions.values()].flatMap(({ newest }) => [...new Set(newest.values())])
		peer.send(known.sort((one, other) => one.seq - other.seq).map(aged))
	}

	/** Forget a peer, and everybody who was heard by way of it. @param {PresencePeer} peer */
	exit(peer) {
		this.#peers.delete(peer)
		for (const [key, { source, seq }] of this.#sessions) if (source === peer) this.#depart(key, seq, peer)
	}

	/** Take a frame of a peer; throws if no honest peer would send it. @param {Uint8Array} body @param {PresencePeer} from */
	async take(body, from) {
		const view = new DataView(body.buffer, body.byteOffset, body.length)
		if (body[0] === 2 && body.length === DEPARTURE_BYTES) return this.#depart(body.subarray(1, 41).join(), Number(view.getBigUint64(41)), from)
		if (body[0] !== 1 || body.length <= STATES_AT || body.length > STATES_AT + STATES_BYTES_MAX) throw new ProtocolError("a presence frame of another form")
		const [age, seq, ttl] = [view.getUint16(1), Number(view.getBigUint64(SEQ_AT)), view.getUint16(TTL_AT)]
		if ((ttl > 0 && age > ttl) || Math.abs(seq - Date.now()) > WINDOW_MS || !this.#isNew(body, seq)) return
		const isValid = await verify(body.slice(ID_AT, ID_AT + 32), body.slice(SIGNATURE_AT, STATES_AT), this.#signed(body))
		const states = isValid ? decode(body, STATES_AT, DEPTH_MAX) : null
		if (!isMap(states) || ttl > TTL_MAX_MS || !areNames(states, ttl)) throw new ProtocolError("presence that nobody may pass on")
		if (this.#isNew(body, seq)) this.#apply(body.slice(), seq, ttl, performance.now() - age, states, from)
	}

	/** @param {Record<string, any>} states @param {number} ttl In ms. @returns {Promise<void>} */
	#state(states, ttl) {
		const { signer } = this
		if (signer === undefined) throw new GossipLogError("the log was opened without a signer")
		this.use()
		if (this.#next !== null && this.#next.ttl > 0 && ttl > 0) {
			Object.assign(this.#next.states, states)
			this.#next.ttl = ttl
			return this.#next.done
		}
		const next = (this.#next = { states: { ...states }, ttl, done: Promise.resolve() })
		next.done = this.#turn.then(async () => {
			if (this.#next === next) this.#next = null
			this.use()
			const encoded = encode(next.states, DEPTH_MAX)
			if (encoded.length > STATES_BYTES_MAX || !areNames(next.states, next.ttl)) throw new GossipLogError(`presence has at most ${NAMES_MAX} names of 1 to ${NAME_CHARS_MAX} characters, and ${STATES_BYTES_MAX} bytes`)
			const body = concat([new Uint8Array(STATES_AT), encoded])
			const view = new DataView(body.buffer)
			this.#seq = Math.max(this.#seq + 1, Date.now())
			body[0] = 1
			body.set(publicKeyOf(signer.did), ID_AT)
			body.set(this.#session, ID_AT + 32)
			view.setBigUint64(SEQ_AT, BigInt(this.#seq))
			view.setUint16(TTL_AT, next.ttl)
			body.set(await signer.sign(this.#signed(body)), SIGNATURE_AT)
			this.#apply(body, this.#seq, next.ttl, performance.now(), next.states, null)
		})
		this.#turn = next.done.catch(() => {}).then(() => new Promise((resolve) => setTimeout(resolve, OWN_PAUSE_MS)))
		return next.done
	}

	/** @param {Uint8Array} body */
	#signed(body) {
		return concat([utf8(`gossiplog-presence/1\n${this.topic}\n`), body.subarray(ID_AT, SIGNATURE_AT), body.subarray(STATES_AT)])
	}

	/** @param {Uint8Array} body @param {number} seq */
	#isNew(body, seq) {
		const key = keyOfStatement(body)
		const session = this.#sessions.get(key)
		return seq > (session?.seq ?? this.#marks.get(key) ?? -1) && (session !== undefined || this.#sessions.size < SESSIONS_MAX) && !this.#isClosed
	}

	/** @param {Uint8Array} body @param {number} seq @param {number} ttl @param {number} made @param {Record<string, any>} states @param {PresencePeer | null} source */
	#apply(body, seq, ttl, made, states, source) {
		const key = keyOfStatement(body)
		const session = this.#sessions.get(key) ?? { did: didOf(body.slice(ID_AT, ID_AT + 32)), seq, source, newest: new Map() }
		const statement = { seq, made, until: made + ttl, body, states }
		this.#sessions.set(key, Object.assign(session, { seq, source }))
		this.#gather(aged(statement), source)
		for (const name in states) if (session.newest.size < NAMES_MAX || session.newest.has(name)) session.newest.set(name, statement)
		if (ttl === 0) this.#end(key, session)
		this.#changed(session, Object.keys(states))
		this.#sweeping ??= setInterval(() => this.#sweep(), SWEEP_MS)
	}

	/** End a session whose connection was lost. The same statements are accepted again when it returns. @param {string} key @param {number} seq @param {PresencePeer} from */
	#depart(key, seq, from) {
		const session = this.#sessions.get(key)
		if (session?.source !== from || session.seq > seq) return
		const body = Uint8Array.of(2, ...key.split(",").map(Number), ...new Uint8Array(8))
		new DataView(body.buffer).setBigUint64(41, BigInt(session.seq))
		this.#gather(body, from)
		this.#sessions.delete(key)
		this.#changed(session, session.newest.keys())
	}

	/** @param {string} key @param {Session} session */
	#end(key, session) {
		this.#sessions.delete(key)
		this.#marks.set(key, session.seq)
		if (this.#marks.size > MARKS_MAX) this.#marks.delete(this.#marks.keys().next().value ?? "")
		this.#changed(session, session.newest.keys())
	}

	#sweep() {
		for (const [key, session] of this.#sessions) {
			const over = [...session.newest].filter(([, { until }]) => until <= performance.now()).map(([name]) => name)
			for (const name of over) session.newest.delete(name)
			if (!session.newest.size) this.#end(key, session)
			this.#changed(session, over)
		}
	}

	/** Return an author's value under a name, from the newest statement of its sessions; null without one. @param {string} did @param {string} name */
	#value(did, name) {
		/** @type {Statement | undefined} */
		let found
		for (const session of this.#sessions.values()) {
			const statement = session.did === did ? session.newest.get(name) : undefined
			if (statement !== undefined && statement.states[name] !== null && statement.seq > (found?.seq ?? -1)) found = statement
		}
		return found === undefined ? null : found.states[name]
	}

	/** @param {Session} session @param {Iterable<string>} names */
	#changed({ did }, names) {
		for (const name of names) for (const follower of this.#followers) follower(did, name)
	}

	/** Send a frame within `GATHER_MS` to all peers but its source, together with others. @param {Uint8Array} body @param {PresencePeer | null} source */
	#gather(body, source) {
		if (!this.#gathered.length) setTimeout(() => this.#flush(), GATHER_MS)
		this.#gathered.push([body, source])
	}

	#flush() {
		const gathered = this.#gathered.splice(0)
		for (const peer of this.#peers) if (!this.#isClosed) peer.send(gathered.filter(([, source]) => source !== peer).map(([body]) => body))
	}
}

/** @param {Uint8Array} body */
const keyOfStatement = (body) => body.subarray(ID_AT, SEQ_AT).join()

/** Return a statement's frame with its present age. @param {Statement} statement */
function aged({ body, made }) {
	const bytes = body.slice()
	new DataView(bytes.buffer).setUint16(1, Math.min(65_535, performance.now() - made))
	return bytes
}

/** Whether these names may be stated: a goodbye, whose ttl is 0, has none. @param {Record<string, any>} states @param {number} ttl */
function areNames(states, ttl) {
	const names = Object.keys(states)
	return names.length <= NAMES_MAX && names.length > 0 === ttl > 0 && names.every((name) => name.length > 0 && [...name].length <= NAME_CHARS_MAX)
}
