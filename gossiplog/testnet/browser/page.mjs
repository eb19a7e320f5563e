// A peer that is a page: a log of the reference's in IndexedDB, connected to a hub, which does what the test network asks and tells what happens.

import { GossipLog } from "@canvas-js/gossiplog/idb"
import { ed25519 } from "@canvas-js/signatures"

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const base = location.pathname
const post = (what, value) => fetch(`${base}/${what}`, { method: "POST", body: JSON.stringify(value) })
const { name, topic, seed, url } = await (await fetch(`${base}/config`)).json()
document.title = name

const privateKey = Uint8Array.from(seed.match(/../g), (pair) => parseInt(pair, 16))
const signer = ed25519.create({ type: "ed25519", privateKey })
const log = await GossipLog.open({ name, topic, signer, apply: () => {} })
const facts = []
const tell = (kind, more = {}) => facts.push({ kind, time_s: Date.now() / 1000, ...more })

async function tellRoot(root) {
	tell("root", { message: hex(root.hash), count: await log.db.count("$messages") })
}

log.addEventListener("message", ({ detail: { id, signature } }) => {
	const isOwn = signature.publicKey === signer.publicKey
	tell(isOwn ? "publish" : "deliver", { message: id, way: isOwn ? "append" : "push" })
})
log.addEventListener("commit", ({ detail: { root } }) => tellRoot(root))
// Messages are told before the sync is that brought them.
log.addEventListener("sync", ({ detail: { messageCount } }) => {
	const brought = facts.filter(({ kind }) => kind === "deliver")
	for (const fact of messageCount > 0 ? brought.slice(-messageCount) : []) fact.way = "sync"
	tell("sync", { type: "merkle", count: messageCount })
})

let isConnected = false
log.addEventListener("connect", () => {
	isConnected = true
	tell("connect")
})
log.addEventListener("disconnect", () => {
	isConnected = false
	tell("disconnect")
})

// The reference does not connect again by itself.
async function stayConnected() {
	for (;;) {
		if (!isConnected) {
			const attempt = new AbortController()
			await log.connect(url, { signal: attempt.signal }).catch(() => {})
			await sleep(1000)
			if (!isConnected) attempt.abort()
		}
		await sleep(500)
	}
}

async function keepTelling() {
	for (;;) {
		await sleep(100)
		if (facts.length > 0) await post("facts", facts.splice(0)).catch(() => {})
	}
}

async function obey() {
	for (;;) {
		try {
			const order = await (await fetch(`${base}/orders`)).json()
			if (order === null) continue
			const answer = await log.append(order.payload).then(({ id }) => ({ id }), (error) => ({ error: String(error) }))
			await post("answers", { number: order.number, ...answer })
		} catch {
			await sleep(500)
		}
	}
}

await tellRoot(await log.tree.read((txn) => txn.getRoot()))
stayConnected()
keepTelling()
obey()
await post("ready", {})
