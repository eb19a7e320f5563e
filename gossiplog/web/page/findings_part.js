// What the doctor finds at this server: asked when the overview is opened and when somebody wants it, as each look reads some of the log.

import { ApiError } from "./api.js"
import { el, fill, say, whole, withCode } from "./drawing/dom.js"

/**
 * @typedef {object} Finding see docs/glass.md, "Doctor"
 * @property {string} check
 * @property {string} severity
 * @property {string} text
 * @property {string} advice
 */

/** From the worst to the least. */
const SEVERITIES = ["error", "warning", "note", "ok"]

export class FindingsPart {
	/** @param {import("./api.js").Api} api */
	constructor(api) {
		this.api = api
		this.summary = el("p", { class: "summary", role: "status" })
		this.button = el("button", { onclick: () => this.read() }, "Look again")
		this.list = el("ul", { class: "findings" })
		this.fine = el("ul", { class: "findings" })
		this.rest = el("details", {}, el("summary", {}, "What is fine"), this.fine)
		const head = el("div", { class: "findings-head" }, el("h2", {}, "Doctor"), this.summary, this.button)
		this.element = el("section", { class: "doctor", "aria-label": "Doctor", hidden: true }, head, this.list, this.rest)
	}

	async read() {
		if (this.button.disabled) return
		this.button.disabled = true
		try {
			this.show((await this.api.get("doctor")).findings)
			this.element.hidden = false
		} catch (error) {
			// A test network has no doctor of its own; its peers do.
			this.element.hidden = error instanceof ApiError && error.status === 404
			fill(this.list)
			this.rest.hidden = true
			say(this.summary, error instanceof Error ? error.message : String(error))
		}
		this.button.disabled = false
	}

	/** @param {Finding[]} findings */
	show(findings) {
		const sorted = findings.toSorted((a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity))
		const wrong = sorted.filter(({ severity }) => severity !== "ok")
		const fine = sorted.filter(({ severity }) => severity === "ok")
		const grave = wrong.filter(({ severity }) => severity !== "note").length
		const time = new Date().toLocaleTimeString("en-GB")
		say(this.summary, `${grave === 0 ? "Nothing" : whole(grave)} to mend, ${whole(fine.length)} ${fine.length === 1 ? "check" : "checks"} fine, at ${time}`)
		fill(this.list, ...wrong.map(row))
		fill(this.fine, ...fine.map(row))
		this.rest.hidden = fine.length === 0
	}
}

/** @param {Finding} finding */
function row({ check, severity, text, advice }) {
	return el(
		"li",
		{ class: "finding", "data-severity": severity },
		el("span", { class: "severity" }, severity),
		el("div", {}, el("p", {}, el("span", { class: "check" }, check), " ", ...withCode(text)), advice !== "" && el("p", { class: "advice" }, ...withCode(advice))),
	)
}
