// The network, live: peers as dots, what runs between them as lines, and what is known of the one that is chosen.

import { dot, el, fill, say, shortName, size, span, whole } from "./drawing/dom.js"
import { authorColour, rootColour } from "./drawing/palette.js"
import { Force } from "./force.js"
import { NetworkCanvas } from "./network_canvas.js"
import { FLIGHT_MS } from "./network_model.js"
import { TestnetControls } from "./testnet_controls.js"

/** @typedef {import("./network_model.js").Node} Node */

const LAYOUT_MS = 5
const RADIUS = 9
const KINDS = { full: "full messages", metadata: "metadata only", fanout: "fan-out", none: "connected", cut: "cut" }

export class NetworkView {
	title = "Network"

	/** @param {import("./main.js").Shared} shared */
	constructor({ api, network }) {
		this.network = network
		this.force = new Force()
		/** @type {Map<string, import("./force.js").Body>} */
		this.bodies = new Map()
		/** @type {Node[]} */
		this.nodes = []
		/** @type {import("./network_canvas.js").Scene} */
		this.scene = { dots: [], lines: [], pulses: [], version: "" }
		this.chosen = ""
		this.modelVersion = -1
		this.layoutVersion = 0
		this.isOpen = false
		this.frame = 0
		this.isChanged = true
		this.drawing = new NetworkCanvas("The network; the list beside it says the same")
		this.summary = el("p", { class: "summary", role: "status" })
		this.list = el("ul", { class: "peers", "aria-label": "Peers" })
		this.details = el("section", { class: "peer-details", "aria-live": "polite" })
		this.controls = new TestnetControls(api, network, () => this.changed())
		const legend = makeLegend("Equal colours: equal logs; grey: not told")
		this.cutKey = el("li", { hidden: true }, el("span", { class: "line cut", "aria-hidden": "true" }), "cut")
		legend.append(this.cutKey)
		this.element = el(
			"div",
			{ class: "network" },
			el("div", { class: "stage" }, this.controls.element, this.drawing.canvas, legend),
			el("div", { class: "side" }, this.summary, this.details, this.list),
		)
		this.drawing.canvas.addEventListener("click", (event) => this.onClick(event))
		this.list.addEventListener("keydown", (event) => moveFocus(event, this.list))
		new ResizeObserver(() => this.changed()).observe(this.drawing.canvas)
		network.listeners.add(() => this.changed())
		matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.changed())
	}

	/** @param {string} rest the id of a peer */
	open(rest) {
		this.isOpen = true
		this.chosen = rest
		this.changed()
	}

	close() {
		this.isOpen = false
		cancelAnimationFrame(this.frame)
		this.frame = 0
	}

	changed() {
		this.isChanged = true
		if (this.isOpen && this.frame === 0) this.frame = requestAnimationFrame((now) => this.draw(now))
	}

	/** @param {number} now */
	draw(now) {
		this.frame = 0
		const { network } = this
		if (this.modelVersion !== network.version) this.placeNodes()
		const wasMoving = this.force.isMoving
		if (wasMoving) {
			this.force.run(LAYOUT_MS)
			this.layoutVersion++
		}
		network.flights = network.flights.filter(({ since }) => performance.now() - since < FLIGHT_MS)
		if (this.isChanged) {
			this.isChanged = false
			this.showWords()
		}
		this.makeScene()
		this.drawing.draw(this.scene, now)
		const isBusy = wasMoving || this.drawing.isBehind || network.flights.length > 0 || this.scene.lines.some(({ isSyncing }) => isSyncing)
		if (isBusy && this.isOpen && this.frame === 0) this.frame = requestAnimationFrame((later) => this.draw(later))
	}

	placeNodes() {
		const { network } = this
		this.modelVersion = network.version
		this.nodes = [...network.nodes.values()]
		const numbers = new Map(this.nodes.map((node, number) => [node.id, number]))
		const bodies = this.nodes.map(({ id }, number) => this.bodies.get(id) ?? Force.at(number))
		this.bodies = new Map(this.nodes.map(({ id }, number) => [id, bodies[number]]))
		const pairs = [...network.edges.values()].flatMap(({ from, to }) => [numbers.get(from) ?? 0, numbers.get(to) ?? 0])
		this.force.set(bodies, Int32Array.from(pairs))
	}

	makeScene() {
		const { network, nodes } = this
		const numbers = new Map(nodes.map((node, number) => [node.id, number]))
		/** @param {string} id */
		const known = (id) => numbers.get(id) ?? -1
		this.scene.dots = nodes.map((node) => {
			const body = this.bodies.get(node.id) ?? Force.at(0)
			const name = nameOf(node)
			const label = `${name}${node.isAlive ? "" : ", down"}${node.root === "" ? "" : ` · ${node.root.slice(0, 4)}`}`
			const isChosen = node.id === this.chosen || this.controls.picked.has(node.id)
			return { x: body.x, y: body.y, colour: rootColour(node.root), label, radius: RADIUS, isAlive: node.isAlive, isChosen, isOurs: node.isOurs }
		})
		const now = performance.now()
		this.scene.lines = [...network.edges.values()]
			.map(({ from, to, style, syncsUntil }) => ({ from: known(from), to: known(to), style, isSyncing: syncsUntil > now }))
			.filter(({ from, to }) => from >= 0 && to >= 0)
		this.scene.pulses = network.flights
			.map(({ from, to, message, since }) => ({
				from: known(from),
				to: known(to),
				progress: Math.min(1, (now - since) / FLIGHT_MS),
				colour: authorColour(message),
			}))
			.filter(({ from, to }) => from >= 0 && to >= 0)
		this.scene.version = `${network.version} ${this.layoutVersion}`
	}

	showWords() {
		const { network } = this
		const told = this.nodes.filter(({ isAlive, root }) => isAlive && root !== "").map(({ root }) => root)
		const roots = new Set(told)
		const alive = this.nodes.filter(({ isAlive }) => isAlive).length
		const equality = told.length < 2 ? "" : roots.size === 1 ? ", all that told have equal logs" : `, ${whole(roots.size)} different logs`
		say(this.summary, network.error !== "" ? network.error : `${whole(alive)} ${alive === 1 ? "peer" : "peers"}${equality}`)
		this.controls.show()
		this.cutKey.hidden = !network.hasControls
		this.showList()
		this.showDetails()
	}

	showList() {
		while (this.list.children.length > this.nodes.length) this.list.lastChild?.remove()
		while (this.list.children.length < this.nodes.length) {
			const mark = dot("")
			const button = el("button", { class: "peer" }, mark, el("span", { class: "peer-name" }), el("span", { class: "id" }))
			this.list.append(el("li", {}, button))
		}
		this.nodes.forEach((node, at) => {
			const button = /** @type {HTMLButtonElement} */ (this.list.children[at].firstElementChild)
			const [mark, name, root] = /** @type {HTMLElement[]} */ ([...button.children])
			mark.style.setProperty("--colour", rootColour(node.root))
			mark.classList.toggle("down", !node.isAlive)
			say(name, `${nameOf(node)}${node.isOurs && node.name !== "" ? " (this server)" : ""}${node.isAlive ? "" : ", down"}`)
			say(root, node.root.slice(0, 4))
			button.title = node.id
			button.setAttribute("aria-pressed", String(node.id === this.chosen))
			button.onclick = () => this.pick(node.id)
		})
	}

	/** @param {MouseEvent} event */
	onClick(event) {
		const number = this.drawing.dotAt(this.scene.dots, event.offsetX, event.offsetY)
		if (number >= 0) this.pick(this.nodes[number].id)
		else {
			const line = this.scene.lines[this.drawing.lineAt(this.scene, event.offsetX, event.offsetY)]
			if (line !== undefined) this.controls.onLine(this.nodes[line.from], this.nodes[line.to], line.style)
		}
	}

	/** @param {string} id */
	pick(id) {
		const node = this.network.nodes.get(id)
		if (node !== undefined && this.controls.onNode(node)) return
		location.hash = `#/network/${encodeURIComponent(id)}`
	}

	showDetails() {
		const node = this.network.nodes.get(this.chosen)
		if (node === undefined) {
			fill(this.details, el("p", { class: "hint" }, "Choose a peer to see how it stands."), ...this.makeTroubles())
			return
		}
		const { told } = node
		fill(
			this.details,
			el("h2", {}, dot(rootColour(node.root), node.isAlive ? "round" : "round down"), nameOf(node)),
			list([
				["Id", el("span", { class: "id" }, node.id)],
				["Root", node.root === "" ? "not told" : el("span", { class: "id", title: node.root }, node.root.slice(0, 16))],
				["Entries", node.entries === null ? null : whole(node.entries)],
				["State", node.isAlive ? null : "down"],
				["Page", node.url === "" ? null : el("a", { href: pageOf(node.url), rel: "noreferrer" }, node.url)],
				["Connection", told && `${told.kind}, ${told.outbound ? "we dialled it" : "it dialled us"}`],
				["Address", told?.address],
				["Protocol", told?.protocol],
				["Peering", told && (KINDS[/** @type {keyof typeof KINDS} */ (told.peering)] ?? told.peering)],
				["Connected for", told?.since && span(Math.max(0, this.network.peers.now - told.since))],
				["Backoff", told?.backoff_s ? span(told.backoff_s) : null],
				["Waiting to go out", told && `${size(told.queue?.bytes ?? 0)}, ${whole(told.queue?.rpcs ?? 0)} RPCs`],
				["Syncing", told?.syncing ? "now" : null],
				["Topics", told?.topics?.length > 0 ? told.topics.join(", ") : null],
			]),
			told?.score ? part("Score", told.score, (value) => value.toFixed(2), "") : null,
			told?.traffic ? part("Traffic", told.traffic, ({ in: received, out }) => `${size(received)} in, ${size(out)} out`) : null,
			this.makeNeighbours(node),
		)
	}

	/** Those whom a peer is connected with, as far as anybody tells. @param {Node} node */
	makeNeighbours(node) {
		const edges = [...this.network.edges.values()].filter(({ from, to }) => from === node.id || to === node.id)
		if (edges.length === 0) return null
		const items = edges.map(({ from, to, style }) => {
			const other = this.network.nodes.get(from === node.id ? to : from)
			return other === undefined
				? null
				: el("li", {}, el("a", { href: `#/network/${encodeURIComponent(other.id)}` }, nameOf(other)), ` ${KINDS[style]}`)
		})
		return el("div", {}, el("h3", {}, `Neighbours, ${whole(edges.length)}`), el("ul", { class: "plain" }, ...items))
	}

	makeTroubles() {
		const { dials = [], bans = [], refused = [] } = this.network.peers ?? {}
		const lines = [
			...dials.map((/** @type {any} */ one) => `Cannot reach ${one.address}: ${one.reason} (${whole(one.tries ?? 1)} tries)`),
			...bans.map((/** @type {any} */ one) => `${shortName(one.peer)} is banned: ${one.reason}`),
			...refused.map((/** @type {any} */ one) => `From ${shortName(one.peer)} refused: ${one.reason}`),
		]
		if (lines.length === 0) return []
		return [el("h3", {}, "Troubles"), el("ul", { class: "plain troubles" }, ...lines.map((line) => el("li", {}, line)))]
	}
}

