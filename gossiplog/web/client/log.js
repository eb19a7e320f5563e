// A log: the entries that a page holds, what it appends, and its links to hubs.

import { compare } from "./bytes.js"
import { Entry, checkTopic, idOfKey, keyOfId, signEntry, validate } from "./entry.js"
import { ClosedError, GossipLogError } from "./errors.js"
import { HubLink } from "./hub_link.js"
import { IndexedDbStore } from "./indexeddb_store.js"
import { MemoryStore } from "./memory_store.js"
import { Presence } from "./presence.js"
import { OneTab, Tabs } from "./tabs.js"

/** @typedef {import("./client.js").Log} TypedLog The public part, in client.d.ts. */
/** @typedef {import("./entry.js").Verdict} Verdict */
/** @typedef {{ did: string, codec?: string, sign: (data: Uint8Array) => Promise<Uint8Array> | Uint8Array }} AnySigner */
/** @typedef {{ after?: string, before?: string, reverse?: boolean, limit?: number }} Range */

/** Heads that one append can have as parents; the next append takes further ones. */
const APPENDED_PARENTS_MAX = 256
const READ_AT_ONCE = 256
const WARNINGS_MAX = 32

/**
 * Open a log.
 * @param {string} topic Its name.
 * @param {{ signer?: AnySigner, storage?: "indexeddb" | "memory", name?: string, apply?: import("./insertion.js").Apply }} [options]
 */
export async function open(topic, { signer, storage = "indexeddb", name = topic, apply } = {}) {
	checkTopic(topic)
	if (globalThis.crypto?.subtle === undefined) throw new GossipLogError("no WebCrypto: pages need https://, or localhost")
	if (storage !== "memory" && storage !== "indexeddb") throw new GossipLogError(`storage ${JSON.stringify(storage)}, expected "indexeddb" or "memory"`)
	const store = storage === "memory" ? new MemoryStore() : await IndexedDbStore.open(`gossiplog/${name}`)
	const [first] = await store.range(null, null, false, 1)
	if (first && Entry.stored(first.value).topic !== topic) {
		store.close()
		throw new GossipLogError(`the store ${JSON.stringify(name)} has a log of another topic`)
	}
	return new Log(topic, signer, store, await store.lastSeq(), apply, storage === "memory" ? null : `gossiplog/${name}`)
}

/** @implements {TypedLog} */
export class Log {
	#store
	#apply
	#tabs
	/** @type {Set<(entries: Entry[]) => void>} */
	#listeners = new Set()
	/** @type {Set<HubLink>} */
	#links = new Set()
	/** The insertion number of the last entry that listeners and links were told of. */
	#told
	/** Calls under way, for which `close` waits. @type {Set<Promise<unknown>>} */
	#running = new Set()
	#isClosed = false
	/** @type {Set<string>} */
	#warned = new Set()
	/** The other tabs, as a peer of presence. */
	#others = { send: (/** @type {Uint8Array[]} */ presence) => void (presence.length && this.#tabs.tell({ presence })) }

