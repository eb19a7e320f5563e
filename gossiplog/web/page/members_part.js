// Who may write, in a log that decides it itself: its members, and what membership says of one entry.

import { el, fill, say, shortId, shortName, whole } from "./drawing/dom.js"
import { entryLink } from "./drawing/entry_details.js"

/**
 * @typedef {object} Member
 * @property {string} node a founder's did, or the id of a grant
 * @property {string} did
 * @property {string} role
 * @property {string} person the node that a device belongs to
 * @property {string[]} path
 * @property {string[]} removedBy
 */

/** @param {string} node */
const nodeLink = (node) => (node.startsWith("did:") ? el("span", { class: "id", title: node }, shortName(node)) : el("a", { href: entryLink(node), class: "id" }, shortId(node)))

/** @param {string[]} ids */
const links = (ids) => ids.flatMap((id) => [" ", el("a", { href: entryLink(id), class: "id" }, shortId(id))])

export class MembersPart {
	/** @param {import("./api.js").Api} api */
	constructor(api) {
		this.api = api
		this.summary = el("p", { class: "summary" })
		this.list = el("ul", { class: "plain members" })
		this.element = el("section", { "aria-label": "Members", hidden: true }, el("h2", {}, "Members"), this.summary, this.list)
	}

	async read() {
		try {
			this.show(await this.api.get("members"))
		} catch {
			// A test network has no members; and whoever may watch need not be allowed to read the log.
			this.element.hidden = true
		}
	}

	/** @param {{members: Member[], more: boolean, k: number} | null} record */
	show(record) {
		this.element.hidden = record === null
		if (record === null) return
		const held = record.members.filter(({ removedBy }) => removedBy.length === 0).length
		const votes = record.k === 1 ? "" : `; ${record.k} founders together remove anybody`
		say(this.summary, `${whole(held)} ${record.more ? "of the first 1,000" : "now"}, ${whole(record.members.length - held)} removed${votes}`)
		fill(this.list, ...asTree(record.members).map((member) => this.item(member)))
	}

	/** @param {Member} member */
	item({ node, did, role, person, path, removedBy }) {
		const isFounder = path.length === 1
		const what = [isFounder ? "founder" : role, !isFounder && person !== node && "another device"].filter(Boolean).join(", ")
		const names = [el("span", { class: "id", title: did }, shortName(did)), " ", what, !isFounder && " · ", !isFounder && nodeLink(node)]
		const removed = removedBy.length > 0 && el("span", { class: "removed" }, " · removed by", ...links(removedBy))
		const item = el("li", {}, ...names, removed)
		item.style.setProperty("--level", String(path.length - 1))
		return item
	}
}

/** Each member after the one above it. @param {Member[]} members in the order in which they came */
function asTree(members) {
	const places = new Map(members.map(({ node }, place) => [node, String(place).padStart(6, "0")]))
	/** @param {Member} member */
	const way = ({ path }) => path.map((node) => places.get(node)).join()
	return members.toSorted((a, b) => (way(a) < way(b) ? -1 : 1))
}

/** @param {{counts: boolean, kind: string, node: string, role: string, rule: string, revokedBy: string[]} | null} standing @returns {HTMLElement | null} */
export function standingPart(standing) {
	if (standing === null) return null
	const { counts, kind, node, role, rule, revokedBy } = standing
	const under = node === "" ? [] : [", signed under ", nodeLink(node), ` (${role})`]
	const why = counts ? [] : [el("br"), `This ${rule} made it void:`, ...links(revokedBy)]
	return el("p", { class: "standing", "data-counts": String(counts) }, el("strong", {}, counts ? "Counts" : "Void"), ` as ${kind}`, ...under, ...why)
}
