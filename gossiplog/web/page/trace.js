// A trace of the simulator, read from JSON lines into columns: what a picture needs of it.

/** @typedef {{from: number, to: number, start: number, end: number, message: number}} Flight an RPC that brought a message */

const KINDS = ["start", "stop", "connect", "disconnect", "publish", "deliver", "graft", "prune", "send"]
export const KIND = Object.fromEntries(KINDS.map((name, number) => [name, number]))
const LINES_A_TURN = 20_000
const FLIGHT_S = 0.05
/** Beyond it numbers of message and node no longer fit into one. */
const NODES_MAX = 100_000

export class Trace {
	constructor() {
		this.scenario = ""
		this.router = ""
		this.seed = 0
		/** @type {number[]} */
		this.kinds = []
		/** @type {number[]} */
		this.times = []
		/** @type {number[]} */
		this.nodes = []
		/** @type {number[]} */
		this.peers = []
		/** @type {number[]} */
		this.messages = []
		/** @type {Flight[]} in the order in which they began */
		this.flights = []
		this.nodeCount = 0
		this.skipped = 0
	}

	get length() {
		return this.kinds.length
	}

	get duration() {
		return this.times[this.times.length - 1] ?? 0
	}

	/**
	 * Read a file as it comes. Lines that are none of a trace are counted and passed over.
	 * @param {ReadableStream<Uint8Array>} stream @param {(lines: number) => void} onProgress
	 */
	static async read(stream, onProgress) {
		const trace = new Trace()
		const [reader, decoder] = [stream.getReader(), new TextDecoder()]
		let [rest, lines] = ["", 0]
		for (;;) {
			const { value, done } = await reader.read()
			const parts = (rest + decoder.decode(value, { stream: !done })).split("\n")
			rest = done ? "" : (parts.pop() ?? "")
			for (const line of parts) {
				if (line !== "") trace.addLine(line)
				if (++lines % LINES_A_TURN === 0) {
					onProgress(lines)
					await new Promise((resolve) => setTimeout(resolve))
				}
			}
			if (done) break
		}
		trace.findFlights()
		return trace
	}

	/** @param {string} line */
	addLine(line) {
		let record
		try {
			record = JSON.parse(line)
		} catch {
			this.skipped++
			return
		}
		const { kind, node, peer, time_s, type, message } = record ?? {}
		if (!Number.isSafeInteger(node) || typeof time_s !== "number" || node >= NODES_MAX) {
			this.skipped++
			return
		}
		if (this.router === "") Object.assign(this, { scenario: String(record.scenario), router: String(record.router), seed: record.seed ?? 0 })
		const name = kind === "send" && (type === "graft" || type === "prune") ? type : kind
		const number = kind === "send" && type !== "message" && name === "send" ? undefined : KIND[name]
		if (number === undefined || node < 0) return
		this.kinds.push(number)
		this.times.push(time_s)
		this.nodes.push(node)
		this.peers.push(Number.isSafeInteger(peer) ? peer : -1)
		this.messages.push(Number.isSafeInteger(message) ? message : -1)
		this.nodeCount = Math.max(this.nodeCount, node + 1, (Number.isSafeInteger(peer) ? peer : 0) + 1)
	}

	/** Pair each message that was sent with its arrival; a copy that was not the first is shown for a moment. */
	findFlights() {
		/** @type {Map<number, number>} places of deliveries, by message and node */
		const delivered = new Map()
		for (let at = 0; at < this.length; at++) {
			if (this.kinds[at] === KIND.deliver) delivered.set(this.messages[at] * NODES_MAX + this.nodes[at], at)
		}
		for (let at = 0; at < this.length; at++) {
			if (this.kinds[at] !== KIND.send || this.peers[at] < 0) continue
			const arrival = delivered.get(this.messages[at] * NODES_MAX + this.peers[at])
			const isFirst = arrival !== undefined && this.peers[arrival] === this.nodes[at] && this.times[arrival] >= this.times[at]
			const end = isFirst ? this.times[arrival] : this.times[at] + FLIGHT_S
			this.flights.push({ from: this.nodes[at], to: this.peers[at], start: this.times[at], end, message: this.messages[at] })
		}
	}

	/** Pairs of nodes that are ever connected, or that send to each other where nobody tells of connections. */
	pairs() {
		const { nodeCount } = this
		/** @type {Set<number>} */
		const seen = new Set()
		for (const wanted of [KIND.connect, KIND.send]) {
			for (let at = 0; at < this.length; at++) {
				const [a, b] = [this.nodes[at], this.peers[at]]
				if (this.kinds[at] === wanted && b >= 0) seen.add(Math.min(a, b) * nodeCount + Math.max(a, b))
			}
			if (seen.size > 0) break
		}
		return Int32Array.from([...seen].flatMap((pair) => [Math.floor(pair / nodeCount), pair % nodeCount]))
	}
}
