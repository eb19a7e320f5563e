// The sketch of a set of keys: sums over pseudo-random parts of it, of which the first few name a difference that small.
// An element is a key and its check, 7 words of 32 bits; a symbol is the XOR of some elements, and their number.
// Source: docs/spec/reconcile.md, "Sketch" and "Decoding".

import { compare, concat, toHex, utf8 } from "./bytes.js"
import { KEY_BYTES } from "./entry.js"
import { ProtocolError } from "./errors.js"
import { sha256 } from "./sha256.js"

/** Symbols that a sketch has. */
export const SYMBOLS_MAX = 16_384
export const WORDS = 7
const DOMAIN = utf8("gossiplog/sketch/1")

/** Where the walk of one element over the symbols stands; kept here, as it is taken 19 steps for each of 100,000 keys. */
let high = 0
let low = 0

/** The symbol after this one that the element is in. @param {number} index */
function step(index) {
	// The state times 0x5851f42d4c957f2d plus 0x14057b7ef767814f, modulo 2^64.
	const a0 = low & 0xffff
	const a1 = low >>> 16
	const small = a0 * 0x7f2d
	const cross = a0 * 0x4c95
	const other = a1 * 0x7f2d
	const middle = (small >>> 16) + (cross & 0xffff) + (other & 0xffff)
	const product = ((middle << 16) | (small & 0xffff)) >>> 0
	const carried = a1 * 0x4c95 + (cross >>> 16) + (other >>> 16) + (middle >>> 16)
	const sum = product + 0xf767814f
	const top = carried + Math.imul(high, 0x4c957f2d) + Math.imul(low, 0x5851f42d) + 0x14057b7e + (sum > 0xffffffff ? 1 : 0)
	high = top >>> 0
	low = sum >>> 0
	return index + 1 + Math.floor((index + 1.5) * (67108864 / Math.sqrt(high * 1048576 + (low >>> 12) + 1) - 1))
}

/** @param {Uint8Array} key */
export function elementOf(key) {
	const bytes = concat([key, sha256(concat([DOMAIN, key])).subarray(0, 8)])
	const view = new DataView(bytes.buffer)
	return Uint32Array.from({ length: WORDS }, (_, index) => view.getUint32(4 * index))
}

/** The key of what may be an element; null if its check is not that of its key. @param {Uint32Array} element */
function keyOfElement(element) {
	const key = new Uint8Array(KEY_BYTES)
	const view = new DataView(key.buffer)
	for (let index = 0; index < 5; index++) view.setUint32(4 * index, element[index])
	const expected = elementOf(key)
	return expected[5] === element[5] && expected[6] === element[6] ? key : null
}

/** How many of so many elements may be expected in a symbol. @param {number} index @param {number} count */
export const expectedCount = (index, count) => Math.floor((2 * count) / (index + 2))

/** The first symbols of a set. */
export class Sketch {
	constructor() {
		this.sums = new Uint32Array(WORDS * SYMBOLS_MAX)
		this.counts = new Float64Array(SYMBOLS_MAX)
	}

	get count() {
		return this.counts[0]
	}

	/** Add a key that is not in the set. @param {Uint8Array} key */
	add(key) {
		const { sums, counts } = this
		const element = elementOf(key)
		high = element[5]
		low = element[6]
		for (let index = 0; index < SYMBOLS_MAX; index = step(index)) {
			for (let word = 0, at = WORDS * index; word < WORDS; word++, at++) sums[at] ^= element[word]
			counts[index]++
		}
	}
}

/** Subtracts our sketch from the symbols of another, and peels. Each element is found once, and in a symbol where it belongs: so it ends. */
export class SketchDecoder {
	/** @param {Sketch} ours It does not change meanwhile. */
	constructor(ours) {
		this.ours = ours
		this.symbols = 0
		this.sums = new Uint32Array(WORDS * SYMBOLS_MAX)
		this.counts = new Float64Array(SYMBOLS_MAX)
		/** What the counts were before anything was peeled. */
		this.claimed = new Float64Array(SYMBOLS_MAX)
		/** Elements by their bytes, each with its sign, and where its walk stands. @type {Map<string, { key: Uint8Array, element: Uint32Array, sign: number, index: number, high: number, low: number }>} */
		this.found = new Map()
	}

