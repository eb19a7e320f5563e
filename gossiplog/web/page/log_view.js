// The log: its graph, live; a search; the details of one entry; and the graph as it was.

import { el, fill, plain, say, shortId, shortName, whole } from "./drawing/dom.js"
import { entryDetails } from "./drawing/entry_details.js"
import { LogList } from "./drawing/log_list.js"
import { LogMoment } from "./log_data.js"
import { standingPart } from "./members_part.js"

const SEARCH_WAIT_MS = 250
const FOUND_MAX = 200
const KINDS = [
	["text", "Text", "words in the payload"],
	["author", "Author", "part of a did"],
	["id", "Id", "beginning of an id"],
	["path", "JSON path", "order.items.0 = 12"],
]

export class LogView {
	title = "Log"

	/** @param {import("./main.js").Shared} shared */
	constructor({ api, log }) {
		this.api = api
		this.log = log
		this.isOpen = false
		/** How many entries there were then; null for now. @type {number | null} */
		this.then = null
		this.shown = 0
		this.chosen = ""
		/** @type {Set<string>} */
		this.matches = new Set()
		this.searchNumber = 0
		this.timer = 0
		this.isAsked = false
		this.list = new LogList((id) => this.goTo(id))
		this.progress = el("p", { class: "summary", role: "status" })
		this.fresh = el("button", { class: "fresh", hidden: true, onclick: () => this.goToNow() })
		this.panel = el("aside", { "aria-live": "polite", "aria-label": "Entry" })
		this.standing = el("div")
		this.rounds = 0
		this.aside = el("span", { class: "aside", hidden: true }, "set aside")
		this.found = el("section", { class: "found", hidden: true, "aria-label": "Found" })
		this.slider = el("input", { type: "range", min: "0", max: "0", "aria-label": "Heads as of this entry, in order of insertion" })
		this.time = el("output", { class: "then" })
		this.now = el("button", { hidden: true, onclick: () => this.setThen(null) }, "Back to now")
		this.box = el("input", { type: "search", "aria-label": "Search for" })
		this.kind = el("select", { "aria-label": "Search in" }, ...KINDS.map(([name, label]) => el("option", { value: name }, label)))
		this.element = this.makeElement()
		log.listeners.add(() => this.changed())
	}

	makeElement() {
		const form = el("form", { class: "search", role: "search" }, this.kind, this.box)
		const placeholder = () => (this.box.placeholder = KINDS.find(([name]) => name === this.kind.value)?.[2] ?? "")
		placeholder()
		form.addEventListener("submit", (event) => (event.preventDefault(), this.search()))
		this.kind.addEventListener("change", () => (placeholder(), this.search()))
		this.box.addEventListener("input", () => {
			clearTimeout(this.timer)
			this.timer = window.setTimeout(() => this.search(), SEARCH_WAIT_MS)
		})
		this.slider.addEventListener("input", () => this.setThen(this.slider.valueAsNumber >= this.log.count ? null : this.slider.valueAsNumber))
		const travel = el("div", { class: "travel" }, el("label", {}, "As of", this.slider), this.time, this.now)
		const top = el("div", { class: "log-tools" }, form, travel, this.progress)
		return el("div", { class: "log" }, top, el("div", { class: "log-stage" }, this.fresh, this.list.element), el("div", { class: "log-side" }, this.found, this.panel))
	}

	/** @param {string} rest the id of an entry @param {URLSearchParams} query */
	open(rest, query) {
		this.isOpen = true
		this.log.open()
		const then = query.get("at")
		this.then = then === null || !/^\d{1,9}$/.test(then) ? null : Number(then)
		this.choose(rest)
		this.showNow()
	}

	close() {
		this.isOpen = false
	}

	changed() {
		if (this.isAsked || !this.isOpen) return
		this.isAsked = true
		requestAnimationFrame(() => {
			this.isAsked = false
			this.showNow()
		})
	}

	/** Show what there is; whoever reads further down is not disturbed, but told that there is more. */
	showNow() {
		const { log, list } = this
		const count = Math.min(log.count, this.then ?? log.count)
		const isReading = this.then === null && this.shown > 0 && !list.isAtTop && log.progress >= 1 && count > this.shown
		if (isReading) say(this.fresh, `${whole(count - this.shown)} new`)
		else if (count !== this.shown || list.model === null) {
			list.show(new LogMoment(log, count, this.matches))
			this.shown = count
			if (this.chosen !== "" && !this.isFound) this.isFound = list.choose(this.chosen)
		} else list.redraw()
		this.fresh.hidden = !isReading
		this.aside.hidden = !log.aside.has(this.chosen)
		if (log.rounds !== this.rounds) {
			this.rounds = log.rounds
			this.showStanding(this.chosen)
		}
		this.slider.max = String(log.count)
		this.slider.value = String(this.then ?? log.count)
		say(this.time, this.then === null ? "now" : `${whole(count)} entries`)
		this.now.hidden = this.then === null
		const read = log.progress < 1 ? `, ${Math.floor(100 * log.progress)} % read` : ""
		say(this.progress, log.error !== "" ? log.error : `${whole(log.count)} entries${read}`)
	}

