// A link to a hub: a place on a connection, taken again whenever it is lost, that carries pushes both ways and the sessions by which either
// side gets what it lacks. A session gives as well as takes, so we begin all of them, and refuse those that the hub begins.
// Source: docs/spec/sync.md, "Mode A"; docs/spec/reconcile.md.

import { Bell } from "./bell.js"
import { concat, toHex } from "./bytes.js"
import { Channel, NotSpoken } from "./channel.js"
import { idOfKey } from "./entry.js"
import { ClosedError, DecodeError, GossipLogError, ProtocolError, inWords } from "./errors.js"
import { decodeEvent, insertEvent, refuse } from "./messages.js"
import { Place } from "./place.js"
import { frame } from "./protobuf.js"
import { Reconciliation, Unreconciled, putAside } from "./reconcile.js"
import { Sketch } from "./sketch.js"

/** @typedef {import("./client.js").HubLink} TypedHubLink What client.d.ts says of it. */
/** @typedef {import("./memory_store.js").MemoryStore | import("./indexeddb_store.js").IndexedDbStore} Store */
/** @typedef {import("./tabs.js").Tabs | import("./tabs.js").OneTab} AnyTabs */
/** What a link has of the log. @typedef {{ topic: string, presence: import("./presence.js").Presence, store: Store, tabs: AnyTabs, take: (values: Uint8Array[]) => Promise<import("./entry.js").Verdict[]>, warn: (text: string) => void }} LogView */
/** What the hub does not take. @typedef {{ rule: string, reason: string, ids: string[] }} Refused */
/** @typedef {{ isConnected: boolean, error: string | null, refused: Refused[] }} Status */

const RETRY_FIRST_S = 0.5
const RETRY_MOST_S = 60
/** A connection that lasted so long, or on which a session came to its end, makes the next attempt begin with the shortest wait again. */
const STABLE_S = 10
/** A hub gives reason for ten sessions a second at most. */
const PROVOKED_MS = 100
const PUSHED_AT_ONCE = 256
const REFUSED_MAX = 32
const REFUSED_IDS_MAX = 64
const REFUSAL_CHARS_MAX = 512
const PRESENCE_BYTES_MAX = 1_149
const PRESENCE_PER_S = 2_000
const PRESENCE_BURST = 4_000
/** Frames beyond these that a hub is forgiven. */
const PRESENCE_OVER_MAX = 1_000
/** What the hub understands as: leave it to the session that we begin. */
const CROSSING = "a session that the other side began is running"
/** Before all keys but those of snapshots, which are not read here. */
const FIRST_KEY = new Uint8Array(20)

/** @implements {TypedHubLink} */
export class HubLink {
	/** Whether the connection stands. */
	isConnected = false
	/** Why it does not, or why a session came to nothing; null while all is well. @type {string | null} */
	error = null
	/** What the hub does not take of ours. @type {Refused[]} */
	refused = []
	/** Called when any of these has changed. @type {(() => void) | null} */
	onchange = null
	/** The hub had all that we had when the last session ended, so that what follows can be pushed. */
	isLevel = false
	#closing = new AbortController()
	/** Ends all pauses. */
	#bell = new Bell()
	/** Whether this tab has the connection, or would have it. */
	#leads = false
	#sketch = new Sketch()
	#sketchSeq = 0
	/** @type {Map<string, number>} */
	#aside = new Map()
	/** The next session is a stream of everything after this key: all of it, or the rest of one that was cut short. @type {Uint8Array | null} */
	#after = null
	/** Everything was asked for on this connection. */
	#hasDoubted = false
	/** A session is due. */
	#isWanted = true
	/** One will be due, since the hub gave reason for it; when that was so last. @type {ReturnType<typeof setTimeout> | undefined} */
	#provoked
	#provokedAt = 0
	/** Heads of the hub's that we lack. @type {Uint8Array[]} */
	#lacking = []
	/** Who waits for it, by a name that the tabs know it by. @type {Map<string, { resolve: () => void, reject: (error: Error) => void }>} */
	#settling = new Map()
	/** @type {Channel | null} */
	#pushes = null
	/** @type {Place | null} */
	#place = null

