// A trace, read from JSON lines into columns: what a picture needs of it. The simulator's nodes are numbers; in facts of real
// processes they are names, and get numbers in the order in which they are met.

/** @typedef {{from: number, to: number, start: number, end: number, message: number}} Flight what brought a message */

const KINDS = ["start", "stop", "connect", "disconnect", "publish", "deliver", "graft", "prune", "send", "neighbor", "leave", "root"]
export const KIND = Object.fromEntries(KINDS.map((name, number) => [name, number]))
/** Parts of RPCs that change a peering, by the kind that they are here. @type {Record<string, string>} */
const CHANGES = { graft: "graft", prune: "prune", neighbor: "neighbor", disconnect: "leave", message: "send", push: "send" }
const LINES_A_TURN = 20_000
const FLIGHT_S = 0.05
/** Beyond it numbers of message and node no longer fit into one. */
const NODES_MAX = 100_000

export class Trace {
	constructor() {
		this.scenario = ""
		this.router = ""
		/** Of the simulator; null: these are facts of real processes. @type {number | null} */
		this.seed = null
		/** @type {number[]} */
		this.kinds = []
		/** @type {number[]} */
		this.times = []
		/** @type {number[]} */
		this.nodes = []
		/** @type {number[]} */
		this.peers = []
		/** The message's number; of a root the beginning of its hash. @type {number[]} */
		this.messages = []
		/** @type {Flight[]} in the order in which they began */
		this.flights = []
		/** What was done to the network. @type {{time: number, words: string}[]} */
		this.faults = []
		/** When messages were published, ascending. @type {number[]} */
		this.publishTimes = []
		/** @type {string[]} */
		this.names = []
		/** Numbers of names, of nodes and of entries. @type {Map<string, number>} */
		this.numbers = new Map()
		/** @type {Map<string, number>} */
		this.entries = new Map()
		this.origin = 0
		this.nodeCount = 0
		this.skipped = 0
	}

	get length() {
		return this.kinds.length
	}

	get duration() {
		return Math.max(this.times[this.times.length - 1] ?? 0, this.faults[this.faults.length - 1]?.time ?? 0)
	}

	get isLive() {
		return this.seed === null
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
		trace.inOrder()
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
		const { kind, node, peer, time_s, type, message, way, count } = record ?? {}
		const isNode = typeof node === "string" || (Number.isSafeInteger(node) && node < NODES_MAX)
		if (!isNode || typeof time_s !== "number" || !Number.isFinite(time_s)) {
			this.skipped++
			return
		}
		if (this.router === "") {
			Object.assign(this, { scenario: String(record.scenario), router: String(record.router), seed: Number.isSafeInteger(record.seed) ? record.seed : null })
			if (this.isLive) this.origin = time_s
		}
		const time = time_s - this.origin
		if (kind === "fault") this.faults.push({ time, words: `${type ?? "fault"}${count > 0 ? `, ${count} peers` : ""}` })
		// What somebody posts to a server begins there, as what it appends itself.
		const name = kind === "send" ? (CHANGES[type] ?? "") : kind === "deliver" && way === "http" ? "publish" : kind
		const number = Object.hasOwn(KIND, name) ? KIND[name] : undefined
		if (kind === "fault" || number === undefined || node < 0) return
		this.kinds.push(number)
		this.times.push(time)
		this.nodes.push(this.numberOf(node))
		this.peers.push(peer === undefined ? -1 : this.numberOf(peer))
		this.messages.push(number === KIND.root ? parseInt(String(message).slice(0, 8), 16) || 0 : this.entryOf(message))
	}

	/** @param {unknown} node @returns {number} */
	numberOf(node) {
		if (typeof node !== "string") {
			const number = Number.isSafeInteger(node) ? Math.max(-1, Math.min(Number(node), NODES_MAX - 1)) : -1
			this.nodeCount = Math.max(this.nodeCount, number + 1)
			return number
		}
		const known = this.numbers.get(node)
		if (known !== undefined) return known
		if (this.nodeCount >= NODES_MAX) return -1
		this.numbers.set(node, this.nodeCount)
		this.names.push(node)
		return this.nodeCount++
	}

	/** @param {unknown} message @returns {number} */
	entryOf(message) {
		if (typeof message !== "string") return Number.isSafeInteger(message) ? Number(message) : -1
		const known = this.entries.get(message) ?? this.entries.size
		this.entries.set(message, known)
		return known
	}

	/** Streams of several processes interleave: sort by time where they do. */
	inOrder() {
		if (this.isLive) {
			const order = Array.from(this.times.keys()).sort((a, b) => this.times[a] - this.times[b])
			const first = this.times[order[0]] ?? 0
			for (const name of /** @type {const} */ (["kinds", "times", "nodes", "peers", "messages"])) this[name] = order.map((at) => this[name][at])
			this.times = this.times.map((time) => time - first)
			this.faults = this.faults.map(({ time, words }) => ({ time: time - first, words }))
		}
		this.publishTimes = this.times.filter((_, at) => this.kinds[at] === KIND.publish)
	}

	/** Pair each message that was sent with its arrival; a copy that was not the first is shown for a moment, and so is what nobody told of sending. */
	findFlights() {
		/** @type {Map<number, number>} places of deliveries, by message and node */
		const delivered = new Map()
		for (let at = 0; at < this.length; at++) {
			if (this.kinds[at] === KIND.deliver && this.peers[at] >= 0) delivered.set(this.messages[at] * NODES_MAX + this.nodes[at], at)
		}
		for (let at = 0; at < this.length; at++) {
			if (this.kinds[at] !== KIND.send || this.peers[at] < 0) continue
			const key = this.messages[at] * NODES_MAX + this.peers[at]
			const arrival = delivered.get(key)
			const isFirst = arrival !== undefined && this.peers[arrival] === this.nodes[at] && this.times[arrival] >= this.times[at]
			if (isFirst) delivered.delete(key)
			const end = isFirst ? this.times[arrival] : this.times[at] + FLIGHT_S
			this.flights.push({ from: this.nodes[at], to: this.peers[at], start: this.times[at], end, message: this.messages[at] })
		}
		for (const at of delivered.values()) {
			const [start, end] = [this.times[at] - FLIGHT_S, this.times[at]]
			this.flights.push({ from: this.peers[at], to: this.nodes[at], start, end, message: this.messages[at] })
		}
		if (delivered.size > 0) this.flights.sort((a, b) => a.start - b.start)
	}

	/** What a node is called. @param {number} number */
	nameOf(number) {
		return this.names[number] ?? String(number)
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
