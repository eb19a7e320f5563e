// Numbers of as many bytes as they need: the varints of protobuf and multiformats, and the clock's, whose bytes sort as the numbers do.

import { DecodeError } from "./errors.js"

/** The highest clock, and the highest number that is read. */
export const CLOCK_MAX = Number.MAX_SAFE_INTEGER
/** The reference multiplies by 2 ** shift in floating point, which gives NaN from the 148th byte on. */
const PADDED_BYTES_MAX = 147

/** @param {number} number 0 … 2^53 − 1 */
export function encodeVarint(number) {
	const bytes = []
	for (; number > 0x7f; number = Math.floor(number / 128)) bytes.push((number % 128) | 0x80)
	bytes.push(number)
	return Uint8Array.from(bytes)
}

/** The number and the offset after it. It must be in its shortest form. @param {Uint8Array} bytes @param {number} start @returns {[number, number]} */
export function decodeVarint(bytes, start = 0) {
	const [number, end] = decodePaddedVarint(bytes, start)
	if (end - start > 9 || number > CLOCK_MAX) throw new DecodeError("a varint above 2^53 − 1")
	if (end - start > 1 && bytes[end - 1] === 0) throw new DecodeError("a varint that is longer than it needs to be")
	return [number, end]
}

/** As the reference's reader takes it, padded to up to 147 bytes; a large number is not exact. @param {Uint8Array} bytes @param {number} start @returns {[number, number]} */
export function decodePaddedVarint(bytes, start = 0) {
	let number = 0
	const end = Math.min(bytes.length, start + PADDED_BYTES_MAX)
	for (let at = start; at < end; at++) {
		number += (bytes[at] & 0x7f) * 2 ** (7 * (at - start))
		if (bytes[at] < 0x80) return [number, at + 1]
	}
	throw new DecodeError("a varint that is cut short")
}

/** @param {number} clock 0 … 2^53 − 1 */
export function encodeClock(clock) {
	let more = 0
	while (clock >= 2 ** (7 * (more + 1))) more++
	const bytes = new Uint8Array(more + 1)
	for (let at = more, left = clock; at >= 0; at--, left = Math.floor(left / 256)) bytes[at] = left % 256
	bytes[0] |= 0xff00 >> more
	return bytes
}

/** The clock that a key begins with. @param {Uint8Array} bytes */
export function decodeClock(bytes) {
	const more = bytes.length ? Math.clz32(~(bytes[0] << 24)) : 8
	if (more > 7 || bytes.length <= more) throw new DecodeError("a clock that is cut short, or has more than 8 bytes")
	let clock = bytes[0] & (0x7f >> more)
	for (let at = 1; at <= more; at++) clock = clock * 256 + bytes[at]
	if (more && clock < 2 ** (7 * more)) throw new DecodeError(`clock ${clock} is longer than it needs to be`)
	if (clock > CLOCK_MAX) throw new DecodeError(`clock ${clock} is above 2^53 − 1`)
	return clock
}
