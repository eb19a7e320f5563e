// PCF, the portable canonical form: the dag-cbor that every implementation reads and writes without changing a byte.
// Source: docs/spec/entries.md, "Portable canonical form (PCF)".

import { compare, concat, utf8 } from "./bytes.js"
import { DecodeError, EncodeError } from "./errors.js"
import { Link, checkCid } from "./link.js"

/** Levels of arrays and maps that are read. */
export const DEPTH_MAX = 1024
/** Levels that we write. */
const WRITTEN_DEPTH_MAX = 64
/** No entry is larger, so no payload is. */
const ENCODED_BYTES_MAX = 4_194_294
const SAFE_MAX = Number.MAX_SAFE_INTEGER
const INTEGER_MAX = 2n ** 64n - 1n
const TOO_SHORT = [24, 2 ** 8, 2 ** 16, 2 ** 32]
/** `undefined`, and floats of 16 and 32 bits, with their lengths: the reference reads them, and does not write them back. */
const UNPORTABLE = new Map([[0xf7, 1], [0xf9, 3], [0xfa, 5]])
const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** dag-cbor that some version of the reference reads, and not all of them write back as it came. */
export class NotPortable extends DecodeError {}
/** More levels than we read, and no less portable for that. */
export class TooDeep extends DecodeError {}

/** A map or an array that is being read. @typedef {{ value: any, isMap: boolean, left: number, key: string, keyAt: number, keyEnd: number, outer: Frame | null }} Frame */

/** Reads item after item. It iterates, so that nesting costs no stack. */
export class CborReader {
	/**
	 * @param {Uint8Array} bytes
	 * @param {{ at?: number, builds?: boolean, isStrict?: boolean }} [options] Whether to build values; whether what is not portable is refused.
	 */
	constructor(bytes, { at = 0, builds = true, isStrict = true } = {}) {
		this.bytes = bytes
		this.at = at
		this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
		this.builds = builds
		this.isStrict = isStrict
	}

	/** Read the item that begins here; its value, unless only its form is asked for. @param {number} [depthMax] @returns {any} */
	item(depthMax = DEPTH_MAX) {
		/** @type {Frame | null} */
		let frame = null
		let depth = 0
		for (;;) {
			if (frame !== null) {
				if (frame.left === 0) {
					if (frame.isMap && this.builds && this.isStrict) checkReserved(frame.value)
					if (frame.outer === null) return frame.value
					frame = frame.outer
					depth--
					continue
				}
				frame.left--
				if (frame.isMap) this.#key(frame)
			}
			const byte = this.#byte()
			const kind = byte >> 5
			/** @type {any} */
			let value
			if (kind === 4 || kind === 5) {
				const left = this.#argument(byte)
				if (left > this.bytes.length - this.at) throw new DecodeError("the item is cut short")
				if (depth >= depthMax) throw new TooDeep(`more than ${depthMax} levels of nesting at byte ${this.at}`)
				value = this.builds ? (kind === 5 ? {} : []) : undefined
				/** @type {Frame} */
				const inner = { value, isMap: kind === 5, left, key: "", keyAt: 0, keyEnd: 0, outer: frame }
				this.#put(frame, value)
				frame = inner
				depth++
				continue
			}
			value = this.#scalar(byte, kind)
			if (frame === null) return value
			this.#put(frame, value)
		}
	}

	/** Read an item that must be an array's header; its length. */
	array() {
		const byte = this.#byte()
		if (byte >> 5 !== 4) throw new DecodeError("no array")
		return this.#argument(byte)
	}

