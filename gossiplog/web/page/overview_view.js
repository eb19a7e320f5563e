// The log in figures: how much there is, what happens now, and what was kept out.

import { Chart } from "./charts.js"
import { dot, el, fill, plain, say, shortId, shortName, size, span, whole } from "./drawing/dom.js"
import { entryLink } from "./drawing/entry_details.js"
import { rootColour } from "./drawing/palette.js"
import { percentile } from "./facts.js"
import { FindingsPart } from "./findings_part.js"
import { MembersPart } from "./members_part.js"

const TICK_MS = 1_000
const POLL_TICKS = 2
const MEMBERS_TICKS = 5
const SAMPLES_MAX = 240
const COUNTED_MAX = 1_000
const TROUBLES_MAX = 8
/** @type {Record<string, string>} */
const TROUBLES = { "dial-failed": "not reached", ban: "banned", aside: "set aside", drop: "no room to send", slow: "reads too slowly", full: "disk full" }

export class OverviewView {
	title = "Overview"

	/** @param {import("./main.js").Shared} shared */
	constructor({ api, facts }) {
		this.api = api
		this.facts = facts
		/** @type {number[]} */
		this.samples = []
		this.timer = 0
		this.ticks = 0
		/** @type {any} */
		this.record = null
		/** @type {Record<string, HTMLElement>} */
		this.values = {}
		this.root = el("dd", { class: "root-value" })
		this.heads = el("ul", { class: "heads" })
		this.rates = new Chart("Appends and receipts a second, last two minutes", [
			{ name: "receipts", colour: "accent" },
			{ name: "appends", colour: "warn" },
		])
		this.growth = new Chart("Entries, since this page was opened", [{ name: "entries", colour: "accent" }], true)
		this.note = el("p", { class: "note", hidden: true })
		this.troubles = el("section", { class: "lately", "aria-label": "Kept out, or failed, lately", hidden: true })
		this.shownTroubles = 0
		this.findings = new FindingsPart(api)
		this.members = new MembersPart(api)
		this.writing = this.makeWriting()
		this.element = el("div", { class: "overview" }, this.note, this.makeFacts(), this.findings.element, this.makeCharts(), this.makeHeads(), this.writing, this.members.element, this.troubles)
	}

	makeFacts() {
		const rows = [
			["entries", "Entries"],
			["heads", "Heads"],
			["clock", "Clock"],
			["peers", "Peers connected"],
			["latency", "From append to stored elsewhere, median"],
			["aside", "Set aside by applications"],
			["quarantine", "In quarantine"],
			["bytes", "Store"],
		]
		const items = rows.map(([name, label]) => {
			this.values[name] = el("dd", {}, "–")
			return el("div", { class: "figure" }, el("dt", {}, label), this.values[name])
		})
		const root = el("div", { class: "figure of-root" }, el("dt", {}, "Root: equal colours are equal logs"), this.root)
		return el("dl", { class: "figures" }, root, ...items)
	}

	makeCharts() {
		this.now = el("p", { class: "now" })
		return el(
			"div",
			{ class: "charts" },
			el("figure", {}, el("figcaption", {}, "Entries a second, last two minutes", this.now), this.rates.canvas),
			el("figure", {}, el("figcaption", {}, "Entries since this page was opened"), this.growth.canvas),
		)
	}

	makeHeads() {
		return el("section", { class: "heads-part", "aria-label": "Heads" }, el("h2", {}, "Heads"), this.heads)
	}

	makeWriting() {
		const box = el("textarea", { rows: "2", "aria-label": "Payload, as JSON or plain text", placeholder: 'a payload: {"text": "hello"} or plain words' })
		const said = el("p", { role: "status", class: "said" })
		const send = async () => {
			try {
				const { id } = await this.api.post("append", { payload: readPayload(box.value) })
				fill(said, "Appended ", el("a", { href: entryLink(id), class: "id" }, shortId(id)))
				box.value = ""
				this.read()
			} catch (error) {
				say(said, error instanceof Error ? error.message : String(error))
			}
		}
		const form = el("form", { class: "writing", hidden: true }, el("h2", {}, "Append"), box, el("button", {}, "Append"), said)
		form.addEventListener("submit", (event) => (event.preventDefault(), send()))
		return form
	}

	open() {
		this.read()
		this.findings.read()
		this.members.read()
		this.timer = window.setInterval(() => this.tick(), TICK_MS)
	}

