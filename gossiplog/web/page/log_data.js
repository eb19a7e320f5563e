// The log's graph in the page: 100,000 entries in columns, brought in pages, and kept up to date by insertion numbers alone,
// so that nothing can be missed whatever happened to the connection.

/** @typedef {import("./drawing/log_list.js").Summary} Summary */

const PAGE = 2048
const TEXT_PAGE = 64
const POLL_MS = 5_000
const SOON_MS = 120
const DOUBT_MS = 1_000

export class LogData {
	/** @param {import("./api.js").Api} api @param {import("./facts.js").Facts} facts */
	constructor(api, facts) {
		this.api = api
		/** By place, the oldest entry first. @type {number[]} */
		this.seqs = []
		/** @type {string[]} */
		this.ids = []
		/** @type {number[]} */
		this.clocks = []
		/** @type {number[]} */
		this.authors = []
		/** Places of parents. @type {Int32Array[]} */
		this.parents = []
		/** @type {(string | undefined)[]} */
		this.texts = []
		/** @type {string[]} */
		this.dids = []
		/** @type {Map<string, number>} */
		this.didNumbers = new Map()
		/** @type {Map<string, number>} */
		this.places = new Map()
		/** @type {Set<() => void>} */
		this.listeners = new Set()
		/** Ids of what applications could make nothing of. @type {Set<string>} */
		this.aside = new Set()
		/** Ids of what is void, among the entries whose texts are here. @type {Set<string>} */
		this.void = new Set()
		/** Whether the log has members, and so entries that may become void, or count again, at any time. */
		this.hasMembers = false
		/** How often all standings came into doubt: something came, which may be a removal. */
		this.rounds = 0
		this.doubtedAt = 0
		/** In which round each part was read last; what is in sight is read in each. @type {number[]} */
		this.readIn = []
		this.last = 0
		this.reached = 0
		this.error = ""
		this.isOpen = false
		this.isReading = false
		this.isWanted = false
		this.isChanged = false
		/** @type {Set<number>} */
		this.asked = new Set()
		facts.listeners.add((all) => {
			if (all.some(({ kind }) => kind === "publish" || kind === "deliver" || kind === "aside")) this.wake()
		})
		facts.watchers.add((state) => state === "live" && this.wake())
		setInterval(() => this.wake(), POLL_MS)
	}

	/** Begin to read, and never stop. */
	open() {
		this.isOpen = true
		this.wake()
	}

	get count() {
		return this.ids.length
	}

	/** How far reading has come, from 0 to 1. */
	get progress() {
		return this.last === 0 ? 1 : Math.min(1, this.reached / this.last)
	}

	wake() {
		this.isWanted = true
		if (!this.isOpen || this.isReading || document.hidden) return
		this.isReading = true
		setTimeout(() => this.read().finally(() => (this.isReading = false)), this.count === 0 ? 0 : SOON_MS)
	}

	async read() {
		try {
			while (this.isWanted) {
				this.isWanted = false
				for (let isMore = true; isMore; ) isMore = await this.readPage()
			}
			this.aside = new Set((await this.api.get("aside")).ids)
			this.doubtStandings()
			this.error = ""
		} catch (error) {
			this.error = error instanceof Error ? error.message : String(error)
		}
		this.tell()
	}

	/** @returns {Promise<boolean>} whether there is more */
	async readPage() {
		const page = await this.api.get("graph", { after: this.reached, limit: PAGE })
		if (page.last < this.reached) this.clear()
		this.last = page.last
		/** @type {number[]} */
		const numbers = page.authors.map((/** @type {string} */ did) => this.numberOf(did))
		for (let at = 0; at < page.seq.length; at++) {
			const place = this.ids.length
			this.seqs.push(page.seq[at])
			this.ids.push(page.id[at])
			this.places.set(page.id[at], place)
			this.clocks.push(page.clock[at])
			this.authors.push(numbers[page.author[at]])
			this.parents.push(Int32Array.from(page.parents[at].map((/** @type {number} */ seq) => this.placeAt(seq))))
		}
		this.reached = page.more ? page.seq[page.seq.length - 1] : page.last
		if (page.seq.length > 0) {
			this.isChanged = true
			this.tell()
		}
		return page.more
	}

