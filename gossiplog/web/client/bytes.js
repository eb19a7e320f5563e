// Bytes: joined, compared, and written as text.

import { DecodeError } from "./errors.js"

const BASE32HEX = "0123456789abcdefghijklmnopqrstuv"
const BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
const encoder = new TextEncoder()

/** @param {string} text */
export const utf8 = (text) => encoder.encode(text)

/** @param {Uint8Array} bytes */
export const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")

/** @param {Uint8Array[]} parts */
export function concat(parts) {
	const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0))
	let at = 0
	for (const part of parts) {
		joined.set(part, at)
		at += part.length
	}
	return joined
}

/** Less than zero if `one` sorts first, 0 if they are equal. @param {Uint8Array} one @param {Uint8Array} other */
export function compare(one, other) {
	const size = Math.min(one.length, other.length)
	for (let at = 0; at < size; at++) {
		if (one[at] !== other[at]) return one[at] - other[at]
	}
	return one.length - other.length
}

/** Five bits a character, without padding. @param {Uint8Array} bytes @param {string} alphabet */
export function toBase32(bytes, alphabet = BASE32HEX) {
	let text = ""
	let bits = 0
	let held = 0
	for (const byte of bytes) {
		held = (held << 8) | byte
		for (bits += 8; bits >= 5; bits -= 5) text += alphabet[(held >> (bits - 5)) & 31]
		held &= 31
	}
	return bits ? text + alphabet[(held << (5 - bits)) & 31] : text
}

/** @param {string} text @param {string} alphabet */
export function fromBase32(text, alphabet = BASE32HEX) {
	const bytes = new Uint8Array(Math.floor((text.length * 5) / 8))
	let bits = 0
	let held = 0
	let at = 0
	for (const character of text) {
		const value = alphabet.indexOf(character)
		if (value < 0) throw new DecodeError(`${JSON.stringify(text.slice(0, 80))} is not base32`)
		held = ((held << 5) | value) & 0xfff
		bits += 5
		if (bits >= 8) bytes[at++] = (held >> (bits -= 8)) & 255
	}
	return bytes
}

/** @param {Uint8Array} bytes */
export function toBase58(bytes) {
	let number = 0n
	for (const byte of bytes) number = number * 256n + BigInt(byte)
	let text = ""
	for (; number > 0n; number /= 58n) text = BASE58[Number(number % 58n)] + text
	return "1".repeat(zeros(bytes)) + text
}

/** @param {string} text */
export function fromBase58(text) {
	let number = 0n
	for (const character of text) {
		const value = BASE58.indexOf(character)
		if (value < 0) throw new DecodeError(`${JSON.stringify(text.slice(0, 80))} is not base58`)
		number = number * 58n + BigInt(value)
	}
	const bytes = []
	for (; number > 0n; number /= 256n) bytes.unshift(Number(number % 256n))
	const leading = text.length - text.replace(/^1+/, "").length
	return Uint8Array.from([...new Array(leading).fill(0), ...bytes])
}

/** Without padding. @param {Uint8Array} bytes */
export function toBase64(bytes) {
	let text = ""
	for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000))
	return btoa(text).replace(/=+$/, "")
}

/** @param {Uint8Array} bytes */
function zeros(bytes) {
	const first = bytes.findIndex((byte) => byte !== 0)
	return first < 0 ? bytes.length : first
}
