// A log: the entries that a page holds, what it appends, and the hubs that it is connected to.

import { compare } from "./bytes.js"
import { Entry, checkTopic, idOfKey, keyOfId, signEntry, validate } from "./entry.js"
import { ClosedError, GossipLogError } from "./errors.js"
import { HubLink } from "./hub_link.js"
import { MemoryStore } from "./memory_store.js"

/** @typedef {import("./insertion.js").Stored} Stored */
/** @typedef {import("./reconcile.js").Verdict} Verdict */
/** @typedef {{ did: string, codec?: string, sign: (data: Uint8Array) => Promise<Uint8Array> | Uint8Array }} AnySigner */
/** @typedef {{ after?: string, before?: string, reverse?: boolean, limit?: number }} Range */

/** Heads that an append takes as parents at most; the next one takes the rest. */
const APPENDED_PARENTS_MAX = 256
const READ_AT_ONCE = 256

/**
 * Open a log.
 * @param {string} topic Its name.
 * @param {{ signer?: AnySigner, storage?: "indexeddb" | "memory", apply?: import("./insertion.js").Apply }} [options]
 */
export async function open(topic, { signer, storage = "memory", apply } = {}) {
	checkTopic(topic)
	if (storage !== "memory") throw new GossipLogError(`storage ${JSON.stringify(storage)}, expected "memory"`)
	return new Log(topic, signer, new MemoryStore(), apply)
}

export class Log {
	#store
	#apply
	/** @type {Set<(entries: Entry[]) => void>} */
	#listeners = new Set()
	/** @type {Set<HubLink>} */
	#links = new Set()
	/** Appends and the telling run one after the other. @type {Promise<unknown>} */
	#turn = Promise.resolve()
	#isClosed = false

	/** @param {string} topic @param {AnySigner | undefined} signer @param {MemoryStore} store @param {import("./insertion.js").Apply | undefined} apply */
	constructor(topic, signer, store, apply) {
		this.topic = topic
		this.signer = signer
		this.#store = store
		this.#apply = apply
	}

	/** Sign a payload, and put it on top of everything the log holds. It is stored when this returns. @param {any} payload @returns {Promise<Entry>} */
	append(payload) {
		return this.#inTurn(async () => {
			if (this.signer === undefined) throw new GossipLogError("the log was opened without a signer")
			const parents = (await this.#store.heads()).slice(0, APPENDED_PARENTS_MAX)
			const entry = await signEntry(this.signer, this.topic, parents, payload)
			const { stored } = await this.#store.insert([entry], this.#apply)
			this.#tell(stored, null)
			return entry
		})
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
		return this.#store.count()
	}

	/** Be told of all that is stored from now on, whoever made it; a child never comes before its parents. Returns what ends it. @param {(entries: Entry[]) => void} listener */
	subscribe(listener) {
		this.#check()
		this.#listeners.add(listener)
		return () => void this.#listeners.delete(listener)
	}

	/** What `apply` has made of the entries. */
	get state() {
		const store = this.#store
		return {
			/** @param {string} key @returns {Promise<any>} */
			get: (key) => store.getState(key),
			/** Names and values, by name. @param {string} [prefix] */
			list: (prefix = "") => store.listState(prefix),
			/** The entries at which `apply` raised. */
			aside: () => store.aside(),
		}
	}

	/** Keep the log connected to a hub, until the link is closed. @param {string} url `ws://…` or `wss://…`. @param {{ token?: string }} [options] */
	connect(url, { token } = {}) {
		this.#check()
		/** @type {HubLink} */
		const link = new HubLink(this.#viewFor(() => link), url, token)
		this.#links.add(link)
		link.run().finally(() => this.#links.delete(link))
		return link
	}

	/** Close it, and its links. */
	async close() {
		if (this.#isClosed) return
		this.#isClosed = true
		for (const link of this.#links) link.close()
		await this.#turn
		this.#store.close()
	}

	#check() {
		if (this.#isClosed) throw new ClosedError("the log is closed")
	}

	/** @template T @param {() => Promise<T>} act @returns {Promise<T>} */
	#inTurn(act) {
		this.#check()
		const done = this.#turn.then(act)
		this.#turn = done.catch(() => {})
		return done
	}

	/** What a link may do with the log. @param {() => HubLink} link */
	#viewFor(link) {
		const store = this.#store
		return {
			topic: this.topic,
			values: store.values.bind(store),
			known: store.known.bind(store),
			since: store.since.bind(store),
			/** @param {Uint8Array | null} after @param {number} count */
			page: (after, count) => store.range(after, null, false, count),
			/** @param {Uint8Array[]} values */
			take: (values) => this.#take(values, link()),
		}
	}

	/** Validate what a hub sent, and insert what is good. @param {Uint8Array[]} values @param {HubLink} from @returns {Promise<Verdict[]>} */
	async #take(values, from) {
		/** @type {Verdict[]} */
		const verdicts = await Promise.all(values.map((value) => validate(value, this.topic)))
		const good = verdicts.filter(({ outcome }) => outcome === "accept")
		const entries = good.map(({ entry }) => /** @type {Entry} */ (entry))
		entries.sort((one, other) => compare(one.key, other.key))
		const { fates, stored } = await this.#store.insert(entries, this.#apply)
		const fateOf = new Map(entries.map((entry, index) => [entry, fates[index]]))
		for (const verdict of good) {
			const fate = fateOf.get(/** @type {Entry} */ (verdict.entry))
			verdict.isNew = fate === "new"
			if (fate === "orphan") Object.assign(verdict, { outcome: "ignore", rule: "parents", reason: "its parents are not here" })
		}
		this.#tell(stored, from)
		return verdicts
	}

	/** Tell of what was stored. @param {Stored[]} stored @param {HubLink | null} from */
	#tell(stored, from) {
		if (!stored.length) return
		const entries = stored.map(({ entry }) => entry)
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