	goToNow() {
		this.shown = 0
		this.list.scrollToTop()
		this.showNow()
	}

	/** @param {number | null} then */
	setThen(then) {
		this.then = then
		history.replaceState(null, "", this.address(this.chosen))
		this.list.scrollToTop()
		this.showNow()
	}

	/** @param {string} id */
	address(id) {
		return `#/log${id === "" ? "" : `/${id}`}${this.then === null ? "" : `?at=${this.then}`}`
	}

	/** @param {string} id */
	goTo(id) {
		location.hash = this.address(id)
	}

	/** @param {string} id */
	choose(id) {
		if (id === this.chosen && id !== "") return
		this.chosen = id
		this.aside.hidden = !this.log.aside.has(id)
		this.isFound = this.list.choose(id)
		if (id === "") fill(this.panel, el("p", { class: "hint" }, "Choose an entry to read it.", el("span", { class: "of-keys" }, " In the list: arrow keys, Enter, and p for the parent.")))
		else this.showEntry(id)
	}

	/** @param {string} id */
	async showEntry(id) {
		try {
			fill(this.standing)
			const [entry] = await Promise.all([this.api.get(`messages/${encodeURIComponent(id)}`), this.showStanding(id)])
			if (id !== this.chosen) return
			const { clock, parents, payload } = entry.message
			const way = el("p", { class: "actions" }, this.aside, " ", el("a", { href: `#/way/${id}` }, "How it came here and where it went"))
			const words = JSON.stringify(payload, null, 2) ?? ""
			fill(this.panel, entryDetails({ id, author: entry.signature.publicKey, clock, parents, payload: words }, this.standing, way))
		} catch (error) {
			if (id !== this.chosen) return
			const why = el("a", { href: `#/way/${encodeURIComponent(id)}` }, "Why?")
			fill(this.panel, el("p", {}, error instanceof Error ? `${error.message}. ` : String(error), why))
		}
	}

	/** What membership says of an entry, which a late removal changes. @param {string} id */
	async showStanding(id) {
		if (id === "") return
		// A test network serves no standings.
		const standing = await this.api.get("standing", { entry: id }).catch(() => null)
		if (id === this.chosen) fill(this.standing, standingPart(standing))
	}

	async search() {
		const number = ++this.searchNumber
		const word = this.box.value.trim()
		this.matches.clear()
		this.found.hidden = word === ""
		this.list.redraw()
		if (word === "") return
		const query = this.kind.value === "path" ? pathQuery(word) : { [this.kind.value]: word }
		/** @type {any[]} */
		const all = []
		try {
			let before = undefined
			do {
				const { found, next } = await this.api.get("search", { ...query, before, limit: FOUND_MAX })
				if (number !== this.searchNumber) return
				all.push(...found)
				before = next ?? undefined
				this.showFound(all, before !== undefined && all.length < FOUND_MAX)
			} while (before !== undefined && all.length < FOUND_MAX)
		} catch (error) {
			if (number === this.searchNumber) fill(this.found, el("p", {}, error instanceof Error ? error.message : String(error)))
		}
	}

	/** @param {any[]} found @param {boolean} isMore */
	showFound(found, isMore) {
		for (const { id } of found) this.matches.add(id)
		this.list.redraw()
		const count = found.length >= FOUND_MAX ? `The newest ${FOUND_MAX}` : whole(found.length)
		const items = found.map(({ id, author, text }) =>
			el("li", {}, el("a", { href: this.address(id), class: "id" }, shortId(id)), " ", el("span", { class: "by" }, shortName(author)), el("span", { class: "text" }, plain(text))),
		)
		fill(this.found, el("h2", { role: "status" }, isMore ? `${count} found, looking on` : `${count} found`), el("ul", {}, ...items))
	}

	isFound = false
}

/** `a.b.0 = 12` @param {string} text */
function pathQuery(text) {
	const [path, ...rest] = text.split("=")
	return { path: path.trim(), value: rest.length > 0 ? rest.join("=").trim() : undefined }
}
