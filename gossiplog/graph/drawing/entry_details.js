// The details of one entry; its parents are links.

import { authorColour } from "./palette.js"
import { dot, el, plain, shortId, shortName, whole } from "./dom.js"

/** The permalink of an entry. @param {string} id */
export const entryLink = (id) => `#/log/${id}`

/**
 * @param {object} entry
 * @param {string} entry.id
 * @param {string} entry.author
 * @param {number} entry.clock
 * @param {string[]} entry.parents
 * @param {string} entry.payload as text
 * @param {...(Node | null)} more further children
 * @returns {HTMLElement}
 */
export function entryDetails({ id, author, clock, parents, payload }, ...more) {
	const links = parents.map((parent) => el("li", {}, el("a", { href: entryLink(parent), class: "id" }, shortId(parent))))
	return el(
		"article",
		{ class: "details", "aria-label": `Entry ${shortId(id)}` },
		el("h2", {}, dot(authorColour(author), "square"), el("a", { href: entryLink(id), class: "id", title: "Link to this entry" }, id)),
		el(
			"dl",
			{},
			el("dt", {}, "Author"),
			el("dd", {}, el("span", { class: "id", title: author }, shortName(author))),
			el("dt", {}, "Clock"),
			el("dd", {}, whole(clock)),
			el("dt", {}, parents.length === 1 ? "Parent" : "Parents"),
			el("dd", {}, parents.length === 0 ? "none: it begins a history" : el("ul", { class: "parents" }, ...links)),
		),
		...more,
		el("h3", {}, "Payload"),
		el("pre", { class: "payload", tabindex: "0" }, plain(payload)),
	)
}
