// The page: which view is shown, and what all of them share. Source: docs/glass.md.

import { openApi } from "./api.js"
import { el, fill, say } from "./drawing/dom.js"
import { Facts } from "./facts.js"
import { LogData } from "./log_data.js"
import { LogView } from "./log_view.js"
import { NetworkModel } from "./network_model.js"
import { NetworkView } from "./network_view.js"
import { OverviewView } from "./overview_view.js"
import { SimulatorView } from "./simulator_view.js"
import { WayView } from "./way_view.js"

/**
 * @typedef {object} Shared
 * @property {import("./api.js").Api} api
 * @property {Facts} facts
 * @property {LogData} log
 * @property {NetworkModel} network
 *
 * @typedef {object} View
 * @property {HTMLElement} element
 * @property {string} title
 * @property {(rest: string, query: URLSearchParams) => void} open shown from now on, or shown with another address
 * @property {() => void} close
 */

const PAST = 30_000
const FOUND_MAX = 50
const STATES = {
	connecting: "connecting",
	live: "live",
	reconnecting: "connection lost, coming back",
	off: "no live facts: start the server with --dashboard",
}

async function openPage() {
	const { api, topics, topic, views: served, traces, find } = await openApi()
	const facts = new Facts(api)
	const log = new LogData(api, facts)
	const network = new NetworkModel(api, facts)
	/** @type {Shared} */
	const shared = { api, facts, log, network }
	const place = /** @type {HTMLElement} */ (document.getElementById("view"))
	const status = /** @type {HTMLElement} */ (document.getElementById("status"))
	/** @type {Record<string, () => View>} */
	const makers = {
		overview: () => new OverviewView(shared),
		network: () => new NetworkView(shared),
		log: () => new LogView(shared),
		way: () => new WayView(shared),
		simulator: () => new SimulatorView(traces),
	}
	const names = Object.keys(makers).filter((name) => served.length === 0 || served.includes(name))
	/** @type {Map<string, View>} */
	const views = new Map()
	let shown = ""

	const follow = () => {
		const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2)
		const [first, ...rest] = path.split("/")
		const name = names.includes(first) ? first : names[0]
		if (name !== shown) views.get(shown)?.close()
		const view = views.get(name) ?? makers[name]()
		views.set(name, view)
		if (name !== shown) fill(place, view.element)
		shown = name
		place.className = `view-${name}`
		document.title = `${view.title} · ${topic || "GossipLog"}`
		for (const link of document.querySelectorAll("nav a")) {
			const isCurrent = link.getAttribute("href") === `#/${name}`
			link.toggleAttribute("data-current", isCurrent)
			if (isCurrent) link.setAttribute("aria-current", "page")
			else link.removeAttribute("aria-current")
		}
		view.open(decoded(rest.join("/")), new URLSearchParams(query))
	}

	showTopics(topics, topic, find)
	if (find !== null && topic === "") {
		for (const link of document.querySelectorAll("nav a")) link.toggleAttribute("hidden", true)
		fill(place, el("p", {}, "There is no log here yet, or none that you may read."))
		document.body.dataset.ready = "true"
		return
	}
	for (const link of document.querySelectorAll("nav a")) link.toggleAttribute("hidden", !names.includes((link.getAttribute("href") ?? "").slice(2)))
	facts.watchers.add((state) => {
		say(status, STATES[/** @type {keyof typeof STATES} */ (state)] ?? state)
		status.dataset.state = state
	})
	document.querySelector(".skip")?.addEventListener("click", (event) => {
		event.preventDefault()
		place.focus()
	})
	addEventListener("hashchange", follow)
	addEventListener("keydown", (event) => goByNumber(event, Object.keys(makers)))
	follow()
	if (names.length > 1) {
		// Who serves no log tells of many peers, and its facts are all that there is to see.
		facts.open(names.includes("log") ? undefined : PAST)
		network.open()
	} else say(status, "traces; nothing is live")
	document.body.dataset.ready = "true"
}

/** What stands in an address, which anybody may have typed. @param {string} text */
function decoded(text) {
	try {
		return decodeURIComponent(text)
	} catch {
		return text
	}
}

/** @param {string[]} topics @param {string} topic @param {import("./api.js").Find | null} find */
function showTopics(topics, topic, find) {
	const heading = /** @type {HTMLElement} */ (document.getElementById("topic"))
	say(heading, topic || "GossipLog")
	/** @param {string} name */
	const show = (name) => (location.search = `?topic=${encodeURIComponent(name)}`)
	if (find !== null) {
		fill(heading, ...searched(topic, find, show))
		return
	}
	if (topics.length < 2) return
	const choice = el(
		"select",
		{ "aria-label": "Log", onchange: () => show(choice.value) },
		...topics.map((name) => el("option", { value: name, selected: name === topic }, name)),
	)
	fill(heading, choice)
}

/** What finds one of any number of logs. @param {string} topic @param {import("./api.js").Find} find @param {(topic: string) => void} show */
function searched(topic, find, show) {
	const found = el("datalist", { id: "topics" })
	const look = async () => {
		const text = input.value === topic ? "" : input.value
		const names = await find(text).catch(() => [])
		// What was typed meanwhile is looked for by its own search.
		if (text !== (input.value === topic ? "" : input.value)) return
		fill(found, ...names.slice(0, FOUND_MAX).map((name) => el("option", { value: name })))
	}
	/** @type {HTMLInputElement} */
	const input = el("input", {
		"aria-label": "Log",
		class: "topic-search",
		type: "search",
		value: topic,
		placeholder: "Find a log",
		spellcheck: "false",
		autocomplete: "off",
		oninput: () => void look(),
		onfocus: () => input.select(),
		onchange: () => input.value !== "" && input.value !== topic && show(input.value),
	})
	input.setAttribute("list", "topics")
	void look()
	return [input, found]
}

/** Keys 1 to 5 show the views. @param {KeyboardEvent} event @param {string[]} names */
function goByNumber(event, names) {
	const isTyping = event.target instanceof Element && event.target.matches("input, textarea, select")
	const name = names[Number(event.key) - 1]
	if (!isTyping && name !== undefined && !event.ctrlKey && !event.metaKey && !event.altKey) location.hash = `#/${name}`
}

openPage().catch((error) => say(/** @type {HTMLElement} */ (document.getElementById("status")), String(error)))
