// A store in memory: gone with the page.

import { compare, toHex } from "./bytes.js"
import { insert } from "./insertion.js"

/** @typedef {import("./insertion.js").Row} Row */

export class MemoryStore {
	/** By insertion number, from 1 on. @type {Row[]} */
	#rows = []
	/** By key, in hex. @type {Map<string, Row>} */
	#byKey = new Map()
	/** In the order of keys; sorted when it is read. @type {Row[]} */
	#sorted = []
	/** @type {Map<string, Uint8Array>} */
	#heads = new Map()
	/** @type {Map<string, any>} */
	#state = new Map()
	/** @type {{ id: string, reason: string }[]} */
	#aside = []
	/** Insertions run one after the other. @type {Promise<unknown>} */
	#turn = Promise.resolve()

	/** @param {import("./entry.js").Entry[]} entries @param {import("./insertion.js").Apply} [apply] */
	insert(entries, apply) {
		const inserted = this.#turn.then(() => insert(this, entries, apply))
		this.#turn = inserted.catch(() => {})
		return inserted
	}

	async lastSeq() {
		return this.#rows.length
	}
	async heads() {
		return [...this.#heads.values()].sort(compare)
	}
	/** @param {Uint8Array[]} keys */
	async known(keys) {
		return new Set(keys.map((key) => toHex(key)).filter((name) => this.#byKey.has(name)))
	}
	/** @param {Uint8Array[]} keys */
	async values(keys) {
		return keys.map((key) => this.#byKey.get(toHex(key))?.value)
	}
	/** What was inserted after a number, in that order. @param {number} seq @param {number} limit */
	async since(seq, limit) {
		return this.#rows.slice(seq, seq + limit)
	}

	/** Their keys alone. @param {number} seq @param {number} limit */
	async keysSince(seq, limit) {
		return (await this.since(seq, limit)).map(({ key }) => key)
	}

	/** In the order of keys, between two of them. @param {Uint8Array | null} after @param {Uint8Array | null} before @param {boolean} reverse @param {number} limit */
	async range(after, before, reverse, limit) {
		if (this.#sorted.length < this.#rows.length) this.#sorted = [...this.#rows].sort((one, other) => compare(one.key, other.key))
		const start = after === null ? 0 : this.#place(after, 1)
		const end = before === null ? this.#sorted.length : this.#place(before, 0)
		return reverse ? this.#sorted.slice(Math.max(start, end - limit), end).reverse() : this.#sorted.slice(start, Math.min(end, start + limit))
	}

	/** How many keys are below this one; with 1, or equal to it. @param {Uint8Array} key @param {0 | 1} inclusive */
	#place(key, inclusive) {
		let low = 0
		let high = this.#sorted.length
		while (low < high) {
			const middle = (low + high) >> 1
			if (compare(this.#sorted[middle].key, key) < inclusive) low = middle + 1
			else high = middle
		}
		return low
	}

	/** @param {string} key */
	async getState(key) {
		return structuredClone(this.#state.get(key))
	}
	/** Names and values, of names that begin with this. @param {string} prefix */
	async listState(prefix) {
		const found = [...this.#state].filter(([key]) => key.startsWith(prefix))
		return found.sort(([one], [other]) => (one < other ? -1 : 1)).map(([key, value]) => /** @type {[string, any]} */ ([key, structuredClone(value)]))
	}
	async aside() {
		return [...this.#aside]
	}

	/** @param {import("./insertion.js").Insertion} insertion */
	write({ stored, headsAdded, headsRemoved, state, aside }) {
		for (const { seq, entry } of stored) {
			const row = { seq, key: entry.key, value: entry.value }
			this.#rows.push(row)
			this.#byKey.set(toHex(row.key), row)
		}
		for (const key of headsRemoved) this.#heads.delete(toHex(key))
		for (const key of headsAdded) this.#heads.set(toHex(key), key)
		for (const [key, value] of state) {
			if (value === undefined) this.#state.delete(key)
			else this.#state.set(key, value)
		}
		this.#aside.push(...aside)
	}

	close() {}
}
