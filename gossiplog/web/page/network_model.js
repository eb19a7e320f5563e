// Who is in the network and who is connected with whom, as far as anybody whom this page hears tells.

/**
 * @typedef {import("./facts.js").Fact} Fact
 * @typedef {object} Node
 * @property {string} id
 * @property {string} name
 * @property {string} kind server, client, browser, hub, mesh or us
 * @property {boolean} isAlive
 * @property {boolean} isOurs whether this page's server is it
 * @property {string} root in hex; empty if nobody told
 * @property {number | null} entries
 * @property {string} group
 * @property {string} url
 * @property {any} told what our server says of its connection with it
 *
 * @typedef {object} Edge
 * @property {string} from
 * @property {string} to
 * @property {"full" | "metadata" | "fanout" | "none" | "cut"} style
 * @property {number} syncsUntil performance.now() at which a sync is no longer shown
 *
 * @typedef {object} Flight an entry that went from one to another
 * @property {string} from
 * @property {string} to
 * @property {string} message
 * @property {number} since performance.now()
 */

import { ApiError } from "./api.js"

const POLL_MS = 2_000
const SYNC_MAX_MS = 20_000
const SYNC_SHOWN_MS = 700
const FLIGHTS_MAX = 400
const FRESH_S = 5
export const FLIGHT_MS = 450

export class NetworkModel {
	/** @param {import("./api.js").Api} api @param {import("./facts.js").Facts} facts */
	constructor(api, facts) {
		this.api = api
		/** @type {Map<string, Node>} */
		this.nodes = new Map()
		/** @type {Map<string, Edge>} */
		this.edges = new Map()
		/** @type {Flight[]} */
		this.flights = []
		/** @type {any} what `GET peers` said last */
		this.peers = null
		this.hasControls = false
		/** A test network has no peers of its own, and is asked for them once. */
		this.hasPeers = true
		/** Counts whatever changes the list of nodes or lines. */
		this.version = 0
		/** @type {Set<() => void>} */
		this.listeners = new Set()
		this.error = ""
		facts.listeners.add((all) => {
			for (const fact of all) this.add(fact)
			this.tell()
		})
	}

	open() {
		this.read()
		setInterval(() => this.read(), POLL_MS)
	}

	tell() {
		for (const listener of this.listeners) listener()
	}

	async read() {
		if (document.hidden) return
		const asked = this.hasPeers ? this.api.get("peers") : Promise.resolve(null)
		const [nodes, peers] = await Promise.allSettled([this.api.answer("glass/nodes"), asked])
		if (nodes.status === "fulfilled") {
			this.hasControls = nodes.value.headers.get("glass-controls") === "true"
			this.setNodes(nodes.value.value)
			await this.readLinks()
		}
		if (peers.status === "rejected") this.hasPeers = !(peers.reason instanceof ApiError && peers.reason.status === 404)
		else if (peers.value !== null) this.setPeers(peers.value)
		const failed = nodes.status === "rejected" && (peers.status === "rejected" || !this.hasPeers) ? nodes.reason : null
		this.error = failed instanceof Error ? failed.message : ""
		this.tell()
	}

	/** Show how others stand to each other, which may be so since long before this page was opened, and the links that a test network has cut. */
	async readLinks() {
		const ids = new Map([...this.nodes.values()].map(({ id, name }) => [name, id]))
		try {
			for (const { nodes, cut, peering } of await this.api.get("glass/links")) {
				const [a, b] = nodes.map((/** @type {string} */ name) => ids.get(name) ?? name)
				// Of our own connections our server tells itself.
				if (this.nodes.get(a)?.isOurs || this.nodes.get(b)?.isOurs) continue
				if (cut) this.connect(a, b, "cut")
				else if (peering) this.connect(a, b, peering)
				else this.disconnect(a, b)
			}
		} catch {
			// A later look tells.
		}
	}

	/** @param {any[]} list */
	setNodes(list) {
		for (const { node, name, url, kind, alive, root, entries, group } of list) {
			const isOurs = kind === "us"
			this.update(node, { name: name ?? "", url: url ?? "", kind, isAlive: alive !== false, group: String(group ?? ""), ...(isOurs ? { isOurs } : {}) })
			this.update(node, { root: hashOf(root) || (this.nodes.get(node)?.root ?? ""), entries: entries ?? this.nodes.get(node)?.entries ?? null })
		}
	}

