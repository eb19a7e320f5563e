// What a network looks like at a time of its trace.

import { shortName } from "./drawing/dom.js"
import { hueColour, themeColour } from "./drawing/palette.js"
import { KIND } from "./trace.js"

/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("./network_canvas.js").Line["style"]} Style */

const LABELS_MAX = 60
/** How peers stand that are connected and nothing else, by router: floodsub sends everything to everybody; gossipsub and its like tell all of what there is. @type {Record<string, Style>} */
const CONNECTED = { floodsub: "full", gossipsub: "metadata", choke: "metadata" }

export class Playback {
	/** @param {Trace} trace */
	constructor(trace) {
		this.trace = trace
		this.time = 0
		this.at = 0
		this.flightAt = 0
		this.connected = trace.isLive ? "none" : (CONNECTED[trace.router] ?? "none")
		this.hasRoots = trace.kinds.includes(KIND.root)
		this.isAlive = new Uint8Array(trace.nodeCount).fill(1)
		/** What each node has, as one number: equal sets, equal numbers. */
		this.contents = new Uint32Array(trace.nodeCount)
		/** Lines by number of the pair, with how they are connected. @type {Map<number, Style>} */
		this.lines = new Map()
		/** @type {import("./trace.js").Flight[]} */
		this.flying = []
		/** Who of two asked the other to be neighbours, by number of the pair. @type {Map<number, number>} */
		this.asked = new Map()
		/** Counts whatever changes the lines. */
		this.version = 0
		this.published = 0
		this.delivered = 0
		this.sent = 0
		/** @type {Map<number, number>} when each message was published */
		this.publishedAt = new Map()
		/** @type {number[]} */
		this.latencies = []
		/** The message that was published last, and the ways of its first copies. */
		this.newest = -1
		/** @type {import("./network_canvas.js").Line[]} */
		this.way = []
		/** @type {import("./network_canvas.js").Line[]} */
		this.sceneLines = []
		this.linesVersion = ""
	}

	rewind() {
		Object.assign(this, { at: 0, flightAt: 0, published: 0, delivered: 0, sent: 0, newest: -1, way: [] })
		this.isAlive.fill(1)
		this.contents.fill(0)
		this.lines.clear()
		this.asked.clear()
		this.publishedAt.clear()
		this.flying = []
		this.latencies = []
		this.version++
	}

	/** Go to a time; backwards by playing again from the beginning. @param {number} time */
	goTo(time) {
		if (time < this.time) this.rewind()
		this.time = time
		const { trace } = this
		while (this.at < trace.length && trace.times[this.at] <= time) this.apply(this.at++)
		while (this.flightAt < trace.flights.length && trace.flights[this.flightAt].start <= time) this.flying.push(trace.flights[this.flightAt++])
		this.flying = this.flying.filter(({ end }) => end > time)
	}

	/** @param {number} at */
	apply(at) {
		const { kinds, nodes, peers, messages, nodeCount } = this.trace
		const [kind, node, peer, message] = [kinds[at], nodes[at], peers[at], messages[at]]
		if (kind === KIND.send) this.sent++
		else if (kind === KIND.deliver || kind === KIND.publish) this.take(at)
		else if (kind === KIND.root) this.contents[node] = message
		else if (kind === KIND.start || kind === KIND.stop) this.isAlive[node] = kind === KIND.start ? 1 : 0
		else if (peer >= 0) {
			const line = Math.min(node, peer) * nodeCount + Math.max(node, peer)
			const known = this.lines.get(line)
			const next = kind === KIND.neighbor ? this.styleOfNeighbours(line, node, known) : this.styleAfter(kind, known)
			if (next === known) return
			if (next === undefined) this.lines.delete(line)
			else this.lines.set(line, next)
			this.version++
		}
	}

