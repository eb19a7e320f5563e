// A store in IndexedDB, which all tabs of a page share. A transaction has an entry, the heads and what the application makes of it.

import { compare, toHex } from "./bytes.js"
import { StorageError, inWords } from "./errors.js"
import { insert } from "./insertion.js"

/** @typedef {import("./insertion.js").Row} Row */

const VERSION = 1
const STORES = ["entries", "heads", "state", "aside", "meta"]

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
export function answered(request) {
	return new Promise((resolve, reject) => {
		request.onsuccess = () => resolve(request.result)
		request.onerror = () => reject(storageError(request.error))
	})
}

/** @param {unknown} error */
function storageError(error) {
	if (error instanceof StorageError) return error
	const isFull = error instanceof Error && error.name === "QuotaExceededError"
	return new StorageError(isFull ? "the browser's storage is full" : `the browser's storage: ${inWords(error ?? "the transaction was aborted")}`, { cause: error })
}

/** Open a database, made by `create` if there is none. @param {string} name @param {number} version @param {(database: IDBDatabase) => void} create @returns {Promise<IDBDatabase>} */
export async function openDatabase(name, version, create) {
	try {
		const request = indexedDB.open(name, version)
		request.onupgradeneeded = () => create(request.result)
		return await answered(request)
	} catch (error) {
		// Some browsers have none in private windows.
		throw storageError(error)
	}
}

/** The store; or, of `insert`, one transaction of it. */
export class IndexedDbStore {
	/** @param {IDBDatabase} database @param {IDBTransaction} [transaction] Of all that is asked; without one, each question has its own. */
	constructor(database, transaction) {
		this.database = database
		this.transaction = transaction
		// Another tab deletes it, or has a newer version of this module.
		database.onversionchange = () => database.close()
	}

	/** @param {string} name */
	static async open(name) {
		const database = await openDatabase(name, VERSION, (database) => {
			database.createObjectStore("entries", { keyPath: "key" }).createIndex("seq", "seq", { unique: true })
			for (const store of ["heads", "state", "meta"]) database.createObjectStore(store)
			database.createObjectStore("aside", { autoIncrement: true })
		})
		return new IndexedDbStore(database)
	}

	/** @param {import("./entry.js").Entry[]} entries @param {import("./insertion.js").Apply | undefined} apply @param {boolean} isOurs On the disk when this returns; what a hub has need not be. */
	async insert(entries, apply, isOurs) {
		const transaction = this.#begin("readwrite", { durability: isOurs ? "strict" : "relaxed" })
		const ended = new Promise((resolve, reject) => {
			transaction.oncomplete = resolve
			transaction.onabort = () => reject(storageError(transaction.error))
		})
		ended.catch(() => {})
		try {
			const insertion = await insert(new IndexedDbStore(this.database, transaction), entries, apply)
			await ended
			return insertion
		} catch (error) {
			try {
				transaction.abort()
			} catch {
				// It is over, and has written nothing.
			}
			throw storageError(error)
		}
	}