/** @param {Node} node */
const nameOf = (node) => node.name || (node.isOurs ? "this server" : node.id.includes("://") ? node.id.replace(/^wss?:../, "") : shortName(node.id))

/** What a peer is called that may be gone meanwhile. @param {import("./network_model.js").NetworkModel} network @param {string} id */
export function nameIn(network, id) {
	const node = network.nodes.get(id)
	return node === undefined ? shortName(id) : nameOf(node)
}

/** @param {string} url of a WebSocket, or of a page */
const pageOf = (url) => url.replace(/^ws/, "http")

/** @param {[string, any][]} rows what is null is left out @param {string} [more] classes */
function list(rows, more = "") {
	return el("dl", { class: `rows ${more}` }, ...rows.flatMap(([name, value]) => (value === null || value === undefined || value === false ? [] : [el("dt", {}, name), el("dd", {}, value)])))
}

/** @param {string} title @param {Record<string, any>} values @param {(value: any) => string} words @param {string} [more] classes */
function part(title, values, words, more = "stacked") {
	return el("div", {}, el("h3", {}, title), list(Object.entries(values).map(([name, value]) => [name.replaceAll("_", " ") || "the connection itself", words(value)]), more))
}

const LINES = [
	["full", "full messages"],
	["metadata", "metadata only"],
	["fanout", "fan-out"],
	["sync", "syncing"],
	["none", "connected"],
	["arrow", "arrow: from the peer that told of it first"],
]

/** The legend. @param {string} colours what equal ones mean @param {string[][]} [kinds] of lines: class and words */
export function makeLegend(colours, kinds = LINES) {
	const lines = kinds.map(([name, words]) => el("li", {}, el("span", { class: `line ${name}`, "aria-hidden": "true" }), words))
	const down = el("li", {}, el("span", { class: "dot down", "aria-hidden": "true" }), "down")
	return el("ul", { class: "legend", "aria-label": "Legend" }, el("li", {}, colours), down, ...lines)
}

/** Arrow keys go through a list of buttons. @param {KeyboardEvent} event @param {HTMLElement} place */
function moveFocus(event, place) {
	const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0
	const buttons = [...place.querySelectorAll("button")]
	const next = buttons[buttons.findIndex((button) => button === document.activeElement) + step]
	if (step === 0 || next === undefined) return
	event.preventDefault()
	next.focus()
}
