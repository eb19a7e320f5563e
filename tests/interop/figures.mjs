// The reference as the benchmark of the network measures it: a hub, a client of a hub, or a peer of a mesh. Times are of the
// machine's monotonic clock.

import { answerRequests, hex, sleep, surviveFaults, unhex } from "./process.mjs"

const { GossipLog } = await import("@canvas-js/gossiplog/sqlite")
const { Client } = await import("@canvas-js/gossiplog/sync")
const { ed25519 } = await import("@canvas-js/signatures")

surviveFaults()

// A client asks one thing after the other, so that its requests are its round trips.
let requests = 0
const get = Client.prototype.get
Client.prototype.get = function (request) {
	requests += 1
	return get.call(this, request)
}

const logs = new Map()
const connections = new Map()

const operations = {
	async open({ log, topic, directory }) {
		const signer = ed25519.create({ type: "ed25519", privateKey: Buffer.alloc(32, log.length + log.charCodeAt(0)) })
		const opened = new GossipLog({ topic, directory, signer, apply: () => {} })
		const arrived = new Map()
		opened.addEventListener("message", ({ detail: { id, source } }) => {
			if (source !== undefined) arrived.set(id, process.hrtime.bigint())
		})
		logs.set(log, { opened, arrived })
	},

	async insert({ log, values }) {
		const { opened } = logs.get(log)
		for (const value of values) {
			await opened.insert(opened.decode(unhex(value)))
		}
	},

	async listen({ log, port }) {
		await logs.get(log).opened.listen(port)
	},

	async connect({ log, url }) {
		const connection = new AbortController()
		connections.set(log, connection)
		await logs.get(log).opened.connect(url, { signal: connection.signal })
	},

	async disconnect({ log }) {
		connections.get(log).abort()
	},

	async mesh({ log, listen, dial }) {
		const libp2p = await logs.get(log).opened.startLibp2p({ listen, announce: [], bootstrapList: dial ? [dial] : [] })
		return libp2p.getMultiaddrs().map(String)
	},

	async until({ log, hash }) {
		const { opened } = logs.get(log)
		for (;;) {
			const root = await opened.tree.read((txn) => txn.getRoot())
			if (hex(root.hash) === hash) return
			await sleep(5)
		}
	},

	async count({ log }) {
		return await logs.get(log).opened.db.count("$messages")
	},

	async append({ log, number }) {
		const at = process.hrtime.bigint()
		const { id } = await logs.get(log).opened.append({ n: number })
		return { id, at: String(at) }
	},

	async arrival({ log, id }) {
		const { arrived } = logs.get(log)
		while (!arrived.has(id)) {
			await sleep(1)
		}
		return String(arrived.get(id))
	},

	async used() {
		const { user, system } = process.cpuUsage()
		return { cpu: (user + system) / 1e6, requests }
	},
}

await answerRequests(operations)
process.exit(0)