	/** @param {IDBTransactionMode} mode @param {IDBTransactionOptions} [options] */
	#begin(mode, options) {
		try {
			return this.database.transaction(STORES, mode, options)
		} catch (error) {
			throw storageError(error)
		}
	}

	/** A part of it, in the transaction. @param {string} name */
	#in(name) {
		return (this.transaction ?? this.#begin("readonly")).objectStore(name)
	}

	/** @returns {Promise<number>} */
	async lastSeq() {
		return (await answered(this.#in("meta").get("seq"))) ?? 0
	}
	async heads() {
		return (await answered(this.#in("heads").getAllKeys())).map(bytesOf)
	}

	/** By one request, if they are many and close to each other, as in a sync. @param {Uint8Array[]} keys */
	async known(keys) {
		const entries = this.#in("entries")
		if (keys.length > 8) {
			const sorted = [...keys].sort(compare)
			const range = IDBKeyRange.bound(idbKey(sorted[0]), idbKey(sorted[sorted.length - 1]))
			if ((await answered(entries.count(range))) <= 4 * keys.length) {
				const found = new Set((await answered(entries.getAllKeys(range))).map((key) => toHex(bytesOf(key))))
				return new Set(keys.map(toHex).filter((name) => found.has(name)))
			}
		}
		const counts = await Promise.all(keys.map((key) => answered(entries.count(idbKey(key)))))
		return new Set(keys.filter((_, index) => counts[index]).map(toHex))
	}

	/** @param {Uint8Array[]} keys @returns {Promise<(Uint8Array | undefined)[]>} */
	async values(keys) {
		const entries = this.#in("entries")
		return (await Promise.all(keys.map((key) => answered(entries.get(idbKey(key)))))).map((row) => row?.value)
	}
	/** @param {number} seq @param {number} limit @returns {Promise<Row[]>} */
	async since(seq, limit) {
		return answered(this.#in("entries").index("seq").getAll(IDBKeyRange.lowerBound(seq, true), limit))
	}
	/** @param {number} seq @param {number} limit @returns {Promise<Uint8Array[]>} */
	async keysSince(seq, limit) {
		return (await answered(this.#in("entries").index("seq").getAllKeys(IDBKeyRange.lowerBound(seq, true), limit))).map(bytesOf)
	}

	/** @param {Uint8Array | null} after @param {Uint8Array | null} before @param {boolean} reverse @param {number} limit @returns {Promise<Row[]>} */
	async range(after, before, reverse, limit) {
		const range = rangeOf(after, before)
		if (range === null) return []
		const entries = this.#in("entries")
		if (!reverse) return answered(entries.getAll(range, limit))
		/** @type {Row[]} */
		const rows = []
		const request = entries.openCursor(range, "prev")
		for (let cursor = await answered(request); cursor !== null && rows.length < limit; cursor = await answered(request)) {
			rows.push(cursor.value)
			cursor.continue()
		}
		return rows
	}

	/** @param {string} key */
	async getState(key) {
		return answered(this.#in("state").get(key))
	}
	/** @param {string} prefix @returns {Promise<[string, any][]>} */
	async listState(prefix) {
		const range = prefix ? IDBKeyRange.bound(prefix, prefix + "\uffff") : null
		const state = this.#in("state")
		const [keys, values] = await Promise.all([answered(state.getAllKeys(range)), answered(state.getAll(range))])
		return keys.map((key, index) => [String(key), values[index]])
	}
	/** @returns {Promise<{ id: string, reason: string }[]>} */
	async aside() {
		return answered(this.#in("aside").getAll())
	}

	/** @param {import("./insertion.js").Insertion} insertion */
	write({ stored, headsAdded, headsRemoved, state, aside }) {
		for (const { seq, entry } of stored) this.#in("entries").add({ seq, key: entry.key, value: entry.value })
		for (const key of headsRemoved) this.#in("heads").delete(idbKey(key))
		for (const key of headsAdded) this.#in("heads").put(true, idbKey(key))
		for (const [key, value] of state) value === undefined ? this.#in("state").delete(key) : this.#in("state").put(value, key)
		for (const one of aside) this.#in("aside").add(one)
		this.#in("meta").put(stored[stored.length - 1].seq, "seq")
	}

	close() {
		this.database.close()
	}
}

/** @param {Uint8Array} key @returns {IDBValidKey} */
const idbKey = (key) => /** @type {Uint8Array<ArrayBuffer>} */ (key)

/** @param {IDBValidKey} key */
const bytesOf = (key) => new Uint8Array(/** @type {ArrayBuffer} */ (key))

/** Null where nothing can be between them. @param {Uint8Array | null} after @param {Uint8Array | null} before */
function rangeOf(after, before) {
	if (after !== null && before !== null) return compare(after, before) < 0 ? IDBKeyRange.bound(idbKey(after), idbKey(before), true, true) : null
	if (after !== null) return IDBKeyRange.lowerBound(idbKey(after), true)
	return before === null ? undefined : IDBKeyRange.upperBound(idbKey(before), true)
}