	/** @param {string} topic @param {AnySigner | undefined} signer @param {MemoryStore | IndexedDbStore} store @param {number} seq @param {import("./insertion.js").Apply | undefined} apply @param {string | null} shared The store's name, which other tabs share; null in memory. */
	constructor(topic, signer, store, seq, apply, shared) {
		this.topic = topic
		this.signer = signer
		this.#store = store
		this.#told = seq
		this.#apply = apply
		this.#tabs = shared === null ? new OneTab() : new Tabs(shared, (told) => this.#onTold(told))
		/** Who has the log open now, and what they state. */
		this.presence = new Presence(topic, signer)
		if (shared !== null) this.presence.inUse.then(() => this.#isClosed || (this.#tabs.tell({ presence: [] }), this.presence.enter(this.#others)))
	}

	/** Sign a payload and append it on top of all heads. It is stored when this returns. @param {any} payload @returns {Promise<Entry>} */
	append(payload) {
		return this.#run(() =>
			this.#tabs.alone("append", async () => {
				if (this.signer === undefined) throw new GossipLogError("the log was opened without a signer")
				const parents = (await this.#store.heads()).slice(0, APPENDED_PARENTS_MAX)
				const entry = await signEntry(this.signer, this.topic, parents, payload)
				this.#onInserted(await this.#store.insert([entry], this.#apply, true), null)
				return entry
			}),
		)
	}

	/** @param {string} id @returns {Promise<Entry | undefined>} */
	async get(id) {
		this.#check()
		const [value] = await this.#store.values([keyOfId(id)])
		return value && Entry.stored(value)
	}

	/** The entries in the order of their ids, which is causal. @param {Range} [range] */
	async *iterate({ after, before, reverse = false, limit = Infinity } = {}) {
		/** @type {(Uint8Array | null)[]} */
		let [from, to] = [after, before].map((id) => (id === undefined ? null : keyOfId(id)))
		for (let left = limit; left > 0; ) {
			this.#check()
			const rows = await this.#store.range(from, to, reverse, Math.min(READ_AT_ONCE, left))
			for (const { value } of rows) yield Entry.stored(value)
			if (rows.length < Math.min(READ_AT_ONCE, left)) return
			left -= rows.length
			if (reverse) to = rows[rows.length - 1].key
			else from = rows[rows.length - 1].key
		}
	}

	/** The ids of the entries that are nobody's parents. */
	async heads() {
		this.#check()
		return (await this.#store.heads()).map(idOfKey)
	}

	async count() {
		this.#check()
		return this.#store.lastSeq()
	}

	/** Call a listener with all entries that are stored from now on, by any author, parents before children. Returns a function that ends it. @param {(entries: Entry[]) => void} listener */
	subscribe(listener) {
		this.#check()
		this.#listeners.add(listener)
		return () => void this.#listeners.delete(listener)
	}

	/** Reads what `apply` stored. */
	get state() {
		const store = this.#store
		return {
			/** @param {string} key @returns {Promise<any>} */
			get: (key) => store.getState(key),
			/** Names and values, sorted by name. @param {string} [prefix] */
			list: (prefix = "") => store.listState(prefix),
			/** The entries at which `apply` raised. */
			aside: () => store.aside(),
		}
	}

	/** Keep the log connected to a hub, until the link is closed. Of several tabs one has the connection. @param {string} url `ws://…` or `wss://…`. @param {{ token?: string }} [options] */
	connect(url, { token } = {}) {
		this.#check()
		const { topic, presence } = this
		const take = (/** @type {Uint8Array[]} */ values) => this.#run(() => this.#take(values, link))
		/** @type {HubLink} */
		const link = new HubLink({ topic, presence, store: this.#store, tabs: this.#tabs, take, warn: (text) => this.#warn(text) }, url, token)
		this.#links.add(link)
		link.run().finally(() => this.#links.delete(link))
		return link
	}

	/** Close the log and its links, after calls under way are done. */
	async close() {
		if (this.#isClosed) return
		this.#isClosed = true
		this.presence.close()
		for (const link of this.#links) link.close()
		await Promise.allSettled(this.#running)
		this.#tabs.close()
		this.#store.close()
	}

	#check() {
		if (this.#isClosed) throw new ClosedError("the log is closed")
	}

	/** @template T @param {() => Promise<T>} act @returns {Promise<T>} */
	async #run(act) {
		this.#check()
		const done = act()
		this.#running.add(done)
		try {
			return await done
		} finally {
			this.#running.delete(done)
		}
	}

	/** Take a message of another tab. @param {import("./tabs.js").Told} told */
	#onTold(told) {
		if (this.#isClosed) return
		if (told.presence !== undefined) void this.#takePresence(told.presence)
		if (told.stored !== undefined) this.#run(() => this.#catchUp()).catch(reportError)
		for (const link of this.#links) if (link.url === told.url) link.onTold(told)
	}

	/** Take another tab's presence; an empty list is from a tab that begins to use it and wants ours. @param {Uint8Array[]} bodies */
	async #takePresence(bodies) {
		this.presence.use()
		if (!bodies.length) return this.presence.tellAll(this.#others)
		for (const body of bodies) await this.presence.take(body, this.#others).catch(reportError)
	}

	/** Validate what a hub sent, and insert the valid entries. @param {Uint8Array[]} values @param {HubLink} from @returns {Promise<Verdict[]>} */
	async #take(values, from) {
		/** @type {Verdict[]} */
		const verdicts = await Promise.all(values.map((value) => validate(value, this.topic)))
		const entries = verdicts.flatMap(({ outcome, entry }) => (outcome === "accept" && entry !== undefined ? [entry] : []))
		entries.sort((one, other) => compare(one.key, other.key))
		const insertion = await this.#store.insert(entries, this.#apply, false)
		for (const verdict of verdicts) {
			if (verdict.entry === undefined || !insertion.orphans.has(verdict.entry)) continue
			Object.assign(verdict, { outcome: "ignore", rule: "parents", reason: "its parents are not here" })
		}
		for (const { outcome, rule, reason } of verdicts) if (outcome === "ignore" && rule !== "parents") this.#warn(`entries are left out, with all that is built upon them: ${rule}: ${reason}`)
		this.#onInserted(insertion, from)
		return verdicts
	}

	/** Tell listeners and tabs of entries that this tab stored, and first of those that other tabs stored before. @param {import("./insertion.js").Insertion} insertion @param {HubLink | null} from */
	#onInserted({ stored, aside }, from) {
		for (const { reason } of aside) this.#warn(`apply raised, so entries are set aside: ${reason}`)
		if (!stored.length) return
		const last = stored[stored.length - 1].seq
		this.#tabs.tell({ stored: last })
		if (stored[0].seq === this.#told + 1) this.#tell(last, stored.map(({ entry }) => entry), from)
		else if (last > this.#told) this.#run(() => this.#catchUp()).catch(reportError)
	}

	/** Write a warning to the browser's console: each text once, and at most `WARNINGS_MAX` texts. @param {string} text */
	#warn(text) {
		if (this.#warned.size >= WARNINGS_MAX || this.#warned.has(text)) return
		this.#warned.add(text)
		console.warn(`gossiplog, ${this.topic}: ${text}`)
	}

	/** Tell listeners and links of entries that other tabs stored. */
	async #catchUp() {
		for (;;) {
			const rows = await this.#store.since(this.#told, READ_AT_ONCE)
			const news = rows.filter(({ seq }) => seq > this.#told)
			if (!news.length) return
			this.#tell(news[news.length - 1].seq, news.map(({ value }) => Entry.stored(value)), null)
		}
	}

	/** @param {number} seq Of the last one. @param {Entry[]} entries @param {HubLink | null} from */
	#tell(seq, entries, from) {
		this.#told = seq
		for (const link of this.#links) if (link !== from) link.onStored(entries)
		for (const listener of this.#listeners) {
			try {
				listener(entries)
			} catch (error) {
				reportError(error)
			}
		}
	}
}
