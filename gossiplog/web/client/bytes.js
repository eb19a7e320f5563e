// Bytes: joined, compared, and written as text.

import { DecodeError } from "./errors.js"

const BASE32HEX = "0123456789abcdefghijklmnopqrstuv"
const BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
const BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
/** An empty queue keeps no more memory than this. */
const KEPT_BYTES_MAX = 65_536
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

/** Five bits a character, or six of base64, without padding. @param {Uint8Array} bytes @param {string} alphabet */
export function toBase32(bytes, alphabet = BASE32HEX, width = 5) {
	let text = ""
	let bits = 0
	let held = 0
	for (const byte of bytes) {
		held = (held << 8) | byte
		for (bits += 8; bits >= width; bits -= width) text += alphabet[(held >> (bits - width)) & (2 ** width - 1)]
		held &= 255
	}
	return bits ? text + alphabet[(held << (width - bits)) & (2 ** width - 1)] : text
}

/** @param {Uint8Array} bytes */
export const toBase64 = (bytes) => toBase32(bytes, BASE64, 6)

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
	for (let at = 0; bytes[at] === 0; at++) text = "1" + text
	return text
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

/** Bytes that arrive in pieces and are taken in others. Pieces of any size cost what their bytes do. */
export class ByteQueue {
	#buffer = new Uint8Array(0)
	#start = 0
	size = 0

	/** What is here, until it changes. */
	get bytes() {
		return this.#buffer.subarray(this.#start, this.#start + this.size)
	}

	/** @param {Uint8Array} piece */
	push(piece) {
		if (this.#start + this.size + piece.length > this.#buffer.length) {
			const grown = new Uint8Array(2 * (this.size + piece.length))
			grown.set(this.bytes)
			this.#buffer = grown
			this.#start = 0
		}
		this.#buffer.set(piece, this.#start + this.size)
		this.size += piece.length
	}

	/** Take out so many, as a copy. @param {number} size At most what is here. */
	take(size) {
		const bytes = this.#buffer.slice(this.#start, this.#start + size)
		this.#start += size
		this.size -= size
		if (!this.size) [this.#start, this.#buffer] = [0, this.#buffer.length > KEPT_BYTES_MAX ? new Uint8Array(0) : this.#buffer]
		return bytes
	}
}
