// The browser client in Node, in memory: a program that a test talks to.

import { open, signerFromSeed } from "../../gossiplog/web/client/client.js"
import { answerRequests, hex, unhex } from "../interop/process.mjs"

const logs = new Map()
const links = new Map()
const heard = new Map()
const bytesOf = ({ id, value, payload }) => ({ id, value: hex(value), payload: payload instanceof Uint8Array ? hex(payload) : payload })

const operations = {
	async open({ name, topic, seed }) {
		const apply = async ({ payload, id }, state) => {
			if (payload?.raise) throw new Error("an entry that is not liked")
			if (typeof payload?.add === "number") state.set("sum", ((await state.get("sum")) ?? 0) + payload.add)
			state.set("last", id)
		}
		const log = await open(topic, { storage: "memory", signer: await signerFromSeed(unhex(seed)), apply })
		logs.set(name, log)
		heard.set(name, [])
		log.subscribe((entries) => heard.get(name).push(...entries.map(({ id }) => id)))
	},
	connect({ name, url, token }) {
		links.set(name, logs.get(name).connect(url, { token }))
	},
	present: ({ name, states, ttl }) => logs.get(name).presence.set(states, { ttl }),
	absent: ({ name }) => logs.get(name).presence.leave(),
	presence: ({ name }) => logs.get(name).presence.states,
	async change({ name }) {
		for await (const change of logs.get(name).presence) return change
	},
	disconnect: ({ name }) => links.get(name).close(),
	settled: ({ name }) => links.get(name).settled(),
	link({ name }) {
		const { isConnected, error, refused, isLevel } = links.get(name)
		return { isConnected, error, refused, isLevel }
	},
	async append({ name, payload }) {
		return (await logs.get(name).append(payload)).id
	},
	async appendMany({ name, payloads }) {
		const ids = []
		for (const payload of payloads) ids.push((await logs.get(name).append(payload)).id)
		return ids
	},
	async get({ name, id }) {
		const entry = await logs.get(name).get(id)
		return entry && bytesOf(entry)
	},
	async state({ name }) {
		const log = logs.get(name)
		return { count: await log.count(), heads: await log.heads(), sum: await log.state.get("sum"), aside: await log.state.aside(), heard: heard.get(name).length }
	},
	async ids({ name, ...range }) {
		const ids = []
		for await (const { id } of logs.get(name).iterate(range)) ids.push(id)
		return ids
	},
	// Median and worst of appends that the hub has acknowledged, in ms.
	async acknowledged({ name, count }) {
		const times = []
		for (let n = 0; n < count; n++) {
			const began = performance.now()
			await logs.get(name).append({ n })
			await links.get(name).settled()
			times.push(performance.now() - began)
		}
		times.sort((one, other) => one - other)
		return { p50: times[count >> 1], most: times[count - 1] }
	},
	setClock({ hours }) {
		const now = Date.now
		Date.now = () => now() + 3_600_000 * hours
	},
	spent: () => process.cpuUsage(),
}

await answerRequests(operations, { atOnce: true })
process.exit(0)
