// The reference as the benchmark of the network measures it: a hub, a client of a hub, or a peer of a mesh. One request a line of JSON on
// stdin, one answer a line on stdout. Times are of the machine's monotonic clock.

import readline from "node:readline"

Promise.withResolvers ??= () => {
	const parts = {}
	parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }))
	return parts
}

const { GossipLog } = await import("@canvas-js/gossiplog/sqlite")
const { Client } = await import("@canvas-js/gossiplog/sync")
const { ed25519 } = await import("@canvas-js/signatures")

const unhex = (text) => new Uint8Array(Buffer.from(text, "hex"))
const hex = (bytes) => Buffer.from(bytes).toString("hex")

// A stream that breaks half way ends the reference's process; here it must not.
process.on("unhandledRejection", () => {})
process.on("uncaughtException", () => {})
console.trace = () => {}

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
			await new Promise((resolve) => setTimeout(resolve, 5))
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
			await new Promise((resolve) => setTimeout(resolve, 1))
		}
		return String(arrived.get(id))
	},

	async used() {
		const { user, system } = process.cpuUsage()
		return { cpu: (user + system) / 1e6, requests }
	},
}

for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
	const { op, ...request } = JSON.parse(line)
	let answer
	try {
		answer = { result: (await operations[op](request)) ?? null }
	} catch (error) {
		answer = { error: String(error.stack) }
	}
	process.stdout.write(JSON.stringify(answer) + "\n")
}
process.exit(0)