	/** @param {Frame | null} frame @param {any} value */
	#put(frame, value) {
		if (frame === null || !this.builds) return
		if (frame.isMap) frame.value[frame.key] = value
		else frame.value.push(value)
	}

	#byte() {
		if (this.at >= this.bytes.length) throw new DecodeError("the item is cut short")
		return this.bytes[this.at++]
	}

	/** @param {number} size */
	#take(size) {
		const start = this.at
		if (size > this.bytes.length - start) throw new DecodeError("the item is cut short")
		this.at += size
		return this.bytes.subarray(start, this.at)
	}

	/** A length, after its first byte. @param {number} byte */
	#argument(byte) {
		return Number(this.#integer(byte))
	}

	/** @param {number} byte @returns {number | bigint} */
	#integer(byte) {
		const info = byte & 31
		if (info < 24) return info
		if (info > 27) throw new DecodeError(`at byte ${this.at - 1}: an item of reserved or indefinite length`)
		const at = this.at
		this.#take(1 << (info - 24))
		const { view } = this
		const number =
			info === 24 ? view.getUint8(at) : info === 25 ? view.getUint16(at) : info === 26 ? view.getUint32(at) : view.getBigUint64(at)
		if (number < TOO_SHORT[info - 24]) throw new DecodeError(`at byte ${at - 1}: ${number} is written longer than it needs to be`)
		return number <= SAFE_MAX ? Number(number) : number
	}

	/** @param {number} byte @param {number} kind @returns {any} */
	#scalar(byte, kind) {
		if (kind === 0) return this.#integer(byte)
		if (kind === 1) {
			const number = this.#integer(byte)
			return typeof number === "number" && number < SAFE_MAX ? -1 - number : -1n - BigInt(number)
		}
		if (kind === 2) {
			const bytes = this.#take(this.#argument(byte))
			return this.builds ? bytes.slice() : undefined
		}
		if (kind === 3) return this.#text(this.#take(this.#argument(byte)))
		if (kind === 6) return this.#link(byte)
		if (byte === 0xf4 || byte === 0xf5) return byte === 0xf5
		if (byte === 0xf6) return null
		if (byte === 0xfb) return this.#float()
		const size = UNPORTABLE.get(byte)
		if (size !== undefined && !this.isStrict) return void this.#take(size - 1)
		throw new (size === undefined ? DecodeError : NotPortable)(`at byte ${this.at - 1}: byte 0x${byte.toString(16)} begins no item of PCF`)
	}

	/** @param {Uint8Array} bytes */
	#text(bytes) {
		if (this.isStrict && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) throw new NotPortable("a string begins with U+FEFF")
		if (!this.builds && (!this.isStrict || bytes.every((byte) => byte < 0x80))) return ""
		try {
			return text.decode(bytes)
		} catch {
			throw new NotPortable(`at byte ${this.at}: a string is not UTF-8`)
		}
	}

	#float() {
		const at = this.at
		this.#take(8)
		const number = this.view.getFloat64(at)
		if (!Number.isFinite(number)) throw new DecodeError(`at byte ${at - 1}: the float ${number} is not finite`)
		if (this.isStrict && Number.isSafeInteger(number)) throw new NotPortable(`at byte ${at - 1}: the float ${number} is an integer in JavaScript`)
		return number
	}

	/** @param {number} byte */
	#link(byte) {
		const at = this.at - 1
		if (byte !== 0xd8 || this.#byte() !== 42) throw new DecodeError(`at byte ${at}: a tag other than 42`)
		const head = this.#byte()
		if (head >> 5 !== 2) throw new DecodeError(`at byte ${at}: a tag other than 42 around bytes`)
		const bytes = this.#take(this.#argument(head))
		if (bytes[0] !== 0) throw new DecodeError(`at byte ${at}: a link does not begin with 0`)
		if (!this.isStrict) return undefined
		try {
			if (this.builds) return new Link(bytes.slice(1))
			checkCid(bytes.subarray(1))
		} catch (error) {
			throw new NotPortable(`at byte ${at}: ${/** @type {Error} */ (error).message}`)
		}
	}

	/** Read a map's next key, which must be above the one before it: a canonical header sorts shorter keys first. @param {Frame} frame */
	#key(frame) {
		const start = this.at
		const byte = this.#byte()
		if (byte >> 5 !== 3) throw new DecodeError(`at byte ${start}: a map's key is not a string`)
		const bytes = this.#take(this.#argument(byte))
		const order = compare(this.bytes.subarray(frame.keyAt, frame.keyEnd), this.bytes.subarray(start, this.at))
		if (order === 0) throw new DecodeError(`at byte ${start}: a map's key repeats`)
		if (order > 0 && this.isStrict) throw new NotPortable(`at byte ${start}: map keys are out of order`)
		frame.keyAt = start
		frame.keyEnd = this.at
		// Without a value to build, a key that is not ASCII is read for its UTF-8, and the others only for this one name.
		frame.key = this.#text(bytes)
		if (this.isStrict && bytes.length === 9 && text.decode(bytes) === "__proto__") {
			throw new NotPortable(`at byte ${start}: the map key \`__proto__\` loses its value in the reference`)
		}
	}
}

/** The value of bytes in PCF, which hold one item and nothing else. @param {Uint8Array} bytes @param {number} [at] @returns {any} */
export function decode(bytes, at = 0) {
	const reader = new CborReader(bytes, { at })
	const value = reader.item()
	if (reader.at !== bytes.length) throw new DecodeError(`${bytes.length - reader.at} bytes follow the item`)
	return value
}

/** Refuse the maps that dag-json, or the reference's encoder, take for a link or for bytes. @param {Record<string, any>} map */
function checkReserved(map) {
	const reason = Object.hasOwn(map, "/") ? reserved(map) : null
	if (reason !== null) throw new NotPortable(reason)
}

/** @param {Record<string, any>} map */
function reserved(map) {
	const slash = map["/"]
	if (["boolean", "number", "bigint", "string"].includes(typeof slash) && slash === map.bytes) {
		return "a map in which `/` and `bytes` are equal is taken for a link"
	}
	if (Object.keys(map).sort()[0] !== "/") return null
	if (typeof slash === "string") return "a map that begins with `/` and a string is a link in dag-json"
	if (isMap(slash) && typeof slash.bytes === "string" && Object.keys(slash).sort()[0] === "bytes") {
		return "a map that begins with `/` and a map of `bytes` is bytes in dag-json"
	}
	return null
}