	/** @param {any} answer of `GET peers` */
	setPeers(answer) {
		this.peers = answer
		const me = answer.me
		this.update(me, { root: hashOf(answer.root), entries: answer.entries ?? null, isOurs: true, isAlive: true })
		const here = new Set()
		for (const told of answer.peers ?? []) {
			here.add(told.peer)
			const root = hashOf(told.root) || (this.nodes.get(told.peer)?.root ?? "")
			this.update(told.peer, { told, isAlive: true, root, ...(this.nodes.get(told.peer)?.kind ? {} : { kind: told.kind }) })
			this.connect(me, told.peer, told.peering ?? "none")
			if (told.syncing) this.edge(me, told.peer).syncsUntil = performance.now() + POLL_MS + SYNC_SHOWN_MS
		}
		for (const edge of [...this.edges.values()]) {
			const other = edge.from === me ? edge.to : edge.to === me ? edge.from : null
			if (other !== null && !here.has(other)) this.disconnect(me, other)
		}
		for (const node of this.nodes.values()) if (!here.has(node.id)) node.told = null
	}

	/** @param {string} id @param {Partial<Node>} change @returns {Node} */
	update(id, change) {
		let node = this.nodes.get(id)
		if (node === undefined) {
			node = { id, name: "", kind: "", isAlive: true, isOurs: false, root: "", entries: null, group: "", url: "", told: null }
			this.nodes.set(id, node)
			this.version++
		}
		return Object.assign(node, change)
	}

	/** The line between two, in the direction in which it was seen first. @param {string} a @param {string} b @returns {Edge} */
	edge(a, b) {
		const known = this.edges.get(`${a} ${b}`) ?? this.edges.get(`${b} ${a}`)
		if (known !== undefined) return known
		/** @type {Edge} */
		const edge = { from: a, to: b, style: "none", syncsUntil: 0 }
		this.update(a, {})
		this.update(b, {})
		this.edges.set(`${a} ${b}`, edge)
		this.version++
		return edge
	}

	/** @param {string} a @param {string} b @param {Edge["style"]} style */
	connect(a, b, style) {
		const edge = this.edge(a, b)
		if (edge.style !== style) {
			edge.style = style
			this.version++
		}
	}

	/** @param {string} a @param {string} b */
	disconnect(a, b) {
		const hadOne = [this.edges.delete(`${a} ${b}`), this.edges.delete(`${b} ${a}`)].some(Boolean)
		if (!hadOne) return
		this.version++
		const other = this.nodes.get(b)
		const isSeen = [...this.edges.values()].some(({ from, to }) => from === b || to === b)
		// A client that has gone is gone; whoever is listed stays in sight.
		if (other !== undefined && !isSeen && other.url === "" && other.name === "" && !other.isOurs) this.nodes.delete(b)
	}

	/** @param {Fact} fact */
	add({ kind, node, peer, message, count, time_s }) {
		const now = performance.now()
		// The first facts that come are of the past.
		const isFresh = Math.abs(Date.now() / 1000 - time_s) < FRESH_S
		if (kind === "root") {
			this.update(node, { root: message ?? "", entries: count ?? this.nodes.get(node)?.entries ?? null })
		} else if (kind === "start" || kind === "stop") {
			// Who is up now is said with the list of nodes; what comes late here may be of the past.
			if (!this.nodes.get(node)?.kind) this.update(node, { isAlive: kind === "start" })
			if (kind === "stop") for (const edge of [...this.edges.values()]) if (edge.from === node || edge.to === node) this.disconnect(edge.from, edge.to)
		} else if (peer === undefined) {
			return
		} else if (kind === "connect") {
			this.edge(node, peer)
		} else if (kind === "disconnect") {
			this.disconnect(node, peer)
		} else if (kind === "graft") {
			this.connect(node, peer, "full")
		} else if (kind === "prune") {
			this.connect(node, peer, "metadata")
		} else if (!isFresh) {
			return
		} else if (kind === "sync-begin") {
			this.edge(node, peer).syncsUntil = now + SYNC_MAX_MS
		} else if (kind === "sync") {
			this.edge(node, peer).syncsUntil = now + SYNC_SHOWN_MS
		} else if (kind === "deliver" && message !== undefined) {
			this.flights.push({ from: peer, to: node, message, since: now })
			if (this.flights.length > FLIGHTS_MAX) this.flights.splice(0, this.flights.length - FLIGHTS_MAX)
		}
	}
}

/** @param {any} root a hash, or an object that has one */
function hashOf(root) {
	const hash = typeof root === "object" && root !== null ? root.hash : root
	return typeof hash === "string" ? hash : ""
}
