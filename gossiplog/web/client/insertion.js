// How entries come into a store, whichever it is: in one transaction with the heads and what the application makes of them.
// Everything is read first and written last, so that a transaction that ended in between has written nothing.

import { toHex } from "./bytes.js"
import { StorageError, inWords } from "./errors.js"

/** @typedef {import("./entry.js").Entry} Entry */
/** What `apply` reads and writes: values by their names, kept with the entries. @typedef {import("./client.js").StateWriter} StateWriter */
/** @typedef {(entry: Entry, state: StateWriter) => void | Promise<void>} Apply */
/** @typedef {{ seq: number, key: Uint8Array, value: Uint8Array }} Row */
/** An entry that is in the log since this insertion. @typedef {{ seq: number, entry: Entry }} Stored */
/**
 * A transaction of a store, open for reading and writing.
 * @typedef {object} Transaction
 * @property {() => Promise<number>} lastSeq The last insertion number; 0 before any.
 * @property {() => Promise<Uint8Array[]>} heads
 * @property {(keys: Uint8Array[]) => Promise<Set<string>>} known Those that are here, in hex.
 * @property {(key: string) => Promise<any>} getState
 * @property {(insertion: Insertion) => void} write
 */
/**
 * What one insertion comes to, and all that it writes.
 * @typedef {object} Insertion
 * @property {Stored[]} stored
 * @property {Set<Entry>} orphans Entries that lack parents here.
 * @property {Uint8Array[]} headsAdded
 * @property {Uint8Array[]} headsRemoved
 * @property {Map<string, any>} state Undefined for what is deleted.
 * @property {{ id: string, reason: string }[]} aside Entries at which `apply` raised.
 */

/** Insert valid entries, parents before children. @param {Transaction} transaction @param {Entry[]} entries @param {Apply | undefined} apply @returns {Promise<Insertion>} */
export async function insert(transaction, entries, apply) {
	const headsBefore = new Map((await transaction.heads()).map((key) => [toHex(key), key]))
	const heads = new Map(headsBefore)
	const asked = new Map(entries.flatMap(({ key, envelope }) => [key, ...envelope.parentKeys]).map((key) => [toHex(key), key]))
	const known = await transaction.known([...asked.values()])
	let seq = await transaction.lastSeq()
	/** @type {Insertion} */
	const insertion = { stored: [], orphans: new Set(), headsAdded: [], headsRemoved: [], state: new Map(), aside: [] }
	for (const entry of entries) {
		const name = toHex(entry.key)
		const parents = entry.envelope.parentKeys.map(toHex)
		if (known.has(name)) continue
		if (!parents.every((parent) => known.has(parent))) {
			insertion.orphans.add(entry)
			continue
		}
		known.add(name)
		for (const parent of parents) heads.delete(parent)
		heads.set(name, entry.key)
		insertion.stored.push({ seq: ++seq, entry })
		if (apply !== undefined) await applyOne(transaction, entry, apply, insertion)
	}
	insertion.headsAdded = [...heads].filter(([name]) => !headsBefore.has(name)).map(([, key]) => key)
	insertion.headsRemoved = [...headsBefore].filter(([name]) => !heads.has(name)).map(([, key]) => key)
	try {
		if (insertion.stored.length) transaction.write(insertion)
	} catch (error) {
		const reason = apply === undefined ? inWords(error) : "the transaction is over: `apply` may wait for nothing but its state"
		throw new StorageError(reason, { cause: error })
	}
	return insertion
}

/** @param {Transaction} transaction @param {Entry} entry @param {Apply} apply @param {Insertion} insertion */
async function applyOne(transaction, entry, apply, insertion) {
	/** @type {Map<string, any>} */
	const writes = new Map()
	/** @type {StateWriter} */
	const state = {
		async get(key) {
			const written = [writes, insertion.state].find((each) => each.has(key))
			return written === undefined ? transaction.getState(key) : written.get(key)
		},
		set: (key, value) => void writes.set(String(key), structuredClone(value)),
		delete: (key) => void writes.set(String(key), undefined),
	}
	try {
		await apply(entry, state)
	} catch (error) {
		if (error instanceof StorageError) throw error
		insertion.aside.push({ id: entry.id, reason: inWords(error).slice(0, 512) })
		return
	}
	for (const [key, value] of writes) insertion.state.set(key, value)
}
