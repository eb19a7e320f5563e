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
const INTEGER_MAX = 2n ** 64n - 1n
const TOO_SHORT = [24, 2 ** 8, 2 ** 16, 2 ** 32]
/** `undefined`, and floats of 16 and 32 bits, with their lengths: the reference reads them, and does not write them back. */
const UNPORTABLE = new Map([[0xf7, 1], [0xf9, 3], [0xfa, 5]])
/** What is empty is one object each: a frame can hold four million of them. */
const EMPTY = { bytes: new Uint8Array(0), array: Object.freeze([]), map: Object.freeze({}) }
const PROTO = utf8("__proto__")
const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** More levels than we read, and no less portable for that. */
export class TooDeep extends DecodeError {}

/** Reads item after item. An item that is only checked takes little memory, whatever it is; `DEPTH_MAX` bounds the stack. */
export class CborReader {
	/** @param {Uint8Array} bytes @param {number} [at] @param {boolean} [builds] Whether to build all of a value, or only what tells its form: not what is in arrays and bytes. */
	constructor(bytes, at = 0, builds = true) {
		this.bytes = bytes
		this.at = at
		this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
		this.builds = builds
		/** Why not all versions of the reference would write back what was read, though they read it; null if they would. @type {string | null} */
		this.unportable = null
	}

	/** Read the item that begins here; its value, unless only its form is asked for. @param {number} [levels] How deep it may be. @returns {any} */
	item(levels = DEPTH_MAX) {
		const byte = this.#byte()
		switch (byte >> 5) {
			case 0:
				return this.#argument(byte)
			case 1: {
				const number = this.#argument(byte)
				return typeof number === "number" && number < Number.MAX_SAFE_INTEGER ? -1 - number : -1n - BigInt(number)
			}
			case 2: {
				const bytes = this.#take(Number(this.#argument(byte)))
				return this.builds && bytes.length ? bytes.slice() : EMPTY.bytes
			}
			case 3:
				return this.#text(this.#take(Number(this.#argument(byte))))
			case 6:
				return this.#link(byte)
			case 7:
				return this.#simple(byte)
		}
		const [start, count] = [this.at, this.array(byte)]
		if (!levels) throw new TooDeep(`too many levels of nesting at byte ${start}`)
		return byte >> 5 === 4 ? this.#items(count, levels - 1) : this.#entries(count, levels - 1)
	}

	/** Read the header of an array or a map; how many items it has. @param {number} [byte] Its first one, if that was read. */
	array(byte = this.#byte()) {
		const count = Number(this.#argument(byte))
		if (count > this.bytes.length - this.at) throw new DecodeError("the item is cut short")
		return count
	}

	/** The major type of the next item. */
	get kind() {
		return this.bytes[this.at] >> 5
	}

	/** @param {number} count @param {number} levels */
	#items(count, levels) {
		/** @type {any[]} */
		const array = this.builds && count ? [] : /** @type {any} */ (EMPTY.array)
		for (let index = 0; index < count; index++) {
			const value = this.item(levels)
			if (this.builds) array.push(value)
		}
		return array
	}