	/** @param {LogView} log @param {string} url @param {string} [token] */
	constructor(log, url, token) {
		this.log = log
		this.url = url
		this.target = withToken(url, token)
	}

	get isClosed() {
		return this.#closing.signal.aborted
	}

	/** Wait until the hub has everything that the log has now, and the log what the hub had when it was asked. Without an end while there is no connection. @returns {Promise<void>} */
	settled() {
		if (this.isClosed) return Promise.reject(new ClosedError("the link is closed"))
		return new Promise((resolve, reject) => {
			const id = crypto.randomUUID()
			this.#settling.set(id, { resolve, reject })
			if (this.#leads) this.want()
			else this.#tell({ settle: id })
		})
	}

	/** End it. */
	close() {
		this.#closing.abort(new ClosedError("the link was closed"))
		this.#place?.leave()
		this.#bell.ring()
	}

	/** Connect, and connect again, until it is closed; once no other tab does. */
	async run() {
		this.#tell({ asks: true })
		try {
			await this.log.tabs.alone(`link ${this.url}`, () => this.#lead(), this.#closing.signal)
		} catch (error) {
			if (!this.isClosed) this.error = inWords(error)
		}
		for (const { reject } of this.#settling.values()) reject(new ClosedError("the link was closed"))
	}

	async #lead() {
		this.#leads = true
		this.#tell({ leads: true })
		let pause = RETRY_FIRST_S
		while (!this.isClosed) {
			const began = Date.now()
			this.isLevel = false
			const error = await this.#connect().then(() => null, inWords)
			this.#show({ isConnected: false, error })
			if (this.isLevel || Date.now() - began > 1000 * STABLE_S) pause = RETRY_FIRST_S
			if (!this.isClosed) await this.#bell.heard(pause * (1 + Math.random() / 4))
			pause = Math.min(2 * pause, RETRY_MOST_S)
		}
	}

	// The other tabs

	/** @param {import("./tabs.js").Told} told */
	#tell(told) {
		this.log.tabs.tell({ url: this.url, ...told })
	}

	/** What another tab tells of this hub. @param {import("./tabs.js").Told} told */
	onTold({ leads, asks, settle, settled, status }) {
		if (this.#leads) {
			if (asks) this.#show({})
			if (settle !== undefined) this.settled().then(() => this.#tell({ settled: settle }), () => {})
			return
		}
		if (leads) for (const settle of this.#settling.keys()) this.#tell({ settle })
		if (settled !== undefined) this.#onSettled([settled])
		if (status !== undefined) {
			Object.assign(this, status)
			this.onchange?.()
		}
	}

	/** @param {string[]} ids */
	#onSettled(ids) {
		for (const id of ids) {
			this.#settling.get(id)?.resolve()
			this.#settling.delete(id)
		}
	}

	/** The log has entries that did not come by this link. @param {import("./entry.js").Entry[]} entries */
	onStored(entries) {
		if (!this.#leads) return
		if (!this.isLevel || this.#pushes === null || entries.length > PUSHED_AT_ONCE) return this.want()
		for (const { key, value } of entries) this.#pushes.send(insertEvent(key, value)).catch(() => this.want())
	}

	want() {
		this.#isWanted = true
		this.#bell.ring()
	}

	/** The hub gives reason for a session. */
	#provoke() {
		this.#provoked ??= setTimeout(() => {
			this.#provoked = undefined
			this.#provokedAt = Date.now()
			this.want()
		}, this.#provokedAt + PROVOKED_MS - Date.now())
	}

	/** Have it seen here and in the other tabs. @param {Partial<Status>} change */
	#show(change) {
		const { isConnected, error, refused } = Object.assign(this, change)
		this.#tell({ status: { isConnected, error, refused } })
		if (this.onchange !== null) return this.onchange()
		// Nobody looks at the link.
		if (error !== null) this.log.warn(`${this.url}: ${error}`)
		const last = refused[refused.length - 1]
		if (last) this.log.warn(`${this.url} does not take entries: ${last.rule}: ${last.reason}`)
	}

	/** One connection, from its beginning to its end. */
	async #connect() {
		const place = (this.#place = new Place(this.target, this.log.topic, (channel) => this.#decline(channel)))
		try {
			await place.enter()
			this.#hasDoubted = false
			this.#isWanted = true
			this.#show({ isConnected: true, error: null })
			const parts = [this.#push(place), this.#sync(place), this.#hearRefusals(place)]
			void this.#present(place)
			await Promise.race([place.over, ...parts])
		} finally {
			this.#pushes = null
			place.leave()
			this.#bell.ring()
		}
	}

	/** Leave to us a session that the hub begins. @param {Channel} channel */
	async #decline(channel) {
		await channel.send(refuse(CROSSING))
		this.#provoke()
	}

	// Pushes

	/** @param {Place} place */
	async #push(place) {
		const channel = (this.#pushes = Channel.open(place, `/canvas/v1/${this.log.topic}/push`))
		for (let bytes = await channel.next(); bytes !== null; bytes = await channel.next()) {
			/** @type {Uint8Array[]} */
			const values = []
			/** @type {Uint8Array[]} */
			let heads = []
			for (let next = /** @type {Uint8Array | null} */ (bytes); next !== null; next = channel.take()) {
				const event = decodeEvent(next)
				if (event !== null && "value" in event) values.push(event.value)
				else if (event !== null) heads = event.heads
			}
			if (values.length) await this.#onPushed(values)
			if (heads.length) await this.#onHeads(heads)
		}
		throw new ClosedError("the hub closed the push stream")
	}

	/** @param {Uint8Array[]} values */
	async #onPushed(values) {
		const verdicts = await this.log.take(values)
		if (verdicts.some(({ outcome }) => outcome === "reject")) throw new ProtocolError("the hub pushed what is no entry of this log")
		if (verdicts.some(({ rule }) => rule === "parents")) this.#provoke()
	}

