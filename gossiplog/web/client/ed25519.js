// Ed25519 as the reference verifies it, which is neither RFC 8032 nor ZIP 215. WebCrypto accepts a strict subset: its yes is final and
// fast, and only after its no, or where a browser has no Ed25519, the full rule decides, in some 10 ms.
// Source: docs/spec/entries.md, "One verification rule, or replicas split"; RFC 8032, section 5.1.

import { concat } from "./bytes.js"

const P = 2n ** 255n - 19n
/** The order of the base point. */
const L = 2n ** 252n + 27742317777372353535851937790883648493n
const D = mod(-121665n * power(121666n, P - 2n))
const ROOT_OF_MINUS_1 = power(2n, (P - 1n) / 4n)
const KEYS_MAX = 4096

/** Extended coordinates. @typedef {readonly [bigint, bigint, bigint, bigint]} Point */

/** @type {Point} */
const ZERO = [0n, 1n, 1n, 0n]
const BASE = /** @type {Point} */ (decodePoint(encodeNumber(mod(4n * power(5n, P - 2n)))))
/** WebCrypto's keys, by the text of the bytes; null of those that it does not take. @type {Map<string, Promise<CryptoKey | null>>} */
const keys = new Map()

/** Whether a signature of 64 bytes is valid under a key of 32. @param {Uint8Array} publicKey @param {Uint8Array} signature @param {Uint8Array} message */
export async function verify(publicKey, signature, message) {
	const key = await importedKey(publicKey)
	if (key !== null && (await crypto.subtle.verify("Ed25519", key, view(signature), view(message)))) return true
	return verifyFully(publicKey, signature, message)
}

/** The whole rule, without WebCrypto's shortcut. @param {Uint8Array} publicKey @param {Uint8Array} signature @param {Uint8Array} message */
export async function verifyFully(publicKey, signature, message) {
	const s = decodeNumber(signature.subarray(32))
	const a = decodePoint(publicKey)
	const r = decodePoint(signature.subarray(0, 32))
	if (s >= L || a === null || r === null) return false
	const hashed = concat([encodePoint(r), encodePoint(a), message])
	const k = decodeNumber(new Uint8Array(await crypto.subtle.digest("SHA-512", view(hashed)))) % L
	// [8]([S]B − [k]A − R) is the identity.
	let sum = add(add(multiply(s, BASE), multiply(k, negate(a))), negate(r))
	for (let i = 0; i < 3; i++) sum = add(sum, sum)
	return sum[0] === 0n && sum[1] === sum[2]
}

/** WebCrypto's types ask for bytes that no other thread shares. @param {Uint8Array} bytes */
export const view = (bytes) => /** @type {Uint8Array<ArrayBuffer>} */ (bytes)

/** @param {Uint8Array} publicKey */
function importedKey(publicKey) {
	const name = publicKey.join()
	let key = keys.get(name)
	if (key === undefined) {
		if (keys.size >= KEYS_MAX) keys.clear()
		key = crypto.subtle.importKey("raw", view(publicKey), "Ed25519", false, ["verify"]).catch(() => null)
		keys.set(name, key)
	}
	return key
}

/** @param {bigint} number */
function mod(number) {
	const rest = number % P
	return rest < 0n ? rest + P : rest
}

/** @param {bigint} base @param {bigint} exponent */
function power(base, exponent) {
	let result = 1n
	for (let factor = base; exponent > 0n; exponent >>= 1n, factor = (factor * factor) % P) {
		if (exponent & 1n) result = (result * factor) % P
	}
	return result
}

/** @param {Uint8Array} bytes Little-endian. */
function decodeNumber(bytes) {
	let number = 0n
	for (let at = bytes.length - 1; at >= 0; at--) number = (number << 8n) | BigInt(bytes[at])
	return number
}

/** @param {bigint} number */
function encodeNumber(number) {
	return Uint8Array.from({ length: 32 }, (_, at) => Number((number >> BigInt(8 * at)) & 255n))
}

/** Recover x from y modulo p; a zero x keeps its zero whatever the sign says. @param {Uint8Array} bytes @returns {Point | null} */
function decodePoint(bytes) {
	const number = decodeNumber(bytes)
	const y = (number & (2n ** 255n - 1n)) % P
	const u = mod(y * y - 1n)
	const v = mod(D * y * y + 1n)
	let x = mod(u * power(v, 3n) * power(mod(u * power(v, 7n)), (P - 5n) / 8n))
	if (mod(v * x * x - u) !== 0n) {
		x = mod(x * ROOT_OF_MINUS_1)
		if (mod(v * x * x - u) !== 0n) return null
	}
	if ((x & 1n) !== number >> 255n) x = mod(-x)
	return [x, y, 1n, mod(x * y)]
}

/** @param {Point} point */
function encodePoint([x, y]) {
	return encodeNumber(y | ((x & 1n) << 255n))
}

/** @param {Point} point @returns {Point} */
function negate([x, y, z, t]) {
	return [mod(-x), y, z, mod(-t)]
}

/** Complete for this curve, so that it doubles as well. @param {Point} one @param {Point} other @returns {Point} */
function add(one, other) {
	const a = mod((one[1] - one[0]) * (other[1] - other[0]))
	const b = mod((one[1] + one[0]) * (other[1] + other[0]))
	const c = mod(2n * D * one[3] * other[3])
	const d = mod(2n * one[2] * other[2])
	const [e, f, g, h] = [b - a, d - c, d + c, b + a]
	return [mod(e * f), mod(g * h), mod(f * g), mod(e * h)]
}

/** @param {bigint} scalar @param {Point} point */
function multiply(scalar, point) {
	let sum = ZERO
	for (let double = point; scalar > 0n; scalar >>= 1n, double = add(double, double)) {
		if (scalar & 1n) sum = add(sum, double)
	}
	return sum
}
