// proto3, as far as our messages need it, and strictly: a known field twice, or of another type, is refused.

import { concat } from "./bytes.js"
import { DecodeError } from "./errors.js"
import { decodeVarint, encodeVarint } from "./varint.js"

/** What each field is: a number, bytes, or a list of bytes of at most so many. @typedef {Record<number, "number" | "bytes" | number>} Schema */
/** The fields that are there. @typedef {Record<number, any>} Fields */

/** The most fields of one message that are no list's: nobody needs more, and a frame has room for two million. */
const OTHERS_MAX = 256

/** A field with a number that is not 0, or with bytes. @param {number} field @param {number | Uint8Array} value */
export function field(field, value) {
	if (typeof value === "number") return value ? concat([Uint8Array.of(field << 3), encodeVarint(value)]) : new Uint8Array(0)
	return concat([Uint8Array.of((field << 3) | 2), encodeVarint(value.length), value])
}

/** A message before which its length stands. @param {Uint8Array[]} parts */
export function frame(parts) {
	const size = parts.reduce((sum, part) => sum + part.length, 0)
	return concat([encodeVarint(size), ...parts])
}

/** @param {Uint8Array} bytes @param {Schema} schema @returns {Fields} */
export function decodeFields(bytes, schema) {
	/** @type {Fields} */
	const fields = {}
	let others = 0
	for (let at = 0; at < bytes.length; ) {
		const [tag, start] = decodeVarint(bytes, at)
		const number = Math.floor(tag / 8)
		const [value, end] = decodeValue(bytes, start, tag % 8)
		at = end
		const kind = schema[number]
		if (typeof kind !== "number" && ++others > OTHERS_MAX) throw new DecodeError(`more than ${OTHERS_MAX} fields that are no lists`)
		if (kind === undefined) continue
		if ((kind === "number") !== (typeof value === "number")) throw new DecodeError(`field ${number} is of another type`)
		if (typeof kind === "number") {
			const list = (fields[number] ??= [])
			if (list.push(value) > kind) throw new DecodeError(`more than ${kind} times field ${number}`)
		} else if (number in fields) throw new DecodeError(`field ${number} twice`)
		else fields[number] = value
	}
	return fields
}

/** @param {Uint8Array} bytes @param {number} at @param {number} type @returns {[number | Uint8Array, number]} */
function decodeValue(bytes, at, type) {
	if (type === 0) return decodeVarint(bytes, at)
	if (type !== 2) throw new DecodeError(`a field of the wire type ${type}`)
	const [size, start] = decodeVarint(bytes, at)
	if (size > bytes.length - start) throw new DecodeError("a field that is cut short")
	return [bytes.subarray(start, start + size), start + size]
}