	/** @param {Uint8Array[]} heads */
	async #onHeads(heads) {
		const known = await this.log.store.known(heads)
		this.#lacking = heads.filter((key) => !known.has(toHex(key)))
		if (this.#lacking.length) this.#provoke()
	}

	// Sessions

	/** @param {Place} place */
	async #sync(place) {
		let pause = RETRY_FIRST_S
		while (!place.isEnded) {
			if (!this.#isWanted) {
				await this.#bell.heard()
				continue
			}
			this.#isWanted = false
			const settling = [...this.#settling.keys()]
			try {
				await this.#reconcile(place)
				this.#onSettled(settling)
				if (place.isEnded) break // the connection has ended in the meantime, and its error stays to be read
				this.isLevel = true
				pause = RETRY_FIRST_S
				if (this.error !== null) this.#show({ error: null })
			} catch (error) {
				const isTheirs = error instanceof NotSpoken || error instanceof ProtocolError || error instanceof DecodeError
				if (place.isEnded || isTheirs || !(error instanceof GossipLogError)) throw error
				this.#isWanted = true
				if (error instanceof Unreconciled && error.isLarge && this.#doubt()) continue
				if (this.error !== inWords(error)) this.#show({ error: inWords(error) })
				await this.#bell.heard(pause)
				pause = Math.min(2 * pause, RETRY_MOST_S)
			}
		}
		throw new ClosedError("the connection ended")
	}

	/** @param {Place} place */
	async #reconcile(place) {
		await this.#catchUp()
		const wasWhole = this.#after !== null
		// What it tells of from now on, this session need not bring.
		const lacking = this.#lacking
		this.#lacking = []
		const session = new Reconciliation(this.log, this.#sketch, this.#aside, this.#after)
		try {
			await session.run(place)
		} finally {
			this.#after = session.after
		}
		for (const key of session.refused) putAside(this.#aside, key)
		if (session.refused.length) this.#addRefused({ rule: "session", reason: "the hub left them out", ids: session.refused.map(idOfKey) })
		// What it told of and did not send, without a reason that we know, is asked for with everything else, once.
		const isUnexplained = !session.hasGap && (await this.log.store.known(lacking)).size < lacking.length
		if (wasWhole || (isUnexplained && this.#doubt())) this.#isWanted = true
	}

	/** Have everything sent by the next session, once a connection. */
	#doubt() {
		if (this.#hasDoubted) return false
		this.#hasDoubted = true
		this.#after = FIRST_KEY
		return true
	}

	/** Have the sketch hold all that the log holds. */
	async #catchUp() {
		for (;;) {
			const keys = await this.log.store.keysSince(this.#sketchSeq, 2_000)
			if (!keys.length) return
			for (const key of keys) this.#sketch.add(key)
			this.#sketchSeq += keys.length
		}
	}

	// Refusals

	/** Hear what the hub does not take. One that says so ends that to give up the log; any other one closes the connection. @param {Place} place */
	async #hearRefusals(place) {
		const channel = place.refusals
		try {
			await channel.agree()
		} catch (error) {
			if (!(error instanceof NotSpoken)) throw error
			channel.stream.reset()
			await place.over
		}
		for (let bytes = await channel.next(); bytes !== null; bytes = await channel.next()) {
			const { rule, reason, ids } = JSON.parse(new TextDecoder().decode(bytes))
			const isWhole = [rule, reason].every((text) => typeof text === "string") && Array.isArray(ids) && ids.length <= REFUSED_IDS_MAX
			if (!isWhole || !ids.every((id) => /^[0-9a-v]{32}$/.test(id))) throw new ProtocolError("a refusal of another form")
			this.#addRefused({ rule: rule.slice(0, REFUSAL_CHARS_MAX), reason: reason.slice(0, REFUSAL_CHARS_MAX), ids })
		}
		throw new ClosedError("the hub gave up the log")
	}

	// Presence

	/** Speak presence as soon as it is in use, if the hub does. @param {Place} place */
	async #present(place) {
		const { presence, topic } = this.log
		await presence.inUse
		if (place.isEnded) return
		const channel = Channel.open(place, `/gossiplog/presence/1/${topic}`, { most: PRESENCE_BYTES_MAX })
		let turn = Promise.resolve()
		const hub = { send: (/** @type {Uint8Array[]} */ bodies) => void (turn = turn.then(() => channel.send(concat(bodies.map((body) => frame([body]))))).catch(() => {})) }
		try {
			await channel.agree()
			presence.enter(hub)
			let [room, at] = [PRESENCE_BURST, performance.now()]
			for (let bytes = await channel.next(); bytes !== null; bytes = await channel.next()) {
				const now = performance.now()
				room = Math.min(PRESENCE_BURST, room + ((now - at) * PRESENCE_PER_S) / 1000) - 1
				at = now
				if (room < -PRESENCE_OVER_MAX) throw new ProtocolError("far more presence than anybody may state")
				if (room >= 0) await presence.take(bytes, hub)
			}
		} catch {
			channel.stream.reset()
		} finally {
			presence.exit(hub)
		}
	}

	/** @param {Refused} refused */
	#addRefused(refused) {
		this.#show({ refused: [...this.refused, refused].slice(-REFUSED_MAX) })
	}
}

/** Browsers send no headers with a WebSocket, so the token stands in the URL. @param {string} url @param {string | undefined} token */
function withToken(url, token) {
	const target = URL.canParse(url) ? new URL(url) : null
	if (target === null || !["ws:", "wss:"].includes(target.protocol)) throw new GossipLogError("no URL of a hub: ws://HOST:PORT, or wss://… with TLS")
	if (token !== undefined) target.searchParams.set("token", token)
	return target.href
}
