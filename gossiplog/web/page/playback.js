// What a simulated network looks like at a time of its trace.

import { hueColour, themeColour } from "./drawing/palette.js"
import { KIND } from "./trace.js"

/** @typedef {import("./trace.js").Trace} Trace */

export class Playback {
	/** @param {Trace} trace */
	constructor(trace) {
		this.trace = trace
		this.time = 0
		this.at = 0
		this.flightAt = 0
		this.isAlive = new Uint8Array(trace.nodeCount).fill(1)
		/** What each node has, as one number: equal sets, equal numbers. */
		this.contents = new Uint32Array(trace.nodeCount)
		/** Lines by number of the pair, with how they are connected. @type {Map<number, "full" | "none">} */
		this.lines = new Map()
		/** @type {import("./trace.js").Flight[]} */
		this.flying = []
		/** Counts whatever changes the lines. */
		this.version = 0
		this.published = 0
		this.delivered = 0
		this.sent = 0
		/** @type {Map<number, number>} when each message was published */
		this.publishedAt = new Map()
		/** @type {number[]} */
		this.latencies = []
		/** @type {import("./network_canvas.js").Line[]} */
		this.sceneLines = []
		this.linesVersion = -1
	}

	rewind() {
		Object.assign(this, { at: 0, flightAt: 0, published: 0, delivered: 0, sent: 0 })
		this.isAlive.fill(1)
		this.contents.fill(0)
		this.lines.clear()
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
		const { kinds, nodes, peers, messages, times, nodeCount } = this.trace
		const [kind, node, peer, message] = [kinds[at], nodes[at], peers[at], messages[at]]
		const line = Math.min(node, peer) * nodeCount + Math.max(node, peer)
		if (kind === KIND.send) this.sent++
		else if (kind === KIND.deliver || kind === KIND.publish) {
			this.contents[node] = (this.contents[node] ^ mixed(message)) >>> 0
			if (kind === KIND.publish) {
				this.published++
				this.publishedAt.set(message, times[at])
			} else {
				this.delivered++
				this.latencies.push(times[at] - (this.publishedAt.get(message) ?? times[at]))
			}
		} else if (kind === KIND.start || kind === KIND.stop) this.isAlive[node] = kind === KIND.start ? 1 : 0
		else if (peer >= 0) {
			if (kind === KIND.disconnect) this.lines.delete(line)
			else if (kind === KIND.connect) this.lines.set(line, this.lines.get(line) ?? "none")
			else this.lines.set(line, kind === KIND.graft ? "full" : "none")
			this.version++
		}
	}

	/**
	 * What is to be drawn now.
	 * @param {import("./force.js").Body[]} bodies @param {number} layoutVersion counts what moved the bodies
	 * @returns {import("./network_canvas.js").Scene}
	 */
	scene(bodies, layoutVersion) {
		const { nodeCount } = this.trace
		const radius = nodeCount > 300 ? 4 : nodeCount > 60 ? 6 : 9
		const empty = themeColour("strong-line")
		const dots = bodies.map(({ x, y }, number) => ({
			x,
			y,
			colour: this.contents[number] === 0 ? empty : hueColour(Math.floor((this.contents[number] / 2 ** 32) * 90) * 4),
			label: nodeCount <= 60 ? String(number) : "",
			radius,
			isAlive: this.isAlive[number] === 1,
			isChosen: false,
		}))
		if (this.linesVersion !== this.version) {
			this.linesVersion = this.version
			this.sceneLines = [...this.lines].map(([line, style]) => ({ from: Math.floor(line / nodeCount), to: line % nodeCount, style }))
		}
		const pulses = this.flying.map(({ from, to, start, end, message }) => ({
			from,
			to,
			progress: (this.time - start) / (end - start || 1),
			colour: hueColour((mixed(message) % 18) * 20),
		}))
		return { dots, lines: this.sceneLines, pulses, version: this.version * 10_000 + (layoutVersion % 10_000) }
	}
}

/** Spread a message's number over 32 bits. @param {number} message */
function mixed(message) {
	let value = (message + 0x9e3779b9) >>> 0
	value = Math.imul(value ^ (value >>> 16), 0x21f0aaad)
	value = Math.imul(value ^ (value >>> 15), 0x735a2d97)
	return (value ^ (value >>> 15)) >>> 0
}
