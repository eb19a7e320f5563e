// SHA-256 of something short, at once: WebCrypto's answers later, and takes longer for a few hundred bytes.
// Source: FIPS 180-4, section 6.2.

const ROUNDS = new Int32Array(64)
const FIRST = new Int32Array(8)
for (let prime = 2, found = 0; found < 64; prime++) {
	let isPrime = true
	for (let factor = 2; factor * factor <= prime; factor++) isPrime &&= prime % factor !== 0
	if (!isPrime) continue
	if (found < 8) FIRST[found] = fraction(Math.sqrt(prime))
	ROUNDS[found++] = fraction(Math.cbrt(prime))
}
const words = new Int32Array(64)

/** The first 32 bits after the point. @param {number} root */
function fraction(root) {
	return ((root - Math.floor(root)) * 2 ** 32) | 0
}

/** The digest, 32 bytes. @param {Uint8Array} data */
export function sha256(data) {
	const state = FIRST.slice()
	const whole = data.length - (data.length % 64)
	for (let at = 0; at < whole; at += 64) digestBlock(state, data, at)
	const rest = data.length - whole
	const last = new Uint8Array(rest < 56 ? 64 : 128)
	last.set(data.subarray(whole))
	last[rest] = 0x80
	new DataView(last.buffer).setUint32(last.length - 8, Math.floor(data.length / 2 ** 29))
	new DataView(last.buffer).setUint32(last.length - 4, (data.length * 8) >>> 0)
	for (let at = 0; at < last.length; at += 64) digestBlock(state, last, at)
	const digest = new Uint8Array(32)
	const view = new DataView(digest.buffer)
	state.forEach((word, index) => view.setInt32(4 * index, word))
	return digest
}

/** @param {Int32Array} state @param {Uint8Array} data @param {number} at */
function digestBlock(state, data, at) {
	const w = words
	for (let i = 0; i < 16; i++, at += 4) w[i] = (data[at] << 24) | (data[at + 1] << 16) | (data[at + 2] << 8) | data[at + 3]
	for (let i = 16; i < 64; i++) {
		const x = w[i - 15]
		const y = w[i - 2]
		const small0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3)
		const small1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10)
		w[i] = (w[i - 16] + small0 + w[i - 7] + small1) | 0
	}
	let [a, b, c, d, e, f, g, h] = state
	for (let i = 0; i < 64; i++) {
		const big1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7))
		const one = (h + big1 + ((e & f) ^ (~e & g)) + ROUNDS[i] + w[i]) | 0
		const big0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10))
		const two = (big0 + ((a & b) ^ (a & c) ^ (b & c))) | 0
		h = g
		g = f
		f = e
		e = (d + one) | 0
		d = c
		c = b
		b = a
		a = (one + two) | 0
	}
	state[0] += a
	state[1] += b
	state[2] += c
	state[3] += d
	state[4] += e
	state[5] += f
	state[6] += g
	state[7] += h
}
