// proto3, as far as our messages need it, and strictly: a known field twice, or of another type, is refused.

import { concat } from "./bytes.js"
import { DecodeError } from "./errors.js"
import { decodeVarint, encodeVarint } from "./varint.js"

/** How each field is written. @typedef {Record<number, "number" | "bytes" | "list">} Schema */
/** The fields that are there. @typedef {Record<number, any>} Fields */

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
	for (let at = 0; at < bytes.length; ) {
		const [tag, start] = decodeVarint(bytes, at)
		const number = Math.floor(tag / 8)
		const [value, end] = decodeValue(bytes, start, tag % 8)
		at = end
		const kind = schema[number]
		if (kind === undefined) continue
		if ((kind === "number") !== (typeof value === "number")) throw new DecodeError(`field ${number} is of another type`)
		if (kind === "list") (fields[number] ??= []).push(value)
		else if (number in fields) throw new DecodeError(`field ${number} twice`)
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