	/** A message came into being, or came to somebody. @param {number} at */
	take(at) {
		const { kinds, nodes, peers, messages, times } = this.trace
		const [node, peer, message] = [nodes[at], peers[at], messages[at]]
		if (!this.hasRoots) this.contents[node] = (this.contents[node] ^ mixed(message)) >>> 0
		if (kinds[at] === KIND.publish) {
			this.published++
			this.publishedAt.set(message, times[at])
			Object.assign(this, { newest: message, way: [] })
		} else {
			this.delivered++
			const published = this.publishedAt.get(message)
			if (published !== undefined) this.latencies.push(times[at] - published)
			if (message === this.newest && peer >= 0) this.way.push({ from: peer, to: node, style: "full" })
		}
	}

	/**
	 * How two peers stand after something happened between them; undefined: they are not connected.
	 * @param {number} kind @param {Style | undefined} known @returns {Style | undefined}
	 */
	styleAfter(kind, known) {
		if (kind === KIND.disconnect) return undefined
		if (kind === KIND.graft) return "full"
		if (kind === KIND.prune) return "metadata"
		return kind === KIND.connect ? (known ?? this.connected) : this.connected
	}

	/**
	 * Episub: peers are in each other's active view once both said so, and such a link is eager at first.
	 * @param {number} line @param {number} node who says it @param {Style | undefined} known @returns {Style | undefined}
	 */
	styleOfNeighbours(line, node, known) {
		if (known === "full" || known === "metadata") return known
		const asker = this.asked.get(line)
		if (asker === undefined || asker === node) {
			this.asked.set(line, node)
			return known
		}
		this.asked.delete(line)
		return "full"
	}

	/** Lines of one node by how they stand. @param {number} number */
	linesOf(number) {
		const { nodeCount } = this.trace
		const count = { full: 0, metadata: 0, none: 0 }
		for (const [line, style] of this.lines) {
			if (Math.floor(line / nodeCount) === number || line % nodeCount === number) count[/** @type {keyof typeof count} */ (style)]++
		}
		return count
	}

	/**
	 * What is to be drawn now.
	 * @param {import("./force.js").Body[]} bodies @param {number} layoutVersion counts what moved the bodies
	 * @param {{chosen: number, isWay: boolean}} options whose lines stand out; whether the newest message's way is drawn instead of peerings
	 * @returns {import("./network_canvas.js").Scene}
	 */
	scene(bodies, layoutVersion, { chosen, isWay }) {
		const { trace } = this
		const { nodeCount } = trace
		const radius = nodeCount > 300 ? 4 : nodeCount > LABELS_MAX ? 6 : 9
		const empty = themeColour("strong-line")
		const dots = bodies.map(({ x, y }, number) => ({
			x,
			y,
			colour: this.contents[number] === 0 ? empty : hueColour(Math.floor((this.contents[number] / 2 ** 32) * 90) * 4),
			label: nodeCount <= LABELS_MAX || number === chosen ? this.label(number) : "",
			radius,
			isAlive: this.isAlive[number] === 1,
			isChosen: number === chosen,
		}))
		const version = isWay ? `way ${this.newest} ${this.way.length}` : `lines ${this.version}`
		if (this.linesVersion !== version) {
			this.linesVersion = version
			this.sceneLines = isWay
				? [...this.way]
				: [...this.lines].map(([line, style]) => ({ from: Math.floor(line / nodeCount), to: line % nodeCount, style, isMutual: true }))
		}
		const pulses = this.flying.map(({ from, to, start, end, message }) => ({
			from,
			to,
			progress: (this.time - start) / (end - start || 1),
			colour: hueColour((mixed(message) % 18) * 20),
		}))
		return { dots, lines: this.sceneLines, pulses, version: `${version} ${layoutVersion}`, chosen }
	}

	/** @param {number} number */
	label(number) {
		const name = shortName(this.trace.nameOf(number))
		const contents = this.contents[number]
		return contents === 0 ? name : `${name} · ${contents.toString(16).padStart(8, "0").slice(0, 4)}`
	}
}

/** Spread a message's number over 32 bits. @param {number} message */
function mixed(message) {
	let value = (message + 0x9e3779b9) >>> 0
	value = Math.imul(value ^ (value >>> 16), 0x21f0aaad)
	value = Math.imul(value ^ (value >>> 15), 0x735a2d97)
	return (value ^ (value >>> 15)) >>> 0
}