	/** After new entries, at most once a second. */
	doubtStandings() {
		if (!this.isChanged || !this.hasMembers) return
		const wait = this.doubtedAt + DOUBT_MS - Date.now()
		if (wait > 0) {
			setTimeout(() => this.wake(), wait)
			return
		}
		this.isChanged = false
		this.doubtedAt = Date.now()
		this.rounds++
	}

	clear() {
		for (const column of [this.seqs, this.ids, this.clocks, this.authors, this.parents, this.texts]) column.length = 0
		this.places.clear()
		this.asked.clear()
		this.void.clear()
		this.reached = 0
	}

	tell() {
		for (const listener of this.listeners) listener()
	}

	/** @param {string} did */
	numberOf(did) {
		const known = this.didNumbers.get(did)
		if (known !== undefined) return known
		this.didNumbers.set(did, this.dids.length)
		return this.dids.push(did) - 1
	}

	/** The place of the entry with an insertion number, or of the last one before. @param {number} seq */
	placeAt(seq) {
		let [low, high] = [0, this.seqs.length - 1]
		// Numbers are given out one by one, and few are ever missing.
		if (this.seqs[seq - 1] === seq) return seq - 1
		while (low < high) {
			const middle = (low + high + 1) >> 1
			if (this.seqs[middle] <= seq) low = middle
			else high = middle - 1
		}
		return low
	}

	/** @param {number} place @returns {Summary} */
	summary(place) {
		return { id: this.ids[place], author: this.dids[this.authors[place]], clock: this.clocks[place], text: this.texts[place] }
	}

	/** Bring the beginnings of payloads, and what is void. @param {number} first place @param {number} last */
	wantTexts(first, last) {
		for (let part = Math.floor(first / TEXT_PAGE); part <= Math.floor(last / TEXT_PAGE); part++) {
			const end = Math.min(this.count, (part + 1) * TEXT_PAGE)
			const isDoubtful = this.hasMembers && this.readIn[part] !== this.rounds
			if (!this.asked.has(part) && (isDoubtful || this.texts[end - 1] === undefined)) this.readTexts(part)
		}
	}

	/** @param {number} part */
	async readTexts(part) {
		const start = part * TEXT_PAGE
		const end = Math.min(this.count, start + TEXT_PAGE)
		this.asked.add(part)
		const round = this.rounds
		try {
			const page = await this.api.get("graph", { after: this.seqs[start] - 1, until: this.seqs[end - 1], limit: TEXT_PAGE, text: 1 })
			page.id.forEach((/** @type {string} */ id, /** @type {number} */ at) => {
				const place = this.places.get(id)
				if (place !== undefined) this.texts[place] = page.text[at]
				this.void.delete(id)
			})
			this.hasMembers ||= page.void !== undefined
			for (const id of page.void ?? []) this.void.add(id)
			for (let place = start; place < end; place++) this.texts[place] ??= ""
			this.readIn[part] = round
			this.asked.delete(part)
		} catch {
			setTimeout(() => this.asked.delete(part), POLL_MS)
		}
		this.tell()
	}
}

/** The log as it was when it had so many entries, newest first. */
export class LogMoment {
	/** @param {LogData} data @param {number} count of places @param {Set<string>} matches */
	constructor(data, count, matches) {
		this.data = data
		this.count = count
		this.matches = matches
	}

	/** @param {number} row */
	entry(row) {
		return this.data.summary(this.count - 1 - row)
	}

	/** @param {number} row */
	parentsOf(row) {
		return Array.from(this.data.parents[this.count - 1 - row], (place) => this.count - 1 - place)
	}

	/** @param {string} id */
	rowOf(id) {
		const place = this.data.places.get(id)
		return place === undefined || place >= this.count ? -1 : this.count - 1 - place
	}

	/** @param {number} first @param {number} last */
	want(first, last) {
		this.data.wantTexts(this.count - 1 - last, this.count - 1 - first)
	}

	/** @param {string} id */
	noteOn(id) {
		return this.data.void.has(id) ? "void" : this.data.aside.has(id) ? "set aside" : ""
	}

	/** @param {string} id */
	isMatch(id) {
		return this.matches.has(id)
	}
}
