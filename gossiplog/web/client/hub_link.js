// Keeps a log connected to a hub: takes a place on a connection, again whenever it is lost, pushes both ways, and runs the sessions in which
// each side gets what it lacks. A session both gives and takes, so we begin all of them and refuse those that the hub begins.
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

/** @typedef {import("./client.js").HubLink} TypedHubLink The public part, in client.d.ts. */
/** @typedef {import("./memory_store.js").MemoryStore | import("./indexeddb_store.js").IndexedDbStore} Store */
/** @typedef {import("./tabs.js").Tabs | import("./tabs.js").OneTab} AnyTabs */
/** The part of a log that its links use. @typedef {{ topic: string, presence: import("./presence.js").Presence, store: Store, tabs: AnyTabs, take: (values: Uint8Array[]) => Promise<import("./entry.js").Verdict[]>, warn: (text: string) => void }} LogView */
/** Entries that the hub refuses. @typedef {{ rule: string, reason: string, ids: string[] }} Refused */
/** @typedef {{ isConnected: boolean, error: string | null, refused: Refused[] }} Status */

const RETRY_FIRST_S = 0.5
const RETRY_MOST_S = 60
/** After a connection that lasted so long, or completed a session, the next attempt waits `RETRY_FIRST_S` again. */
const STABLE_S = 10
/** A hub can provoke at most ten sessions a second. */
const PROVOKED_MS = 100
const PUSHED_AT_ONCE = 256
const REFUSED_MAX = 32
const REFUSED_IDS_MAX = 64
const REFUSAL_CHARS_MAX = 512
const PRESENCE_BYTES_MAX = 1_149
const PRESENCE_PER_S = 2_000
const PRESENCE_BURST = 4_000
/** Frames over that limit, which are dropped, before the stream is reset. */
const PRESENCE_OVER_MAX = 1_000
/** Tells the hub that the session which we begin replaces its own. */
const CROSSING = "a session that the other side began is running"
/** Sorts before all keys except those of snapshots, which this client does not read. */
const FIRST_KEY = new Uint8Array(20)

/** @implements {TypedHubLink} */
export class HubLink {
	/** Whether it is connected now. */
	isConnected = false
	/** Why it is not connected, or why the last session failed; null while all is well. @type {string | null} */
	error = null
	/** Entries that the hub refused, the latest last. @type {Refused[]} */
	refused = []
	/** Called when one of these has changed. @type {(() => void) | null} */
	onchange = null
	/** The last session gave the hub all that we had, so later entries can be pushed. */
	isLevel = false
	#closing = new AbortController()
	/** Rung to end all pauses. */
	#bell = new Bell()
	/** Whether this tab, of those with the log, is the one that connects. */
	#leads = false
	#sketch = new Sketch()
	#sketchSeq = 0
	/** Cleared when the hub may take what it refused: by a new connection, and when it asks for entries itself. @type {Map<string, number>} */
	#aside = new Map()
	/** Set if the next session streams all entries after this key: everything, or the rest of a stream that was cut short. @type {Uint8Array | null} */
	#after = null
	/** Everything was already asked for once on this connection. */
	#hasDoubted = false
	/** A session is due. */
	#isWanted = true
	/** Makes a session due soon, because the hub announced something; and when it last did. @type {ReturnType<typeof setTimeout> | undefined} */
	#provoked
	#provokedAt = 0
	/** Heads that the hub announced and we lack. @type {Uint8Array[]} */
	#lacking = []
	/** The promises of `settled`, by an id that all tabs know. @type {Map<string, { resolve: () => void, reject: (error: Error) => void }>} */
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

	/** Wait until the hub has everything that the log has now, and the log what the hub had when the session began. Waits for a connection, if need be for ever. @returns {Promise<void>} */
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