	/** Whether nothing is left in any symbol. */
	get isComplete() {
		const end = this.symbols
		return end > 0 && this.counts.subarray(0, end).every((count) => count === 0) && this.sums.subarray(0, WORDS * end).every((word) => word === 0)
	}

	/** Take the next symbols of the other side, and peel. @param {{ sums: Uint32Array, counts: number[] }} window At most what a sketch has left. */
	add({ sums, counts }) {
		const start = this.symbols
		this.symbols += counts.length
		for (let at = 0; at < sums.length; at++) this.sums[WORDS * start + at] = sums[at] ^ this.ours.sums[WORDS * start + at]
		counts.forEach((count, at) => (this.claimed[start + at] = this.counts[start + at] = count - this.ours.counts[start + at]))
		for (const one of this.found.values()) this.#takeOut(one, null)
		/** @type {number[]} */
		const pure = []
		for (let index = start; index < this.symbols; index++) if (Math.abs(this.counts[index]) === 1) pure.push(index)
		for (let index = pure.pop(); index !== undefined; index = pure.pop()) this.#peel(index, pure)
	}

	/** @param {number} index @param {number[]} pure */
	#peel(index, pure) {
		const sign = this.counts[index]
		if (Math.abs(sign) !== 1) return
		const element = this.sums.slice(WORDS * index, WORDS * (index + 1))
		const key = keyOfElement(element)
		if (key === null) return
		const name = toHex(key)
		if (this.found.has(name)) throw new ProtocolError(`symbols that are no sketch: an element in symbol ${index} that was found before`)
		const one = { key, element, sign, index: 0, high: element[5], low: element[6] }
		this.found.set(name, one)
		this.#takeOut(one, pure)
		if (this.sums.subarray(WORDS * index, WORDS * (index + 1)).some((word) => word !== 0)) {
			throw new ProtocolError(`symbols that are no sketch: an element in symbol ${index} that does not belong there`)
		}
	}

	/** Subtract an element from the symbols where its walk stands, and note those that may be pure now. @param {{ element: Uint32Array, sign: number, index: number, high: number, low: number }} one @param {number[] | null} pure */
	#takeOut(one, pure) {
		high = one.high
		low = one.low
		let index = one.index
		for (; index < this.symbols; index = step(index)) {
			for (let word = 0, at = WORDS * index; word < WORDS; word++, at++) this.sums[at] ^= one.element[word]
			this.counts[index] -= one.sign
			if (Math.abs(this.counts[index]) === 1) pure?.push(index)
		}
		Object.assign(one, { index, high, low })
	}

	/** Guess how many elements differ, from what the counts claim: sqrt(2 / symbols) is its relative standard deviation. */
	estimate() {
		const surplus = this.claimed[0]
		let guessed = Math.max(Math.abs(surplus), 1)
		for (let round = 0; round < 2; round++) {
			let above = 0
			let below = 0
			for (let index = 1; index < this.symbols; index++) {
				const p = 2 / (index + 2)
				const weight = 1 / (2 + 1 / (guessed * p))
				above += (weight * (this.claimed[index] ** 2 - (surplus * p) ** 2)) / (p - p * p)
				below += weight
			}
			guessed = Math.max(below ? above / below : 0, Math.abs(surplus), 1)
		}
		return Math.max(Math.floor(guessed), this.found.size)
	}

	/** The keys that the other side has and we lack, and those that are ours alone, ascending. */
	difference() {
		const all = [...this.found.values()].sort((one, other) => compare(one.key, other.key))
		return { theirs: all.filter(({ sign }) => sign > 0).map(({ key }) => key), ours: all.filter(({ sign }) => sign < 0).map(({ key }) => key) }
	}
}
