// A file that `graph --format html` writes: a stretch of a log's graph, without the log.

import { el, fill, say, whole } from "./dom.js"
import { entryDetails } from "./entry_details.js"
import { LogList } from "./log_list.js"

/** @typedef {{id: string, parents: string[], clock: number, author: string, payload: string}} StoredEntry */

class FileModel {
	/** @param {StoredEntry[]} entries newest first */
	constructor(entries) {
		this.entries = entries
		this.count = entries.length
		this.rows = new Map(entries.map((entry, row) => [entry.id, row]))
		/** @type {Set<string>} */
		this.matches = new Set()
	}

	/** @param {number} row */
	entry(row) {
		const { id, author, clock, payload } = this.entries[row]
		return { id, author, clock, text: payload.slice(0, 200) }
	}

	/** @param {number} row A parent that is not in the file keeps its lane open to the end. */
	parentsOf(row) {
		return this.entries[row].parents.map((parent) => this.rows.get(parent) ?? this.count)
	}

	/** @param {string} id */
	rowOf(id) {
		return this.rows.get(id) ?? -1
	}

	/** @param {string} id */
	isMatch(id) {
		return this.matches.has(id)
	}

	/** @param {string} word @returns {string[]} ids, newest first */
	find(word) {
		const wanted = word.trim().toLowerCase()
		const found = this.entries.filter((entry) =>
			wanted !== "" && [entry.id, entry.author, entry.payload].some((text) => text.toLowerCase().includes(wanted)),
		)
		this.matches = new Set(found.map((entry) => entry.id))
		return [...this.matches]
	}
}

function openFile() {
	const data = document.querySelector("script[type='application/json']")
	const model = new FileModel(JSON.parse(data?.textContent ?? "[]"))
	const panel = el("aside", { "aria-live": "polite" }, el("p", {}, "Choose an entry to read it."))
	const count = el("output", { class: "count" })
	const list = new LogList((id) => (location.hash = `#/log/${id}`))
	const box = el("input", { type: "search", placeholder: "id, author or payload", "aria-label": "Search" })
	let at = -1

	/** @param {number} step */
	const goTo = (step) => {
		const found = model.find(box.value)
		at = found.length === 0 ? -1 : (at + step + found.length) % found.length
		say(count, box.value.trim() === "" ? "" : `${whole(found.length)} found`)
		if (at >= 0) list.bringIntoSight(model.rowOf(found[at]))
		list.redraw()
	}
	const follow = () => {
		const id = location.hash.replace(/^#\/log\//, "")
		const row = model.rowOf(id)
		if (row >= 0) fill(panel, entryDetails(model.entries[row]))
		else if (id !== "") fill(panel, el("p", {}, `Entry ${id.slice(0, 32)} is not in this file.`))
		list.choose(id)
	}
	box.addEventListener("input", () => ((at = -1), goTo(1)))
	box.addEventListener("keydown", (event) => event.key === "Enter" && goTo(event.shiftKey ? -1 : 1))
	document.querySelector("header")?.append(box, count)
	document.querySelector("main")?.append(list.element, panel)
	addEventListener("hashchange", follow)
	list.show(model)
	follow()
}

openFile()
