// The facts that came while the page is open, as far as views need them: by entry, by second, and what went wrong.

/**
 * @typedef {object} Fact see docs/glass.md
 * @property {number} seq
 * @property {number} time_s
 * @property {string} kind
 * @property {string} node
 * @property {string} [peer]
 * @property {string} [type]
 * @property {string} [message]
 * @property {number} [count]
 * @property {number} [bytes]
 * @property {string} [way]
 * @property {string} [rule]
 * @property {string} [reason]
 */

const ENTRIES_MAX = 20_000
const OF_ENTRY_MAX = 2_000
const SECONDS = 120
const LATENCIES_MAX = 4_096
const OF_ENTRIES = new Set(["publish", "deliver", "duplicate", "ihave", "verdict", "waiting", "aside", "send"])

export class Facts {
	/** @param {import("./api.js").Api} api */
	constructor(api) {
		this.api = api
		/** @type {Map<string, Fact[]>} facts of an entry, those of the entry that came last at the end */
		this.ofEntry = new Map()
		/** @type {Set<(facts: Fact[]) => void>} */
		this.listeners = new Set()
		/** @type {Set<(state: string) => void>} */
		this.watchers = new Set()
		/** By second of Unix time: own appends and receipts. @type {Map<number, {appends: number, receipts: number}>} */
		this.seconds = new Map()
		/** Seconds from an append to its being stored elsewhere, the newest last. @type {number[]} */
		this.latencies = []
		/** @type {Fact[]} what went wrong, the newest last */
		this.troubles = []
		this.count = 0
		this.gaps = 0
		this.state = "connecting"
		/** @type {Record<string, unknown>} */
		this.hello = {}
	}

	/** Follow all watched processes, or where the server knows of one only, that one. @param {number} [past] facts to begin with, instead of 5,000 */
	open(past) {
		this.follow(`glass/facts${past === undefined ? "" : `?past=${past}`}`, () => this.follow("facts", () => this.become("off")))
	}

	/** @param {string} path @param {() => void} onRefused */
	follow(path, onRefused) {
		const source = this.api.stream(path)
		source.addEventListener("hello", (event) => {
			this.hello = JSON.parse(event.data)
			this.become("live")
		})
		source.addEventListener("facts", (event) => this.take(JSON.parse(event.data)))
		source.addEventListener("gap", () => this.gaps++)
		source.addEventListener("open", () => this.become("live"))
		source.addEventListener("error", () => {
			// A browser gives up where the answer is no stream, and comes back where it broke.
			if (source.readyState === EventSource.CLOSED) onRefused()
			else this.become("reconnecting")
		})
	}

	/** @param {string} state */
	become(state) {
		this.state = state
		for (const watcher of this.watchers) watcher(state)
	}

	/** @param {Fact[]} facts */
	take(facts) {
		for (const fact of facts) this.add(fact)
		for (const listener of this.listeners) listener(facts)
	}

	/** @param {Fact} fact */
	add(fact) {
		this.count++
		const { kind, message } = fact
		if (kind === "publish" || kind === "deliver") this.measure(fact)
		if (["verdict", "dial-failed", "ban", "refused", "aside", "drop", "slow", "full"].includes(kind)) {
			this.troubles.push(fact)
			if (this.troubles.length > 200) this.troubles.shift()
		}
		if (message === undefined || !OF_ENTRIES.has(kind)) return
		const known = this.ofEntry.get(message)
		if (known === undefined) {
			this.ofEntry.set(message, [fact])
			if (this.ofEntry.size > ENTRIES_MAX) this.ofEntry.delete(this.ofEntry.keys().next().value ?? "")
		} else if (known.length < OF_ENTRY_MAX) known.push(fact)
	}

	/** @param {Fact} fact */
	measure({ kind, message, time_s, node, count }) {
		const second = Math.floor(time_s)
		const sums = this.seconds.get(second) ?? { appends: 0, receipts: 0 }
		if (kind === "publish") sums.appends += 1
		else sums.receipts += message === undefined ? (count ?? 1) : 1
		this.seconds.set(second, sums)
		if (this.seconds.size > 2 * SECONDS) this.seconds.delete(this.seconds.keys().next().value ?? 0)
		const published = kind === "deliver" && message !== undefined ? this.publishOf(message) : undefined
		if (published !== undefined && published.node !== node && time_s >= published.time_s) {
			this.latencies.push(time_s - published.time_s)
			if (this.latencies.length > LATENCIES_MAX) this.latencies.splice(0, LATENCIES_MAX / 2)
		}
	}

	/** @param {string} message */
	publishOf(message) {
		return this.ofEntry.get(message)?.find(({ kind, way }) => kind === "publish" || (kind === "deliver" && way === "http"))
	}

	/** The last minutes, a value a second, up to now. @param {number} now in Unix seconds */
	rates(now) {
		const end = Math.floor(now)
		const times = Array.from({ length: SECONDS }, (_, at) => end - SECONDS + at)
		return {
			appends: times.map((time) => this.seconds.get(time)?.appends ?? 0),
			receipts: times.map((time) => this.seconds.get(time)?.receipts ?? 0),
		}
	}
}

/** @param {number[]} values @param {number} share */
export function percentile(values, share) {
	const sorted = Float64Array.from(values).sort()
	return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? NaN
}
