// The page that a tab shows: a replica of the reference in IndexedDB, connected to a hub. Bundled by `browser.mjs`.

import { GossipLog } from "@canvas-js/gossiplog/idb"
import { ed25519 } from "@canvas-js/signatures"

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")
const unhex = (text) => Uint8Array.from(text.match(/../g), (pair) => parseInt(pair, 16))
const element = (id) => document.getElementById(id)

let log
let connection
let showing

async function show() {
	const root = await log.tree.read((txn) => txn.getRoot())
	const entries = []
	for await (const { message } of log.iterate({ reverse: true, limit: 12 })) {
		entries.push(message)
	}
	element("root").textContent = `${await log.db.count("$messages")} entries, root ${hex(root.hash)}`
	element("entries").replaceChildren(
		...entries.map(({ clock, payload }) => {
			const item = document.createElement("li")
			item.textContent = `clock ${clock}: ${JSON.stringify(payload)}`
			return item
		}),
	)
}

// Once for all messages that come together: what is shown costs as much as the log is long.
function showSoon() {
	showing ??= setTimeout(() => {
		showing = undefined
		show()
	}, 20)
}

// What the tests call.
window.replica = {
	async open({ name, topic, seed }) {
		const signer = ed25519.create({ type: "ed25519", privateKey: unhex(seed) })
		log = await GossipLog.open({ name, topic, signer, apply: () => {} })
		element("name").textContent = name
		log.addEventListener("message", showSoon)
		log.addEventListener("connect", ({ detail }) => (element("state").textContent = `connected to ${detail.peer}`))
		log.addEventListener("disconnect", () => (element("state").textContent = "not connected"))
		await show()
	},
	async connect({ url }) {
		connection = new AbortController()
		await log.connect(url, { signal: connection.signal })
	},
	// What a page is told that is not let in.
	async goodbye({ url }) {
		const socket = new WebSocket(url)
		return await new Promise((resolve) => socket.addEventListener("close", ({ code, reason }) => resolve({ code, reason })))
	},
	async disconnect() {
		connection.abort()
	},
	async append({ payload }) {
		const { id } = await log.append(payload)
		return id
	},
	async insert({ values }) {
		for (const value of values) {
			await log.insert(log.decode(unhex(value)))
		}
	},
	async state() {
		const root = await log.tree.read((txn) => txn.getRoot())
		const [clock, heads] = await log.getClock()
		return { count: await log.db.count("$messages"), clock, heads, level: root.level, hash: hex(root.hash), shown: element("entries").innerText }
	},
}
document.body.dataset.ready = "yes"