	close() {
		clearInterval(this.timer)
	}

	tick() {
		if (document.hidden) return
		this.showRates()
		if (++this.ticks % POLL_TICKS === 0) this.read()
		if (this.ticks % MEMBERS_TICKS === 0 && !this.members.element.hidden) this.members.read()
	}

	async read() {
		try {
			this.show(await this.api.get("overview"))
			this.note.hidden = true
		} catch (error) {
			this.note.hidden = false
			say(this.note, error instanceof Error ? error.message : String(error))
		}
	}

	/** What was kept out and what failed, the latest first. */
	showTroubles() {
		const { troubles } = this.facts
		this.troubles.hidden = troubles.length === 0
		if (troubles.length === this.shownTroubles) return
		this.shownTroubles = troubles.length
		const items = troubles.slice(-TROUBLES_MAX).toReversed().map((fact) => {
			const { time_s, kind, peer, message, type, rule, reason } = fact
			const who = peer === undefined ? "" : ` ${shortName(peer)}`
			const why = [rule, reason].filter(Boolean).join(", ")
			const what = `${kind === "verdict" ? type : (TROUBLES[kind] ?? kind)}${who}${why === "" ? "" : `: ${why}`}`
			const link = message !== undefined && el("a", { href: `#/way/${encodeURIComponent(message)}`, class: "id" }, shortId(message))
			return el("li", {}, el("time", {}, new Date(1000 * time_s).toLocaleTimeString("en-GB")), " ", plain(what), " ", link)
		})
		fill(this.troubles, el("h2", {}, "Kept out, or failed, lately"), el("ul", { class: "plain" }, ...items))
	}

	/** @param {any} record */
	show(record) {
		this.record = record
		const { values } = this
		say(values.entries, whole(record.entries))
		say(values.heads, whole(record.head_count))
		say(values.clock, whole(record.clock))
		say(values.peers, whole(record.peers))
		say(values.bytes, size(record.bytes))
		say(values.aside, atLeast(record.set_aside))
		say(values.quarantine, atLeast(record.quarantine))
		values.aside.classList.toggle("wrong", record.set_aside > 0)
		values.quarantine.classList.toggle("wrong", record.quarantine > 0)
		fill(this.root, dot(rootColour(record.root.hash)), el("span", { class: "id", title: record.root.hash }, record.root.hash.slice(0, 4)), ` level ${record.root.level}`)
		const links = record.heads.toReversed().map((/** @type {string} */ id) => el("li", {}, el("a", { href: entryLink(id), class: "id" }, shortId(id))))
		const more = record.head_count - record.heads.length
		fill(this.heads, ...links, more > 0 && el("li", {}, `and ${whole(more)} more`), record.head_count === 0 && el("li", {}, "The log is empty."))
		this.writing.hidden = !record.can_append
		this.samples.push(record.entries)
		if (this.samples.length > SAMPLES_MAX) this.samples.shift()
		this.growth.show([this.samples], `${whole(record.entries)} now`)
	}

	showRates() {
		const { appends, receipts } = this.facts.rates(Date.now() / 1000)
		/** @param {number[]} values */
		const recent = (values) => values.slice(-10).reduce((sum, value) => sum + value, 0) / 10
		const words = `${recent(appends).toFixed(1)} appended, ${recent(receipts).toFixed(1)} received`
		if (this.now) fill(this.now, key("warn"), `${recent(appends).toFixed(1)} appended `, key("accent"), `${recent(receipts).toFixed(1)} received`)
		this.rates.show([receipts, appends], words)
		const { latencies } = this.facts
		const isKnown = latencies.length > 0
		say(this.values.latency, isKnown ? `${span(percentile(latencies, 0.5))} · p99 ${span(percentile(latencies, 0.99))}` : "not seen")
		this.values.latency.title = isKnown ? "" : "Seen of entries that were appended while this page was open, at servers that this one watches (--dashboard-watch)"
		this.showTroubles()
	}
}

/** @param {string} colour */
function key(colour) {
	return dot(`var(--${colour})`, "square")
}

/** @param {number} count */
const atLeast = (count) => (count >= COUNTED_MAX ? `${whole(COUNTED_MAX)} or more` : whole(count))

/** JSON where it is JSON, and otherwise the text itself. @param {string} text */
export function readPayload(text) {
	try {
		return JSON.parse(text)
	} catch {
		return text
	}
}

