// What the page asks of its server, and how it learns of what happens.

/** A refusal or a failure, in the server's own words. */
export class ApiError extends Error {
	/** @param {number} status of HTTP; 0: there was no answer @param {string} message */
	constructor(status, message) {
		super(message)
		this.status = status
	}
}

/** @param {string} text of an answer that is none, plain or as JSON */
function reasonIn(text) {
	try {
		return String(JSON.parse(text).error).slice(0, 400)
	} catch {
		return text.slice(0, 400)
	}
}

const TOKEN = "gossiplog-token"

export class Api {
	/** @param {string} base path of the log's API @param {string} token empty if there is none */
	constructor(base, token) {
		this.base = base
		this.token = token
	}

	/** @param {string} path @param {Record<string, string | number | undefined>} [query] @returns {Promise<any>} */
	async get(path, query = {}) {
		const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "")
		const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)]))
		return this.ask(`${path}${given.length > 0 ? `?${search}` : ""}`, {})
	}

	/** @param {string} path @param {unknown} body @returns {Promise<any>} */
	async post(path, body) {
		return this.ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) })
	}

	/** @param {string} path @param {RequestInit} options @returns {Promise<any>} */
	async ask(path, options) {
		return (await this.answer(path, options)).value
	}

	/** @param {string} path @param {RequestInit} [options] @returns {Promise<{value: any, headers: Headers}>} */
	async answer(path, options = {}) {
		const headers = new Headers(options.headers)
		if (this.token !== "") headers.set("authorization", `Bearer ${this.token}`)
		const answer = await fetch(`${this.base}/${path}`, { ...options, headers }).catch(() => {
			throw new ApiError(0, "The server does not answer; what is shown is what it told last.")
		})
		const text = (await answer.text()).trim()
		if (!answer.ok) throw new ApiError(answer.status, reasonIn(text) || answer.statusText)
		return { value: text === "" ? null : JSON.parse(text), headers: answer.headers }
	}

	/** Follow server-sent events; the browser comes back by itself, and names the last event that it got. @param {string} path */
	stream(path) {
		const token = this.token === "" ? "" : `${path.includes("?") ? "&" : "?"}token=${encodeURIComponent(this.token)}`
		return new EventSource(`${this.base}/${path}${token}`)
	}
}

/**
 * Find out which logs there are, and take the one that the address names, or the busiest, or the first.
 * @returns {Promise<{api: Api, topics: string[], topic: string, views: string[], traces: {name: string, url: string}[], find: Find | null}>}
 * `views`: all that the server has something for; empty: every one. `traces`: to be played. `find`: searches the logs of a shelf
 *
 * @typedef {(text: string) => Promise<string[]>} Find the busiest logs, if the text is empty
 */
export async function openApi() {
	const server = new Api(".", takeToken())
	let [shelf, busiest] = [false, /** @type {string[]} */ ([])]
	let [topics, views, traces] = [/** @type {string[]} */ ([]), /** @type {string[]} */ ([]), /** @type {any[]} */ ([])]
	/** @param {string} like */
	const list = async (like) => (await server.answer(like === "" ? "" : `?like=${encodeURIComponent(like)}`, { headers: { accept: "application/json" } })).value
	try {
		;({ topics = [], busiest = [], shelf = false, views = [], traces = [] } = await list(""))
	} catch {
		// A server of something else than logs, as a test network's, has its API where a single log's is.
	}
	const wanted = new URLSearchParams(location.search).get("topic")
	// A shelf does not list all, and need not show us that one.
	const topic = wanted !== null && (shelf || topics.includes(wanted)) ? wanted : (busiest[0] ?? topics[0] ?? "")
	const path = topics.length > 1 || (shelf && topic !== "") ? `${encodeURIComponent(topic)}/api` : "api"
	/** @type {Find} */
	const find = async (text) => (text === "" ? [...new Set([...busiest, ...topics])] : (await list(text)).topics)
	return { api: new Api(path, server.token), topics, topic, views, traces, find: shelf ? find : null }
}

/** A token comes once, in the address, where it would be copied along with it; then the tab keeps it. */
function takeToken() {
	const search = new URLSearchParams(location.search)
	const given = search.get("token")
	if (given !== null) {
		sessionStorage.setItem(TOKEN, given)
		search.delete("token")
		history.replaceState(null, "", `${location.pathname}${search.size > 0 ? `?${search}` : ""}${location.hash}`)
	}
	return sessionStorage.getItem(TOKEN) ?? ""
}
