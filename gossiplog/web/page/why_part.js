// Why an entry is where it is, in the server's words: of itself, or of itself and one peer.

import { ApiError } from "./api.js"
import { el, fill, plain, withCode } from "./drawing/dom.js"
import { nameIn } from "./network_view.js"

const AGAIN_MS = 1_000

export class WhyPart {
	/** @param {import("./main.js").Shared} shared @param {() => void} onChoice somebody chose a peer */
	constructor({ api, facts, network }, onChoice) {
		this.api = api
		this.facts = facts
		this.network = network
		this.id = ""
		this.peer = ""
		this.factsThen = 0
		this.again = 0
		this.offered = ""
		this.choice = el("select", { onchange: onChoice })
		this.label = el("label", { class: "of-peer", title: "Who has the entry, or lacks it" }, "Peer ", this.choice)
		this.element = el("p", { class: "why", role: "status", hidden: true })
		network.listeners.add(() => this.offer())
	}

	/** @param {string} id of an entry; empty for none @param {string} peer empty for nobody in particular */
	open(id, peer) {
		Object.assign(this, { id, peer })
		this.element.hidden = true
		this.offer()
		this.ask()
	}

	/** Let one choose among those whom the server knows. */
	offer() {
		const { network, peer } = this
		/** @type {string[]} */
		const connected = (network.peers?.peers ?? []).map((/** @type {any} */ told) => told.peer)
		const banned = (network.peers?.bans ?? []).map((/** @type {any} */ ban) => ban.peer)
		const others = [...network.nodes.values()].filter(({ isOurs, id }) => !isOurs && !id.includes("://")).map(({ id }) => id)
		const away = [...new Set([...banned, ...others, ...(peer === "" ? [] : [peer])])].filter((id) => !connected.includes(id))
		// A test network knows many, and answers for none of them.
		this.label.hidden = network.peers === null && peer === ""
		const offered = JSON.stringify([connected, away, peer])
		if (offered === this.offered) return
		this.offered = offered
		fill(this.choice, el("option", { value: "" }, "nobody in particular"), this.group("Connected", connected), this.group("Not connected", away))
		this.choice.value = peer
	}

	/** @param {string} label @param {string[]} ids */
	group(label, ids) {
		if (ids.length === 0) return null
		return el("optgroup", { label }, ...ids.map((id) => el("option", { value: id, title: id }, plain(nameIn(this.network, id)))))
	}

	/** Ask again where something happened to the entry since, though not more often than once a second. */
	changed() {
		if (this.again !== 0 || this.count() === this.factsThen) return
		this.again = window.setTimeout(() => {
			this.again = 0
			this.ask()
		}, AGAIN_MS)
	}

	count() {
		return this.facts.ofEntry.get(this.id)?.length ?? 0
	}

	async ask() {
		const { id, peer } = this
		if (id === "") return
		this.factsThen = this.count()
		/** @type {{state?: string, cause?: string, text: string}} */
		let answer = { text: "" }
		try {
			answer = await this.api.get("why", { entry: id, peer })
		} catch (error) {
			// A server of no log cannot say; the facts that came say how far the entry got.
			const isNone = error instanceof ApiError && error.status === 404
			if (error instanceof Error && !isNone && (peer !== "" || this.count() === 0)) answer = { text: error.message }
		}
		if (id !== this.id || peer !== this.peer) return
		const { state = "", cause = "", text } = answer
		// What is well says that it is here by itself.
		const verdict = cause === "" || cause === "here" ? "" : `${state === "present" ? "Here" : "Not here"}, ${cause}: `
		this.element.hidden = text === ""
		// What did not change is not said again to who listens to the page.
		const said = el("span", {}, ...withCode(text))
		if (this.element.textContent !== verdict + said.textContent) fill(this.element, verdict !== "" && el("strong", {}, verdict), said)
	}
}
