// One entry across the network: who had it when, from whom, and by which way.

import { dot, el, fill, plain, shortId, span, whole } from "./drawing/dom.js"
import { entryLink } from "./drawing/entry_details.js"
import { hueColour, rootColour } from "./drawing/palette.js"
import { nameIn } from "./network_view.js"
import { WhyPart } from "./why_part.js"

/**
 * @typedef {import("./facts.js").Fact} Fact
 * @typedef {object} Step
 * @property {string} node
 * @property {number} heard when it first heard of the entry
 * @property {number | null} had when it had it; null if it does not
 * @property {string} from
 * @property {string} way
 * @property {number} copies further ones that came
 * @property {number} sent to how many it passed it on
 * @property {string} note
 */

const WAY_HUES = { append: 150, gossip: 255, push: 200, sync: 55, reconcile: 85, http: 310, import: 20 }

export class WayView {
	title = "Entry’s way"

	/** @param {import("./main.js").Shared} shared */
	constructor(shared) {
		const { facts, network } = shared
		this.facts = facts
		this.network = network
		this.id = ""
		this.isOpen = false
		this.isAsked = false
		this.box = el("input", { type: "text", "aria-label": "Id of an entry", placeholder: "id of an entry", spellcheck: "false" })
		this.recent = el("div", { class: "recent" })
		this.chart = el("div", { class: "way-chart" })
		this.why = new WhyPart(shared, () => this.go())
		const form = el("form", { class: "search way-search" }, this.box, this.why.label, el("button", {}, "Show"))
		form.addEventListener("submit", (event) => {
			event.preventDefault()
			this.go()
		})
		this.element = el("div", { class: "way" }, form, this.why.element, this.chart, this.recent)
		facts.listeners.add(() => this.changed())
	}

	/** @param {string} rest @param {URLSearchParams} query */
	open(rest, query) {
		this.isOpen = true
		this.id = rest
		this.box.value = rest
		this.why.open(rest, query.get("peer") ?? "")
		this.show()
	}

	/** Show what the form says, also if it is shown already: something may have happened since. */
	go() {
		const address = this.address(this.box.value.trim())
		if (location.hash === address) this.why.ask()
		else location.hash = address
	}

	/** @param {string} id of an entry */
	address(id) {
		const peer = this.why.choice.value
		return `#/way/${encodeURIComponent(id)}${peer === "" ? "" : `?peer=${encodeURIComponent(peer)}`}`
	}

	close() {
		this.isOpen = false
	}

	changed() {
		if (!this.isOpen || this.isAsked) return
		this.isAsked = true
		setTimeout(() => {
			this.isAsked = false
			if (!this.isOpen) return
			this.show()
			this.why.changed()
		}, 250)
	}

	show() {
		this.showRecent()
		const facts = this.facts.ofEntry.get(this.id)
		if (this.id === "") fill(this.chart, el("p", { class: "hint" }, "Choose an entry below, or give an id, to see its way across the network."))
		else if (facts === undefined) fill(this.chart, el("p", { class: "hint" }, "Nothing of this entry is in the memory of any process that this page hears."))
		else this.draw(stepsOf(facts))
	}

	showRecent() {
		const ids = [...this.facts.ofEntry.keys()].slice(-12).reverse()
		const items = ids.map((id) => {
			const had = this.facts.ofEntry.get(id)?.filter(({ kind }) => kind === "deliver" || kind === "publish").length ?? 0
			return el("li", {}, el("a", { href: this.address(id), class: "id" }, shortId(id)), ` ${whole(had)} ${had === 1 ? "peer" : "peers"}`)
		})
		fill(this.recent, el("h2", {}, "Newest entries that something was heard of"), ids.length === 0 ? el("p", { class: "hint" }, "None yet.") : el("ul", {}, ...items))
	}

	/** @param {Step[]} steps */
	draw(steps) {
		const start = Math.min(...steps.map(({ heard }) => heard))
		const width = Math.max(...steps.map(({ heard, had }) => (had ?? heard) - start), 0.000_1)
		const end = start + width
		const rows = steps.map((step) => {
			const node = this.network.nodes.get(step.node)
			const bar = el("span", { class: `way-bar${step.had === null ? " missing" : ""}` })
			bar.style.setProperty("--from", `${(100 * (step.heard - start)) / width}%`)
			bar.style.setProperty("--to", `${(100 * (end - (step.had ?? end))) / width}%`)
			bar.style.setProperty("--colour", wayColour(step.way))
			const from = step.from === "" ? "" : `from ${nameIn(this.network, step.from)}`
			const when = step.had === null ? "does not have it" : step.had === start ? "first" : `+${span(step.had - start)}`
			return el(
				"tr",
				{},
				el("th", { scope: "row" }, dot(rootColour(node?.root)), " ", nameIn(this.network, step.node)),
				el("td", { class: "way-time" }, when),
				el("td", { class: "way-how" }, dot(wayColour(step.way), "square"), ` ${step.way} ${from}`.trimEnd(), step.copies > 0 && el("span", { class: "copies" }, ` +${step.copies} ${step.copies === 1 ? "copy" : "copies"}`), step.sent > 0 && el("span", { class: "copies" }, `, passed on to ${whole(step.sent)}`), step.note && ` ${plain(step.note)}`),
				el("td", { class: "way-place", "aria-hidden": "true" }, bar),
			)
		})
		const count = steps.filter(({ had }) => had !== null).length
		const within = count > 1 ? `, within ${span(width)}` : ""
		const caption = `${whole(count)} ${count === 1 ? "peer has" : "peers have"} it${within}`
		const head = el("tr", {}, ...["Peer", "After", "How", ""].map((title) => el("th", { scope: "col" }, title)))
		fill(
			this.chart,
			el("h2", {}, "Way of ", el("a", { href: entryLink(this.id), class: "id" }, shortId(this.id))),
			el("table", {}, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, ...rows)),
		)
	}
}

/** @param {string} way */
const wayColour = (way) => hueColour(WAY_HUES[/** @type {keyof typeof WAY_HUES} */ (way)] ?? 0)

/** What facts say of one entry, a step for each node, in the order in which they had it. @param {Fact[]} facts @returns {Step[]} */
export function stepsOf(facts) {
	/** @type {Map<string, Step>} */
	const steps = new Map()
	for (const { kind, node, peer, way, time_s, rule, reason, type, count } of facts) {
		const step = steps.get(node) ?? { node, heard: time_s, had: null, from: "", way: "", copies: 0, sent: 0, note: "" }
		steps.set(node, step)
		step.heard = Math.min(step.heard, time_s)
		if (kind === "publish" || kind === "deliver") {
			if (step.had === null || time_s < step.had) Object.assign(step, { had: time_s, from: peer ?? "", way: way ?? (kind === "publish" ? "append" : "gossip") })
		} else if (kind === "duplicate") step.copies++
		else if (kind === "send" && (type === "message" || type === "push")) step.sent += peer === undefined ? (count ?? 1) : 1
		else if (kind === "verdict") step.note = `${type ?? ""} ${rule ?? ""} ${reason ?? ""}`.trim()
		else if (kind === "waiting") step.note = `waits: ${reason ?? "a parent is missing"}`
		else if (kind === "aside") step.note = `set aside: ${reason ?? type ?? ""}`
	}
	return [...steps.values()].sort((a, b) => (a.had ?? Infinity) - (b.had ?? Infinity) || a.heard - b.heard)
}
