// What the browser client makes of bytes: it answers one list of cases on stdin, each `{ op, … }` with bytes in hex, by a list on stdout.

import { CborReader, decode, encode } from "../../gossiplog/web/client/cbor.js"
import { toDagJson } from "../../gossiplog/web/client/dag_json.js"
import { verify, verifyFully } from "../../gossiplog/web/client/ed25519.js"
import { idOfKey, keyOfId, signEntry, signedBytes, validate } from "../../gossiplog/web/client/entry.js"
import { signerFromSeed } from "../../gossiplog/web/client/signer.js"
import { Sketch, SketchDecoder } from "../../gossiplog/web/client/sketch.js"
import { decodeClock, encodeClock } from "../../gossiplog/web/client/varint.js"

const hex = (bytes) => Buffer.from(bytes).toString("hex")
const unhex = (text) => new Uint8Array(Buffer.from(text, "hex"))
const keysOf = (keys) => keys.map(unhex)

function sketchOf(keys) {
	const sketch = new Sketch()
	for (const key of keysOf(keys)) sketch.add(key)
	return sketch
}

const operations = {
	// Whether it is in PCF, by building its value and without, and what it is when it is written again.
	cbor({ bytes }) {
		const data = unhex(bytes)
		let isChecked = true
		try {
			const reader = new CborReader(data, { builds: false })
			reader.item()
			isChecked = reader.at === data.length
		} catch {
			isChecked = false
		}
		try {
			return { isChecked, again: hex(encode(decode(data), 1024)) }
		} catch (error) {
			return { isChecked, error: error.name }
		}
	},
	dagJson: ({ bytes }) => toDagJson(decode(unhex(bytes))),
	clock({ clock }) {
		const bytes = encodeClock(clock)
		return { bytes: hex(bytes), again: decodeClock(bytes) }
	},
	async validate({ value, topic }) {
		const { outcome, rule, entry } = await validate(unhex(value), topic)
		const seen = entry && { id: entry.id, author: entry.author, clock: entry.clock, parents: entry.parents }
		return { outcome, rule: rule ?? null, entry: outcome === "accept" ? seen : null }
	},
	async ed25519({ key, signature, message }) {
		return [await verify(unhex(key), unhex(signature), unhex(message)), await verifyFully(unhex(key), unhex(signature), unhex(message))]
	},
	async sign({ seed, codec, topic, parents, clock, payload }) {
		const signer = await signerFromSeed(unhex(seed), { codec })
		const keys = parents.map(keyOfId)
		const entry = await signEntry(signer, topic, keys, decode(unhex(payload)))
		const signed = signedBytes(codec, topic, clock, keys, unhex(payload))
		return { did: signer.did, value: hex(entry.value), id: idOfKey(entry.key), signed: hex(signed) }
	},
	sketch({ keys, symbols }) {
		const sketch = sketchOf(keys)
		const sums = Array.from(sketch.sums.subarray(0, 7 * symbols), (word) => word.toString(16).padStart(8, "0")).join("")
		return { sums: sums.match(/.{56}/g) ?? [], counts: [...sketch.counts.subarray(0, symbols)] }
	},
	difference({ ours, theirs, symbols }) {
		const other = sketchOf(theirs)
		const decoder = new SketchDecoder(sketchOf(ours))
		decoder.add({ sums: other.sums.slice(0, 7 * symbols), counts: [...other.counts.subarray(0, symbols)] })
		const found = decoder.difference()
		return { isComplete: decoder.isComplete, estimate: decoder.estimate(), theirs: found.theirs.map(hex), ours: found.ours.map(hex) }
	},
	refused({ payload }) {
		try {
			encode({ slash: { "/": "text" }, proto: JSON.parse('{"__proto__":1}'), date: [new Date(0)], nan: { a: [NaN] }, half: "\ud800", deep: deep(65) }[payload])
			return null
		} catch (error) {
			return error.message
		}
	},
	deepest: () => hex(encode(deep(64))).length,
}

function deep(levels) {
	let value = 1
	for (let level = 0; level < levels; level++) value = [value]
	return value
}

let text = ""
for await (const chunk of process.stdin) text += chunk
const answers = []
for (const { op, ...request } of JSON.parse(text)) answers.push((await operations[op](request)) ?? null)
process.stdout.write(JSON.stringify(answers))