	/** Once no other tab leads, connect and reconnect until the link is closed. */
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
			const began = performance.now()
			this.isLevel = false
			const error = await this.#connect().then(() => null, inWords)
			this.#show({ isConnected: false, error })
			if (this.isLevel || performance.now() - began > 1000 * STABLE_S) pause = RETRY_FIRST_S
			if (!this.isClosed) await this.#bell.heard(pause * (1 + Math.random() / 4))
			pause = Math.min(2 * pause, RETRY_MOST_S)
		}
	}

	// The other tabs

	/** @param {import("./tabs.js").Told} told */
	#tell(told) {
		this.log.tabs.tell({ url: this.url, ...told })
	}

	/** Take another tab's message about this hub. @param {import("./tabs.js").Told} told */
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

	/** Give the hub entries that did not come from it. @param {import("./entry.js").Entry[]} entries */
	onStored(entries) {
		if (!this.#leads) return
		if (!this.isLevel || this.#pushes === null || entries.length > PUSHED_AT_ONCE) return this.want()
		for (const { key, value } of entries) this.#pushes.send(insertEvent(key, value)).catch(() => this.want())
	}

	want() {
		this.#isWanted = true
		this.#bell.ring()
	}

	/** Make a session due, at most every `PROVOKED_MS`. */
	#provoke() {
		this.#provoked ??= setTimeout(() => {
			this.#provoked = undefined
			this.#provokedAt = performance.now()
			this.want()
		}, this.#provokedAt + PROVOKED_MS - performance.now())
	}

	/** Show a change of state here and in the other tabs. @param {Partial<Status>} change */
	#show(change) {
		const { isConnected, error, refused } = Object.assign(this, change)
		this.#tell({ status: { isConnected, error, refused } })
		if (this.onchange !== null) return this.onchange()
		// The page does not watch the link.
		if (error !== null) this.log.warn(`${this.url}: ${error}`)
		const last = refused[refused.length - 1]
		if (last) this.log.warn(`${this.url} does not take entries: ${last.rule}: ${last.reason}`)
	}

	/** Connect, and return when the place on the connection is lost. */
	async #connect() {
		const place = (this.#place = new Place(this.target, this.log.topic, (channel) => this.#decline(channel)))
		try {
			await place.enter()
			this.#aside.clear()
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

	/** Refuse a session that the hub begins, and begin one. @param {Channel} channel */
	async #decline(channel) {
		await channel.send(refuse(CROSSING))
		this.#aside.clear()
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
		// Heads announced from now on may be missing from this session.
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
		// If it announced heads that the session brought neither, nor a reason for their absence, ask for everything, once.
		const isUnexplained = !session.hasGap && (await this.log.store.known(lacking)).size < lacking.length
		if (wasWhole || (isUnexplained && this.#doubt())) this.#isWanted = true
	}

	/** Make the next session stream everything; false if this connection already did. */
	#doubt() {
		if (this.#hasDoubted) return false
		this.#hasDoubted = true
		this.#after = FIRST_KEY
		return true
	}

	/** Add to the sketch what the log holds. */
	async #catchUp() {
		for (;;) {
			const keys = await this.log.store.keysSince(this.#sketchSeq, 2_000)
			if (!keys.length) return
			for (const key of keys) this.#sketch.add(key)
			this.#sketchSeq += keys.length
		}
	}

	// Refusals

	/** Read refusals. A hub that sends them ends their stream to give up the log; any other closes the connection. @param {Place} place */
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

	/** Exchange presence once the page uses it, if the hub speaks it. @param {Place} place */
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

/** Put the token into the URL, because browsers send no headers of ours with a WebSocket. @param {string} url @param {string | undefined} token */
function withToken(url, token) {
	const target = URL.canParse(url) ? new URL(url) : null
	if (target === null || target.hash || !["ws:", "wss:"].includes(target.protocol)) throw new GossipLogError("no URL of a hub: ws://HOST:PORT, or wss://… with TLS")
	if (token !== undefined) target.searchParams.set("token", token)
	return target.href
}
