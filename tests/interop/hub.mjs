// The reference in mode A as a process: a hub, or a client of one. Payloads travel as dag-cbor.

import { answerRequests, hex, sleep, surviveFaults, unhex } from "./process.mjs"

const { GossipLog } = await import("@canvas-js/gossiplog/sqlite")
const { ed25519 } = await import("@canvas-js/signatures")
const cbor = await import("@ipld/dag-cbor")

const faults = surviveFaults()

const logs = new Map()

const operations = {
	// On disk with a directory, else in memory.
	async open({ log, topic, seed, directory = null }) {
		const signer = ed25519.create({ type: "ed25519", privateKey: unhex(seed) })
		const opened = new GossipLog({ topic, directory, signer, apply: () => {} })
		const state = { log: opened, connections: new Map(), syncs: [], received: {}, listening: null }
		opened.addEventListener("sync", ({ detail }) => state.syncs.push({ count: detail.messageCount, ms: detail.duration }))
		opened.addEventListener("message", ({ detail: { source } }) => {
			const by = source?.type ?? "own"
			state.received[by] = (state.received[by] ?? 0) + 1
		})
		logs.set(log, state)
	},

	async listen({ log, port }) {
		const state = logs.get(log)
		state.listening = new AbortController()
		await state.log.listen(port, { signal: state.listening.signal })
	},

	async connect({ log, url }) {
		const state = logs.get(log)
		const connection = new AbortController()
		state.connections.set(url, connection)
		await state.log.connect(url, { signal: connection.signal })
	},

	// What docs/operations.md shows: the token that a hub gives to a did.
	async prove({ url, did, seed }) {
		const pkcs8 = unhex("302e020100300506032b657004220420" + seed)
		const privateKey = await crypto.subtle.importKey("pkcs8", pkcs8, "Ed25519", false, ["sign"])
		const api = url.replace("ws://", "http://") + "/api"
		const { challenge, topic } = await (await fetch(`${api}/challenge`)).json()
		const host = new URL(url).host
		const said = new TextEncoder().encode(`gossiplog-access/1\n${did}\n${host}\n${topic}\n${challenge}\n`)
		const signature = Buffer.from(await crypto.subtle.sign("Ed25519", privateKey, said)).toString("hex")
		const body = JSON.stringify({ did, host, challenge, signature })
		const answer = await fetch(`${api}/token`, { method: "POST", body })
		if (!answer.ok) throw new Error(await answer.text())
		return (await answer.json()).token
	},

	async disconnect({ log, url }) {
		const state = logs.get(log)
		state.connections.get(url).abort()
		state.connections.delete(url)
	},

	async append({ log, payloads }) {
		const ids = []
		for (const payload of payloads) {
			const { id } = await logs.get(log).log.append(cbor.decode(unhex(payload)))
			ids.push(id)
		}
		return ids
	},

	// Appends one entry every so many milliseconds, in the background.
	async appendSlowly({ log, count, ms }) {
		const state = logs.get(log)
		state.appending = (async () => {
			for (let n = 0; n < count; n++) {
				await state.log.append({ from: log, n })
				await sleep(ms)
			}
		})()
	},

	async appended({ log }) {
		await logs.get(log).appending
	},

	async state({ log }) {
		const { log: opened, syncs, received } = logs.get(log)
		const root = await opened.tree.read((txn) => txn.getRoot())
		const [clock, heads] = await opened.getClock()
		const count = await opened.db.count("$messages")
		return { count, clock, heads, root: { level: root.level, hash: hex(root.hash) }, syncs, received, faults }
	},

	// Answers when the root is this one, or after a while with what there is.
	async until({ log, hash, ms }) {
		const { log: opened } = logs.get(log)
		const end = Date.now() + ms
		for (;;) {
			const root = await opened.tree.read((txn) => txn.getRoot())
			if (hex(root.hash) === hash || Date.now() > end) {
				return hex(root.hash)
			}
			await sleep(20)
		}
	},

	async export({ log }) {
		const entries = []
		for await (const { id, value } of logs.get(log).log.iterate()) {
			entries.push({ id, value: hex(value) })
		}
		return entries
	},
}

await answerRequests(operations, { atOnce: true })
process.exit(0)