	/** Keys ascend: a canonical header sorts shorter ones first. @param {number} count @param {number} levels @returns {any} */
	#entries(count, levels) {
		/** @type {Record<string, any>} */
		const map = count ? {} : EMPTY.map
		/** @type {Uint8Array} */
		let before = EMPTY.bytes
		for (let index = 0; index < count; index++) {
			const start = this.at
			if (this.kind !== 3) throw new DecodeError(`at byte ${start}: a map's key is not a string`)
			const name = this.#take(Number(this.#argument(this.#byte())))
			const key = this.#text(name)
			const item = this.bytes.subarray(start, this.at)
			const order = compare(before, item)
			if (order === 0) throw new DecodeError(`at byte ${start}: a map's key repeats`)
			if (order > 0) this.#note("map keys are out of order")
			before = item
			const isLost = name.length === PROTO.length && compare(name, PROTO) === 0
			if (isLost) this.#note("the map key `__proto__` loses its value in the reference")
			const value = this.item(levels)
			if (!isLost) map[key] = value
		}
		const reason = Object.hasOwn(map, "/") ? reserved(map) : null
		if (reason !== null) this.#note(reason)
		return map
	}

	/** @param {string} reason */
	#note(reason) {
		this.unportable ??= `at byte ${this.at}: ${reason}`
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

	/** The number in a header, after its first byte. @param {number} byte @returns {number | bigint} */
	#argument(byte) {
		const info = byte & 31
		if (info < 24) return info
		const { view, at } = this
		if (info > 27) throw new DecodeError(`at byte ${at - 1}: an item of reserved or indefinite length`)
		this.#take(1 << (info - 24))
		const number =
			info === 24 ? view.getUint8(at) : info === 25 ? view.getUint16(at) : info === 26 ? view.getUint32(at) : view.getBigUint64(at)
		if (number < TOO_SHORT[info - 24]) throw new DecodeError(`at byte ${at - 1}: ${number} is written longer than it needs to be`)
		return number <= Number.MAX_SAFE_INTEGER ? Number(number) : number
	}

	/** @param {Uint8Array} bytes */
	#text(bytes) {
		if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) this.#note("a string begins with U+FEFF")
		try {
			return text.decode(bytes)
		} catch {
			this.#note("a string is not UTF-8")
			return ""
		}
	}

	/** @param {number} byte */
	#simple(byte) {
		if (byte === 0xf4 || byte === 0xf5) return byte === 0xf5
		if (byte === 0xf6) return null
		const size = byte === 0xfb ? 9 : UNPORTABLE.get(byte)
		if (size === undefined) throw new DecodeError(`at byte ${this.at - 1}: byte 0x${byte.toString(16)} begins no item of PCF`)
		this.#take(size - 1)
		if (byte !== 0xfb) return this.#note(`byte 0x${byte.toString(16)} begins no item of PCF`)
		const number = this.view.getFloat64(this.at - 8)
		if (!Number.isFinite(number)) throw new DecodeError(`at byte ${this.at - 9}: the float ${number} is not finite`)
		if (Number.isSafeInteger(number)) this.#note(`the float ${number} is an integer in JavaScript`)
		return number
	}

	/** @param {number} byte */
	#link(byte) {
		const at = this.at - 1
		if (byte !== 0xd8 || this.#byte() !== 42 || this.kind !== 2) throw new DecodeError(`at byte ${at}: a tag other than 42 around bytes`)
		const bytes = this.#take(Number(this.#argument(this.#byte())))
		if (bytes[0] !== 0) throw new DecodeError(`at byte ${at}: a link does not begin with 0`)
		try {
			if (this.builds) return new Link(bytes.slice(1))
			checkCid(bytes.subarray(1))
		} catch (error) {
			this.#note(/** @type {Error} */ (error).message)
		}
	}
}

/** The value of bytes in PCF, which hold one item and nothing else. What is empty in it is frozen. @param {Uint8Array} bytes @param {number} [at] @param {number} [levels] @returns {any} */
export function decode(bytes, at = 0, levels = DEPTH_MAX) {
	const reader = new CborReader(bytes, at)
	const value = reader.item(levels)
	if (reader.unportable !== null) throw new DecodeError(reader.unportable)
	if (reader.at !== bytes.length) throw new DecodeError(`${bytes.length - reader.at} bytes follow the item`)
	return value
}

/** Why dag-json, or the reference's encoder, takes a map for a link or for bytes. @param {Record<string, any>} map */
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
	const log = argument < 2 ** 16 ? 1 : argument < 2 ** 32 ? 2 : 3
	const bytes = new Uint8Array(9)
	new DataView(bytes.buffer).setBigUint64(1, BigInt(argument) << BigInt(64 - (8 << log)))
	bytes[0] = top | (24 + log)
	return bytes.subarray(0, 1 + (1 << log))
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
