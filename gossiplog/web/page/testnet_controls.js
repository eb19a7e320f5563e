// What one may do to a test network, by clicking on its peers and links; shown where the server says that it is one.

import { el, say } from "./drawing/dom.js"

/** @typedef {import("./network_model.js").Node} Node */

const TOOLS = [
	["look", "Look", "Click a peer to see how it stands."],
	["append", "Append", "Click a peer to have it append an entry."],
	["cut", "Cut or heal", "Click two peers, or a line, to cut the link between them or to heal it."],
	["kill", "Kill or restart", "Click a peer to kill it, or to start it again."],
	["part", "Partition", "Click the peers of one side, then apply."],
]

export class TestnetControls {
	/** @param {import("./api.js").Api} api @param {import("./network_model.js").NetworkModel} network @param {() => void} onChange */
	constructor(api, network, onChange) {
		this.api = api
		this.network = network
		this.onChange = onChange
		this.tool = "look"
		/** @type {Set<string>} ids */
		this.picked = new Set()
		this.number = 0
		this.said = el("p", { class: "said", role: "status" }, TOOLS[0][2])
		this.apply = el("button", { hidden: true, onclick: () => this.partition() }, "Apply partition")
		const heal = el("button", { onclick: () => this.order({ action: "heal" }, "all links healed") }, "Heal all")
		const choices = TOOLS.map(([name, label, hint]) => {
			const input = el("input", { type: "radio", name: "tool", value: name, checked: name === "look" })
			input.addEventListener("change", () => this.choose(name, hint))
			return el("label", {}, input, el("span", {}, label))
		})
		const tools = el("fieldset", { class: "tools" }, el("legend", {}, "A click"), ...choices)
		this.element = el("div", { class: "controls", hidden: true }, el("div", { class: "orders" }, tools, heal, this.apply), this.said)
	}

	show() {
		this.element.hidden = !this.network.hasControls
	}

	/** @param {string} name @param {string} hint */
	choose(name, hint) {
		this.tool = name
		this.picked.clear()
		this.apply.hidden = name !== "part"
		say(this.said, hint)
		this.onChange()
	}

	/** @param {Node} node @returns {boolean} whether the click was for us */
	onNode(node) {
		if (!this.network.hasControls || this.tool === "look") return false
		const name = node.name || node.id
		if (this.tool === "append") this.order({ action: "append", node: name, payload: { from: "page", n: this.number++ } }, `${name} appended`)
		else if (this.tool === "kill") {
			const action = node.isAlive ? "kill" : "restart"
			this.order({ action, node: name }, `${name}: ${action}`)
		} else {
			if (!this.picked.delete(node.id)) this.picked.add(node.id)
			if (this.tool === "cut" && this.picked.size === 2) {
				const [a, b] = [...this.picked].map((id) => this.network.nodes.get(id))
				this.picked.clear()
				if (a && b) this.turn(a, b, this.network.edges.get(`${a.id} ${b.id}`)?.style ?? this.network.edges.get(`${b.id} ${a.id}`)?.style)
			}
			this.onChange()
		}
		return true
	}

	/** @param {Node} a @param {Node} b @param {string} style */
	onLine(a, b, style) {
		if (this.network.hasControls && this.tool === "cut") this.turn(a, b, style)
	}

	/** @param {Node} a @param {Node} b @param {string | undefined} style */
	turn(a, b, style) {
		const action = style === "cut" ? "heal" : "cut"
		this.order({ action, nodes: [a.name || a.id, b.name || b.id] }, `${a.name} and ${b.name}: ${action}`)
	}

	partition() {
		const names = [...this.picked].map((id) => this.network.nodes.get(id)?.name || id)
		this.picked.clear()
		this.order({ action: "partition", nodes: names }, `${names.length} peers are on their own`)
	}

	/** @param {Record<string, unknown>} order @param {string} done */
	async order(order, done) {
		try {
			await this.api.post("glass/do", order)
			say(this.said, done)
			await this.network.read()
		} catch (error) {
			say(this.said, error instanceof Error ? error.message : String(error))
		}
		this.onChange()
	}
}
