// The reference's muxer on TCP as a process. Streams and handlers as its hub makes them. What a stream carries are bytes that count up,
// so that each side can tell a lost or doubled one.

import net from "node:net"
import { once } from "node:events"

import { answerRequests, sleep } from "./process.mjs"

const { yamux } = await import("@chainsafe/libp2p-yamux")
const { handle, select } = await import("@libp2p/multistream-select")
const { logger } = await import("@libp2p/logger")

const log = logger("interop:yamux")
const factory = yamux({})({ logger: { forComponent: logger } })
const CHUNK = 20_000
const PATTERN = 251

// The first request makes the connection, which the others wait for.
const started = Promise.withResolvers()
let muxer
let socket
const failures = []

function* pattern(size) {
	for (let at = 0; at < size; at += CHUNK) {
		yield Uint8Array.from({ length: Math.min(CHUNK, size - at) }, (_, index) => (at + index) % PATTERN)
	}
}

async function* withoutEnd(size) {
	yield* pattern(size)
	await new Promise(() => {})
}

async function count(source, pauseMs = 0) {
	let size = 0
	for await (const chunk of source) {
		for (const byte of chunk.subarray()) {
			if (byte !== size % PATTERN) {
				throw new Error(`byte ${size} is ${byte}`)
			}
			size += 1
		}
		if (pauseMs > 0) {
			await sleep(pauseMs)
		}
	}
	return size
}

// The protocols, as "/name/bytes" of what this side sends.
const protocols = ["/echo", ...[0, 1, 100_000, 2_000_000].flatMap((size) => [`/bulk/${size}`, `/slow/${size}`]), "/abort/100000"]

async function serve({ stream, protocol }) {
	const [, name, bytes] = protocol.split("/")
	if (name === "echo") {
		await stream.sink(stream.source)
	} else if (name === "abort") {
		stream.sink(withoutEnd(Number(bytes))).catch(() => {})
		await stream.source.next()
		stream.abort(new Error("on purpose"))
	} else {
		await Promise.all([count(stream.source, name === "slow" ? 5 : 0), stream.sink(pattern(Number(bytes)))])
	}
}

function start(direction) {
	muxer = factory.createStreamMuxer({
		direction,
		onIncomingStream: (stream) => {
			handle(stream, protocols, { log }).then(serve).catch((error) => failures.push(String(error.message)))
		},
	})
	muxer.sink(socket).catch((error) => failures.push(`sink: ${error.message}`))
	const writing = (async () => {
		for await (const frame of muxer.source) {
			if (!socket.write(frame.subarray())) {
				await once(socket, "drain")
			}
		}
		socket.end()
	})()
	writing.catch((error) => failures.push(`source: ${error.message}`))
	socket.on("error", () => {})
	started.resolve()
}

async function open(protocol, options = {}) {
	await started.promise
	const { stream } = await select(await muxer.newStream(), protocol, { log, ...options })
	return stream
}

const operations = {
	async listen() {
		const server = net.createServer({ noDelay: true }, (accepted) => {
			socket = accepted
			start("inbound")
			server.close()
		})
		server.listen(0, "127.0.0.1")
		await once(server, "listening")
		return server.address().port
	},

	async dial({ port }) {
		socket = net.connect({ port, host: "127.0.0.1", noDelay: true })
		await once(socket, "connect")
		start("outbound")
	},

	// Send and read at once on several streams; how many bytes came on each.
	async bulk({ streams, protocol, size, pauseMs }) {
		return Promise.all(
			Array.from({ length: streams }, async () => {
				const stream = await open(protocol)
				const [received] = await Promise.all([count(stream.source, pauseMs), stream.sink(pattern(size))])
				return received
			}),
		)
	},

	// Open streams one after the other, use them a little, and leave them in every way there is.
	async churn({ streams, protocol }) {
		const ways = { closed: 0, aborted: 0, failed: 0 }
		for (let number = 0; number < streams; number++) {
			const stream = await open(protocol, { negotiateFully: number % 2 === 0 })
			try {
				if (number % 3 === 0) {
					stream.sink(pattern(50_000)).catch(() => {})
					await stream.source.next()
					stream.abort(new Error("on purpose"))
					ways.aborted += 1
				} else {
					await Promise.all([count(stream.source), stream.sink(pattern(number * 10))])
					ways.closed += 1
				}
			} catch (error) {
				ways.failed += 1
			}
		}
		return ways
	},

	async refused({ protocol }) {
		try {
			await open(protocol)
		} catch (error) {
			return error.name
		}
	},

	async state() {
		await started.promise
		return { streams: muxer.streams.length, isClosed: muxer.isClosed(), failures }
	},

	async close() {
		await started.promise
		await muxer.close()
	},
}

await answerRequests(operations, { atOnce: true })
process.exit(0)
