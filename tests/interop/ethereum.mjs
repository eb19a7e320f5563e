// The reference's log with the session signers of Ethereum wallets, EIP-712 and SIWE, as a process.

import { answerRequests, hex, unhex } from "./process.mjs"

const { GossipLog } = await import("@canvas-js/gossiplog/sqlite")
const { ed25519, decodeURI } = await import("@canvas-js/signatures")
const { Eip712Signer, SIWESigner, Secp256k1SignatureScheme } = await import("@canvas-js/chain-ethereum")
const cbor = await import("@ipld/dag-cbor")

const schemes = { ed25519, secp256k1: Secp256k1SignatureScheme }
const signers = { eip712: new Eip712Signer(), siwe: new SIWESigner() }
const logs = new Map()

const verifySignature = (signature, message) => schemes[decodeURI(signature.publicKey).type].verify(signature, message)

const operations = {
	async open({ log, topic }) {
		logs.set(log, new GossipLog({ topic, apply: () => {}, verifySignature }))
	},

	// Open a session, then append actions in its name.
	async act({ log, topic, kind, args }) {
		const { payload, signer } = await signers[kind].newSession(topic)
		await logs.get(log).append(payload, { signer })
		for (const each of cbor.decode(unhex(args))) {
			const context = { timestamp: Date.now() }
			await logs.get(log).append({ type: "action", did: payload.did, name: "post", args: each, context }, { signer })
		}
	},

	async insert({ log, values }) {
		const answers = []
		for (const value of values) {
			try {
				answers.push(await logs.get(log).insert(logs.get(log).decode(unhex(value))))
			} catch (error) {
				answers.push({ error: String(error.message) })
			}
		}
		return answers
	},

	async verifySession({ topic, kind, payload }) {
		try {
			await signers[kind].verifySession(topic, cbor.decode(unhex(payload)))
			return true
		} catch {
			return false
		}
	},

	async export({ log }) {
		const entries = []
		for await (const { id, value } of logs.get(log).iterate()) {
			entries.push({ id, value: hex(value) })
		}
		return entries
	},
}

await answerRequests(operations)
for (const log of logs.values()) {
	await log.close()
}
process.exit(0)
