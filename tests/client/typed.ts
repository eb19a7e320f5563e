// The browser client as an application in TypeScript sees it. It is only checked, and never run.

import { GossipLogError, Link, StorageError, keptSigner, open, signerFromSeed } from "../../gossiplog/web/client/client.js"
import type { Entry, HubLink, Log, Options } from "../../gossiplog/web/client/client.js"

export async function use(options: Options): Promise<string[]> {
	const signer = await keptSigner()
	const log: Log = await open("app.example.com", { ...options, signer, apply: async (entry, state) => state.set(entry.id, (await state.get("n")) ?? 0) })
	const link: HubLink = log.connect("wss://hub.example.com", { token: "…" })
	link.onchange = () => console.log(link.isConnected, link.error, link.refused.map(({ rule, ids }) => [rule, ids.length]))
	const stop: () => void = log.subscribe((entries) => entries.map(({ payload, clock }) => [payload, clock + 1]))
	const entry: Entry = await log.append({ text: "x", bytes: new Uint8Array(1), big: 1n, links: [Link.parse("bafy")], none: null })
	// @ts-expect-error: an undefined has no portable form
	await log.append({ text: undefined })
	// @ts-expect-error: a store that there is not
	await open("app.example.com", { storage: "disk" })
	await link.settled()
	await log.presence.set({ cursor: 5, name: null }, { ttl: 60 })
	for await (const { author, name, value } of log.presence) console.log(author.length, name.length, value, log.presence.states[author])
	await log.presence.leave()
	stop()
	const ids = [entry.id, ...(await log.heads())]
	for await (const { id } of log.iterate({ after: entry.id, reverse: true, limit: 3 })) ids.push(id)
	const error: GossipLogError = new StorageError("full")
	return [...ids, error.message, (await signerFromSeed(new Uint8Array(32), { codec: "dag-json" })).did, String(await log.state.get("n"))]
}
