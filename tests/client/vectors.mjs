// What the browser client makes of bytes: it answers one list of cases on stdin, each `{ op, … }` with bytes in hex, by a list on stdout.

import { CborReader, decode, encode } from "../../gossiplog/web/client/cbor.js"
import { toDagJson } from "../../gossiplog/web/client/dag_json.js"
import { verify, verifyFully } from "../../gossiplog/web/client/ed25519.js"
import { idOfKey, keyOfId, signEntry, signedBytes, validate } from "../../gossiplog/web/client/entry.js"
import { decodeEvent, decodeMessage } from "../../gossiplog/web/client/messages.js"
import { Presence } from "../../gossiplog/web/client/presence.js"
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
			const reader = new CborReader(data, 0, false)
			reader.item()
			isChecked = reader.at === data.length && reader.unportable === null
		} catch {
			isChecked = false
		}
		try {
			return { isChecked, again: hex(encode(decode(data), 1024)) }
		} catch (error) {
			return { isChecked, error: error.name }
		}
	},
	dagJson: ({ bytes }) => toDagJson(new CborReader(unhex(bytes))),
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
	// What is read of something that a hub sent; the text of the error if it is refused. `times` is repeated between the others.
	read({ kind, head = "", times = ["", 0], tail = "" }) {
		const bytes = unhex(head + times[0].repeat(times[1]) + tail)
		try {
			const read = (kind === "message" ? decodeMessage : decodeEvent)(bytes)
			return (read.values ?? read.heads)?.length ?? read.kind
		} catch (error) {
			return error.message
		}
	},
	// What a page shows of a frame of presence that its hub brought; null if that breaks the protocol.
	async present({ topic, body }) {
		const presence = new Presence(topic, undefined)
		try {
			await presence.take(unhex(body), { send() {} })
			return presence.states
		} catch {
			return null
		} finally {
			presence.close()
		}
	},
	// CPU seconds and megabytes that a verdict on a VALUE costs; the value is some bytes, others many times, and the rest.
	async weigh({ head, times: [item, count], topic }) {
		const [before, piece] = [unhex(head), unhex(item)]
		const value = new Uint8Array(before.length + piece.length * count)
		value.set(before)
		for (let at = before.length; at < value.length; at += piece.length) value.set(piece, at)
		const { rss } = process.memoryUsage()
		const began = process.cpuUsage()
		const { rule } = await validate(value, topic)
		const { user, system } = process.cpuUsage(began)
		return { rule, seconds: (user + system) / 1e6, megabytes: process.resourceUsage().maxRSS / 1024 - rss / 2 ** 20 }
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
