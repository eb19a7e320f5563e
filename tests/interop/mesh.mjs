// A peer of the reference's mesh, and one of js-libp2p's gossipsub alone, as a process. Payloads travel as dag-cbor.

import { answerRequests, hex, unhex } from "./process.mjs"

const { GossipLog } = await import("@canvas-js/gossiplog/sqlite")
const { ed25519 } = await import("@canvas-js/signatures")
const { createLibp2p } = await import("libp2p")
const { gossipsub } = await import("@chainsafe/libp2p-gossipsub")
const { noise } = await import("@chainsafe/libp2p-noise")
const { yamux } = await import("@chainsafe/libp2p-yamux")
const { identify } = await import("@libp2p/identify")
const { kadDHT, passthroughMapper } = await import("@libp2p/kad-dht")
const { ping } = await import("@libp2p/ping")
const { tcp } = await import("@libp2p/tcp")
const { webSockets } = await import("@libp2p/websockets")
const { all } = await import("@libp2p/websockets/filters")
const { multiaddr } = await import("@multiformats/multiaddr")
const cbor = await import("@ipld/dag-cbor")

let log, libp2p
// How many entries came by which way, and what gossipsub made of its messages.
const counts = { own: 0, pubsub: 0, push: 0, sync: 0, syncs: 0, ignored: 0, rejected: 0 }
const received = []

const operations = {
	async open({ topic }) {
		log = new GossipLog({ topic, apply: () => {} })
		log.addEventListener("message", ({ detail }) => {
			counts[detail.source?.type ?? "own"] += 1
		})
		log.addEventListener("sync", () => {
			counts.syncs += 1
		})
	},

	// The reference's own configuration of libp2p.
	async start({ listen }) {
		libp2p = await log.startLibp2p({ listen, announce: [], bootstrapList: [] })
		const report = libp2p.services.pubsub.reportMessageValidationResult.bind(libp2p.services.pubsub)
		libp2p.services.pubsub.reportMessageValidationResult = (id, source, result) => {
			if (result === "ignore") counts.ignored += 1
			if (result === "reject") counts.rejected += 1
			return report(id, source, result)
		}
		return addresses()
	},

	// A peer that speaks pubsub, and nothing of the log.
	async startPubsub({ listen, topic, protocol, kad }) {
		libp2p = await createLibp2p({
			addresses: { listen },
			transports: [tcp(), webSockets({ filter: all })],
			connectionGater: { denyDialMultiaddr: () => false },
			connectionEncrypters: [noise()],
			streamMuxers: [yamux()],
			services: {
				identify: identify(),
				ping: ping(),
				pubsub: (components) => {
					const pubsub = gossipsub({
						globalSignaturePolicy: "StrictNoSign",
						fallbackToFloodsub: true,
						allowPublishToZeroTopicPeers: true,
						scoreParams: { IPColocationFactorWeight: 0 },
					})(components)
					if (protocol) {
						// Only this version is offered and asked for.
						pubsub.multicodecs.splice(0, pubsub.multicodecs.length, protocol)
					}
					return pubsub
				},
				...(kad ? { dht: kadDHT({ protocol: kad, clientMode: false, peerInfoMapper: passthroughMapper }) } : {}),
			},
		})
		const { pubsub } = libp2p.services
		pubsub.addEventListener("gossipsub:message", ({ detail }) => received.push(hex(detail.msg.data)))
		pubsub.subscribe(topic)
		return addresses()
	},

	async dial({ address }) {
		await libp2p.dial(multiaddr(address))
	},

	async hangUp() {
		await Promise.all(libp2p.getConnections().map((connection) => connection.close()))
	},

	async ping({ address }) {
		return await libp2p.services.ping.ping(multiaddr(address))
	},

	async append({ seed, payloads }) {
		const signer = ed25519.create({ type: "ed25519", privateKey: unhex(seed) })
		for (const payload of payloads) {
			await log.append(cbor.decode(unhex(payload)), { signer })
		}
	},

	async insert({ values }) {
		for (const value of values) {
			await log.insert(log.decode(unhex(value)))
		}
	},

	// As if it had come by a sync with somebody: nobody is told.
	async insertQuietly({ values }) {
		for (const value of values) {
			await log.insert(log.decode(unhex(value), { source: { type: "sync", peer: "nobody" } }))
		}
	},

	async state() {
		const [, heads] = await log.getClock()
		const { level, hash } = await log.tree.read((txn) => txn.getRoot())
		const count = await log.db.count("$messages")
		const connections = libp2p?.getConnections().length ?? 0
		return { count, heads, root: { level, hash: hex(hash) }, counts, connections }
	},

	async publish({ topic, data }) {
		const { recipients } = await libp2p.services.pubsub.publish(topic, unhex(data))
		return recipients.length
	},

	async pubsubState({ topic }) {
		const { pubsub } = libp2p.services
		const streams = [...pubsub.streamsOutbound.values()].map((stream) => stream.protocol)
		return { received, mesh: pubsub.getMeshPeers(topic), subscribers: pubsub.getSubscribers(topic).map(String), streams }
	},

	async closest({ key }) {
		const peers = []
		for await (const event of libp2p.services.dht.getClosestPeers(unhex(key))) {
			if (event.name === "PEER_RESPONSE") {
				peers.push(...event.closer.map(({ id, multiaddrs }) => ({ id: String(id), multiaddrs: multiaddrs.map(String) })))
			}
		}
		return peers
	},

	async stop() {
		await libp2p.stop()
	},
}

function addresses() {
	return { peer: libp2p.peerId.toString(), addresses: libp2p.getMultiaddrs().map(String) }
}

await answerRequests(operations)
await libp2p?.stop()
process.exit(0)
