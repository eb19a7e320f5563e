// What we say to a hub and what it says, as bytes and back: events on the push stream, and the messages of a reconciliation.
// Source: docs/spec/sync.md, "Messages"; docs/spec/reconcile.md, "Messages".

import { compare, concat } from "./bytes.js"
import { KEY_BYTES } from "./entry.js"
import { DecodeError, ProtocolError } from "./errors.js"
import { decodeFields, field, frame } from "./protobuf.js"
import { SYMBOLS_MAX, WORDS, expectedCount } from "./sketch.js"
import { decodeVarint, encodeVarint } from "./varint.js"

const HEADS_MAX = 1_000
const LEFT_OUT_MAX = 1_000
const VALUES_MAX = 16_384
const COUNT_MAX = 2 ** 48

/** @typedef {{ kind: "hello", count: number, symbols: Uint8Array, takes: boolean, isWholesale: boolean }} Hello */
/** @typedef {{ kind: "symbols", symbols: Uint8Array }} Symbols */
/** @typedef {{ kind: "values", values: Uint8Array[] }} Values */
/** @typedef {{ kind: "result", leftOut: Uint8Array[] }} Result */
/** @typedef {{ kind: "refuse", reason: string }} Refuse */
/** @typedef {Hello | Symbols | Values | Result | Refuse} Message */

/** @param {Uint8Array} key @param {Uint8Array} value */
export const insertEvent = (key, value) => frame([field(1, concat([field(1, key), field(2, value)]))])

/** What is pushed: an entry, or heads; null for what a later protocol may have. @param {Uint8Array} bytes @returns {{ key: Uint8Array, value: Uint8Array } | { heads: Uint8Array[] } | null} */
export function decodeEvent(bytes) {
	const event = decodeFields(bytes, { 1: "bytes", 2: "bytes" })
	if (event[1] !== undefined && event[2] !== undefined) throw new DecodeError("an event of two kinds")
	if (event[1] !== undefined) {
		const { 1: key, 2: value } = decodeFields(event[1], { 1: "bytes", 2: "bytes" })
		if (key?.length !== KEY_BYTES || value === undefined) throw new DecodeError("an insert without a key and a value")
		return { key, value: value.slice() }
	}
	if (event[2] === undefined) return null
	const heads = decodeFields(event[2], { 1: HEADS_MAX })[1] ?? []
	if (heads.some((/** @type {Uint8Array} */ key) => key.length !== KEY_BYTES)) throw new DecodeError("an update with what are no heads")
	return { heads: heads.map((/** @type {Uint8Array} */ key) => key.slice()) }
}

/** @param {import("./sketch.js").Sketch} sketch @param {Uint8Array | null} after We have everything of the hub's up to this key, and want the rest of it as it is. */
export function hello(sketch, after) {
	const resumed = after === null ? new Uint8Array(0) : field(5, after)
	return frame([Uint8Array.of(1), field(1, sketch.count), field(2, pack(sketch)), resumed])
}

/** @param {number} count */
export const more = (count) => frame([Uint8Array.of(3), encodeVarint(count)])

/** @param {Uint8Array[]} keys Ascending. @param {number} gives */
export const want = (keys, gives) => frame([Uint8Array.of(4), keys.length ? field(1, concat(keys)) : new Uint8Array(0), field(2, gives)])

/** @param {Uint8Array[]} items */
export const values = (items) => frame([Uint8Array.of(5), ...items.map((value) => field(1, value))])

/** @param {string} reason In ASCII. */
export const refuse = (reason) => frame([Uint8Array.of(7), Uint8Array.from(reason, (character) => character.charCodeAt(0))])

/** @param {Uint8Array} bytes A frame. @returns {Message} */
export function decodeMessage(bytes) {
	const body = bytes.subarray(1)
	switch (bytes[0]) {
		case 1: {
			const fields = decodeFields(body, { 1: "number", 2: "bytes", 3: "number", 4: "number" })
			const count = fields[1] ?? 0
			if (count > COUNT_MAX) throw new DecodeError(`${count} entries`)
			return { kind: "hello", count, symbols: fields[2] ?? new Uint8Array(0), takes: !fields[3], isWholesale: Boolean(fields[4]) }
		}
		case 2:
			return { kind: "symbols", symbols: body }
		case 5: {
			const values = decodeFields(body, { 1: VALUES_MAX })[1] ?? []
			return { kind: "values", values: values.map((/** @type {Uint8Array} */ value) => value.slice()) }
		}
		case 6:
			return { kind: "result", leftOut: keysOf(decodeFields(body, { 4: "bytes" })[4] ?? new Uint8Array(0)) }
		case 7:
			return { kind: "refuse", reason: new TextDecoder().decode(body.subarray(0, 800)).slice(0, 200) }
		default:
			throw new DecodeError(`a message of the unknown kind ${bytes[0]}`)
	}
}

/** Symbol 0, as Hello tells it. @param {import("./sketch.js").Sketch} sketch */
function pack(sketch) {
	const bytes = new Uint8Array(4 * WORDS)
	const view = new DataView(bytes.buffer)
	for (let word = 0; word < WORDS; word++) view.setUint32(4 * word, sketch.sums[word])
	// Its count is just what is expected: the number of entries.
	return concat([bytes, encodeVarint(0)])
}

/** Read symbols from `start` on, of a set of `total` elements. @param {Uint8Array} bytes @param {number} start @param {number} total */
export function unpack(bytes, start, total) {
	const sums = []
	const counts = []
	const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
	for (let at = 0; at < bytes.length; ) {
		if (start + counts.length >= SYMBOLS_MAX) throw new ProtocolError("more symbols than a sketch has")
		if (bytes.length - at < 4 * WORDS) throw new ProtocolError("a symbol that is cut short")
		for (let word = 0; word < WORDS; word++) sums.push(view.getUint32(at + 4 * word))
		const [zigzag, end] = decodeVarint(bytes, at + 4 * WORDS)
		const surplus = zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2
		counts.push(expectedCount(start + counts.length, total) + surplus)
		at = end
	}
	return { sums: Uint32Array.from(sums), counts }
}

/** @param {Uint8Array} bytes */
function keysOf(bytes) {
	if (bytes.length % KEY_BYTES || bytes.length > LEFT_OUT_MAX * KEY_BYTES) throw new DecodeError("what are no keys")
	const keys = Array.from({ length: bytes.length / KEY_BYTES }, (_, index) => bytes.slice(KEY_BYTES * index, KEY_BYTES * (index + 1)))
	if (keys.some((key, index) => index > 0 && compare(keys[index - 1], key) >= 0)) throw new DecodeError("keys that do not ascend")
	return keys
}
