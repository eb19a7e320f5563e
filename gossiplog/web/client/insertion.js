// How entries come into a store, whichever it is: in one transaction with the heads and what the application makes of them.
// Everything is read first and written last, so that a transaction that ended in between has written nothing.

import { toHex } from "./bytes.js"
import { StorageError, inWords } from "./errors.js"

/** @typedef {import("./entry.js").Entry} Entry */
/** @typedef {(entry: Entry, state: StateWriter) => void | Promise<void>} Apply */
/** @typedef {{ seq: number, key: Uint8Array, value: Uint8Array }} Row */
/** An entry that is in the log since this insertion. @typedef {{ seq: number, entry: Entry }} Stored */
/** @typedef {"new" | "known" | "orphan"} Fate */
/** What one insertion came to. @typedef {{ fates: Fate[], stored: Stored[], aside: { id: string, reason: string }[] }} Insertion */
/**
 * A transaction of a store, open for reading and writing.
 * @typedef {object} Transaction
 * @property {() => Promise<number>} lastSeq The last insertion number; 0 before any.
 * @property {() => Promise<Uint8Array[]>} heads
 * @property {(keys: Uint8Array[]) => Promise<Set<string>>} known Those that are here, in hex.
 * @property {(key: string) => Promise<any>} getState
 * @property {(writes: Writes) => void} write
 */
/**
 * What one transaction writes.
 * @typedef {object} Writes
 * @property {Row[]} rows
 * @property {Uint8Array[]} headsAdded
 * @property {Uint8Array[]} headsRemoved
 * @property {Map<string, any>} state Undefined for what is deleted.
 * @property {{ id: string, reason: string }[]} aside Entries at which `apply` raised.
 */

/** What `apply` reads and writes: values by their names, kept with the entries. */
export class StateWriter {
	/** @param {Transaction} transaction @param {Map<string, any>} below What earlier entries of this transaction have written. */
	constructor(transaction, below) {
		this.transaction = transaction
		this.below = below
		/** @type {Map<string, any>} */
		this.writes = new Map()
	}

	/** @param {string} key @returns {Promise<any>} Undefined if there is none. */
	async get(key) {
		if (this.writes.has(key)) return this.writes.get(key)
		return this.below.has(key) ? this.below.get(key) : this.transaction.getState(key)
	}

	/** @param {string} key @param {any} value Anything that can be cloned, but undefined. */
	set(key, value) {
		this.writes.set(String(key), structuredClone(value))
	}

	/** @param {string} key */
	delete(key) {
		this.writes.set(String(key), undefined)
	}
}

/** Insert valid entries, parents before children. @param {Transaction} transaction @param {Entry[]} entries @param {Apply | undefined} apply @returns {Promise<Insertion>} */
export async function insert(transaction, entries, apply) {
	const own = new Set(entries.map(({ key }) => toHex(key)))
	const heads = new Map((await transaction.heads()).map((key) => [toHex(key), key]))
	const outside = new Map()
	for (const { key, envelope } of entries) {
		outside.set(toHex(key), key)
		for (const parent of envelope.parentKeys) if (!own.has(toHex(parent))) outside.set(toHex(parent), parent)
	}
	const known = await transaction.known([...outside.values()].filter((key) => !heads.has(toHex(key))))
	for (const name of heads.keys()) known.add(name)
	let seq = await transaction.lastSeq()
	/** @type {Writes} */
	const writes = { rows: [], headsAdded: [], headsRemoved: [], state: new Map(), aside: [] }
	/** @type {Insertion} */
	const insertion = { fates: [], stored: [], aside: writes.aside }
	const added = new Map()
	for (const entry of entries) {
		const name = toHex(entry.key)
		const parents = entry.envelope.parentKeys.map((key) => toHex(key))
		const fate = known.has(name) ? "known" : parents.every((parent) => known.has(parent)) ? "new" : "orphan"
		insertion.fates.push(fate)
		if (fate !== "new") continue
		known.add(name)
		for (const parent of parents) {
			const head = heads.get(parent)
			if (head !== undefined) writes.headsRemoved.push(head)
			heads.delete(parent)
			added.delete(parent)
		}
		added.set(name, entry.key)
		insertion.stored.push({ seq: ++seq, entry })
		writes.rows.push({ seq, key: entry.key, value: entry.value })
		if (apply !== undefined) await applyOne(transaction, entry, apply, writes)
	}
	writes.headsAdded = [...added.values()]
	try {
		if (writes.rows.length) transaction.write(writes)
	} catch (error) {
		const reason = apply === undefined ? inWords(error) : "the transaction is over: `apply` may wait for nothing but its state"
		throw new StorageError(reason, { cause: error })
	}
	return insertion
}

/** @param {Transaction} transaction @param {Entry} entry @param {Apply} apply @param {Writes} writes */
async function applyOne(transaction, entry, apply, writes) {
	const state = new StateWriter(transaction, writes.state)
	try {
		await apply(entry, state)
	} catch (error) {
		if (error instanceof StorageError) throw error
		writes.aside.push({ id: entry.id, reason: inWords(error).slice(0, 512) })
		return
	}
	for (const [key, value] of state.writes) writes.state.set(key, value)
}