/** @param {any} value @returns {value is Record<string, any>} */
export function isMap(value) {
	if (typeof value !== "object" || value === null) return false
	const prototype = Object.getPrototypeOf(value)
	return prototype === Object.prototype || prototype === null
}

/** The shortest header of an item. @param {number} major @param {number | bigint} argument */
export function header(major, argument) {
	const top = major << 5
	if (argument < 24) return Uint8Array.of(top | Number(argument))
	if (argument < 2 ** 8) return Uint8Array.of(top | 24, Number(argument))
	const size = argument < 2 ** 16 ? 2 : argument < 2 ** 32 ? 4 : 8
	const bytes = new Uint8Array(1 + size)
	const view = new DataView(bytes.buffer)
	bytes[0] = top | (size === 2 ? 25 : size === 4 ? 26 : 27)
	if (size === 2) view.setUint16(1, Number(argument))
	else if (size === 4) view.setUint32(1, Number(argument))
	else view.setBigUint64(1, BigInt(argument))
	return bytes
}

/** The header and the bytes of a string. @param {string} string */
export function textItem(string) {
	const bytes = utf8(string)
	return concat([header(3, bytes.length), bytes])
}

/** A payload's bytes in PCF; an error names the part that has none. @param {any} payload @param {number} [depthMax] */
export function encode(payload, depthMax = WRITTEN_DEPTH_MAX) {
	/** @type {Uint8Array[]} */
	const parts = []
	let size = 0
	/** @param {Uint8Array} part @param {string} path */
	const add = (part, path) => {
		parts.push(part)
		size += part.length
		if (size > ENCODED_BYTES_MAX) throw new EncodeError(`the payload takes more than ${ENCODED_BYTES_MAX} bytes, at ${path}`)
	}
	/** @param {any} value @param {string} path @param {number} depth */
	const write = (value, path, depth) => {
		if (!Array.isArray(value) && !isMap(value)) return add(encodeScalar(value, path), path)
		if (depth >= depthMax) throw new EncodeError(`more than ${depthMax} levels of nesting, or a value that contains itself, at ${path.slice(0, 80)}`)
		if (Array.isArray(value)) {
			add(header(4, value.length), path)
			for (let index = 0; index < value.length; index++) write(value[index], `${path}[${index}]`, depth + 1)
			return
		}
		const keys = Object.keys(value).map((key) => ({ key, item: encodeText(key, path) }))
		if (Object.hasOwn(value, "__proto__")) throw new EncodeError(`the key \`__proto__\` loses its value in the reference, at ${path}`)
		const reason = Object.hasOwn(value, "/") ? reserved(value) : null
		if (reason !== null) throw new EncodeError(`${reason}, at ${path}`)
		keys.sort((one, other) => compare(one.item, other.item))
		add(header(5, keys.length), path)
		for (const { key, item } of keys) {
			add(item, path)
			write(value[key], `${path}.${key}`, depth + 1)
		}
	}
	write(payload, "$", 0)
	return concat(parts)
}

/** @param {string} value @param {string} path */
function encodeText(value, path) {
	if (/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(value)) throw new EncodeError(`a string holds half of a surrogate pair, at ${path}`)
	if (value.startsWith("\uFEFF")) throw new EncodeError(`a string begins with U+FEFF, which the reference drops, at ${path}`)
	return textItem(value)
}

/** @param {any} value @param {string} path */
function encodeScalar(value, path) {
	if (typeof value === "string") return encodeText(value, path)
	if (value === null) return Uint8Array.of(0xf6)
	if (typeof value === "boolean") return Uint8Array.of(value ? 0xf5 : 0xf4)
	if (typeof value === "bigint" || Number.isSafeInteger(value)) return encodeInteger(value, path)
	if (typeof value === "number") {
		if (!Number.isFinite(value)) throw new EncodeError(`the number ${value} is not finite, at ${path}`)
		const bytes = Uint8Array.of(0xfb, 0, 0, 0, 0, 0, 0, 0, 0)
		new DataView(bytes.buffer).setFloat64(1, value)
		return bytes
	}
	if (value instanceof Uint8Array) return concat([header(2, value.length), value])
	if (value instanceof Link) return concat([Uint8Array.of(0xd8, 42), header(2, value.bytes.length + 1), Uint8Array.of(0), value.bytes])
	throw new EncodeError(`a ${value?.constructor?.name ?? typeof value} has no portable form, at ${path}`)
}

/** @param {number | bigint} number @param {string} path */
function encodeInteger(number, path) {
	if (number > INTEGER_MAX || number < -INTEGER_MAX - 1n) throw new EncodeError(`an integer outside −2^64 … 2^64 − 1, at ${path}`)
	if (number >= 0) return header(0, number)
	return header(1, typeof number === "bigint" ? -1n - number : -1 - number)
}
