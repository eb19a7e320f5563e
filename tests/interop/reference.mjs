// The reference's log as a process. Payloads travel as dag-cbor.

import { answerRequests, hex, unhex } from "./process.mjs"

const { GossipLog } = await import("@canvas-js/gossiplog/sqlite")
const { SignedMessage } = await import("@canvas-js/gossiplog")
const { ed25519 } = await import("@canvas-js/signatures")
const cbor = await import("@ipld/dag-cbor")
const { CID } = await import("multiformats/cid")

const logs = new Map()

function makeSigner(seed, codec) {
	const signer = ed25519.create({ type: "ed25519", privateKey: unhex(seed) })
	return {
		publicKey: signer.publicKey,
		scheme: signer.scheme,
		sign: (message) => signer.sign(message, { codec }),
	}
}

function getRoot(log) {
	return log.tree.read((txn) => {
		const { level, hash } = txn.getRoot()
		return { level, hash: hex(hash) }
	})
}

// A small generator with a seed (mulberry32): Math.random cannot have one.
function makeRandom(seed) {
	return () => {
		seed = (seed + 0x6d2b79f5) | 0
		let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed)
		mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
		return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296
	}
}

const LINK = CID.parse("bafyreigdmqpykrgxyaxtlafqpqhzrb7qy2rh75nldvfd4tucqmqqme5yje")
const TEXT = ["", "a", "é", "日本語", "🌍", "\u0000", "\u2028", "\ud7ff", "\ue000", "x".repeat(300), '"\\/\b\f\n\r\t']

function randomPayload(random, depth = 3) {
	const pick = (options) => options[Math.floor(random() * options.length)]
	const kinds = ["null", "bool", "integer", "integer", "float", "text", "bytes", "link", "list", "map"]
	switch (pick(depth > 0 ? kinds : kinds.slice(0, 8))) {
		case "null":
			return null
		case "bool":
			return random() < 0.5
		case "integer":
			return Math.trunc((random() - 0.5) * pick([2, 50, 600, 2 ** 17, 2 ** 33, 2 ** 53]))
		case "float":
			return (random() - 0.5) * 10 ** Math.trunc((random() - 0.5) * 600)
		case "text":
			return pick(TEXT) + pick(TEXT)
		case "bytes":
			return Uint8Array.from({ length: pick([0, 1, 23, 24, 300]) }, () => random() * 256)
		case "link":
			return LINK
		case "list":
			return Array.from({ length: pick([0, 1, 5, 24]) }, () => randomPayload(random, depth - 1))
		case "map":
			return Object.fromEntries(Array.from({ length: pick([0, 1, 4, 30]) }, (_, n) => [pick(TEXT) + n, randomPayload(random, depth - 1)]))
	}
}

const operations = {
	async open({ log, topic }) {
		logs.set(log, new GossipLog({ topic, apply: () => {} }))
	},

	async append({ log, seed, codec, payload }) {
		const { id, value } = await logs.get(log).append(cbor.decode(unhex(payload)), { signer: makeSigner(seed, codec) })
		return { id, value: hex(value) }
	},

	// One answer a value, `{ id }` or `{ error }`: what it does with an entry is also what we want to know.
	async insert({ log, values }) {
		const answers = []
		for (const value of values) {
			try {
				const signedMessage = logs.get(log).decode(unhex(value))
				answers.push(await logs.get(log).insert(signedMessage))
			} catch (error) {
				answers.push({ error: String(error.message) })
			}
		}
		return answers
	},

	async root({ log }) {
		return await getRoot(logs.get(log))
	},

	async heads({ log }) {
		const [, heads] = await logs.get(log).getClock()
		return heads
	},

	// Every entry as it would be served to a peer: read from its database and encoded anew.
	async export({ log }) {
		const entries = []
		for await (const { id, value } of logs.get(log).iterate()) {
			entries.push({ id, value: hex(value) })
		}
		return entries
	},

	async sync({ source, target }) {
		return await logs.get(source).serve((snapshot) => logs.get(target).sync(snapshot))
	},

	// Several replicas that append at random and sync now and then, so that their history forks and merges; in the end all are equal.
	async random({ topic, seed, replicas, count, seeds }) {
		const random = makeRandom(seed)
		const pick = (options) => options[Math.floor(random() * options.length)]
		const all = Array.from({ length: replicas }, () => new GossipLog({ topic, apply: () => {} }))
		for (let n = 0; n < count; n++) {
			const signer = makeSigner(pick(seeds), pick(["dag-cbor", "dag-json"]))
			await pick(all).append(randomPayload(random), { signer })
			if (random() < 0.15) {
				const [source, target] = [pick(all), pick(all)]
				if (source !== target) {
					await source.serve((snapshot) => target.sync(snapshot))
				}
			}
		}
		for (const target of [all[0], ...all]) {
			for (const source of all) {
				if (source !== target) {
					await source.serve((snapshot) => target.sync(snapshot))
				}
			}
		}
		logs.set(`random-${seed}`, all[0])
		return { log: `random-${seed}`, roots: await Promise.all(all.map(getRoot)) }
	},

	// What the reference says of bytes without any log.
	async decode({ value }) {
		const { id, message } = SignedMessage.decode(unhex(value))
		return { id, clock: message.clock, parents: message.parents }
	},
}

await answerRequests(operations)
for (const log of logs.values()) {
	await log.close()
}
