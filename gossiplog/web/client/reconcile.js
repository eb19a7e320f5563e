// A reconciliation, the client's side: it takes the hub's symbols until it knows the difference, and then takes and gives what that says.
// Whatever the hub sends is checked: it can end a session, and have us store nothing but what it could have pushed as well.
// Source: docs/spec/reconcile.md, "Session".

import { compare, toHex } from "./bytes.js"
import { Channel } from "./channel.js"
import { ClosedError, GossipLogError, ProtocolError } from "./errors.js"
import { decodeMessage, hello, more, unpack, values, want } from "./messages.js"
import { SYMBOLS_MAX, SketchDecoder } from "./sketch.js"

/** @typedef {import("./messages.js").Message} Message */

const ANSWER_S = 10
const WORK_S = 60
const BATCH_ENTRIES = 1_000
const BATCH_BYTES = 2 ** 20
const FRAME_BYTES = 256 * 1024
const GIVEN_AT_ONCE = 256
/** Values that may come above the number that the hub told: it may have grown meanwhile. */
const SLACK = 1_000
/** More differences than these are not looked for in a sketch. */
const DIFFERENCES_MAX = Math.floor(SYMBOLS_MAX / 1.42)
const LARGE_ESTIMATE = 512
const REJECTED_MAX = 1_000

/** The difference cannot be found, or not now, and nobody is to blame. */
export class Unreconciled extends GossipLogError {
	/** @param {string} reason @param {boolean} [isLarge] There are too many differences: everything has to be sent. */
	constructor(reason, isLarge = false) {
		super(reason)
		this.isLarge = isLarge
	}
}

export class Reconciliation {
	/**
	 * @param {import("./hub_link.js").LogView} log
	 * @param {import("./sketch.js").Sketch} sketch Of all that it has; it does not change meanwhile.
	 * @param {Map<string, number>} aside Keys, in hex, that were of no use here, or that the hub refused, until when.
	 * @param {Uint8Array | null} after Have everything sent that follows this key. If that is cut short, the next session begins where this one is then; null once it has ended.
	 */
	constructor(log, sketch, aside, after) {
		this.log = log
		this.sketch = sketch
		this.aside = aside
		this.after = after
		this.rejected = 0
		/** Something was left out, so children of it may lack their parents. */
		this.hasGap = false
		/** Keys that the hub left out. @type {Uint8Array[]} */
		this.refused = []
		/** @type {Channel} */
		this.channel = /** @type {any} */ (null)
	}

	/** @param {import("./channel.js").Place} place */
	async run(place) {
		this.channel = Channel.open(place, `/gossiplog/reconcile/1/${this.log.topic}`, { first: hello(this.sketch, this.after) })
		try {
			const reply = await this.#receive(ANSWER_S)
			if (reply.kind !== "result") {
				if (reply.kind !== "hello" || !(reply.isWholesale || reply.symbols.length)) throw new ProtocolError(`${reply.kind} in answer to hello`)
				if (reply.isWholesale) await this.#exchangeAll(reply.count, reply.takes)
				else await this.#exchangeDifference(reply.count, reply.symbols, reply.takes)
				const result = await this.#receive(WORK_S)
				if (result.kind !== "result") throw new ProtocolError(`${result.kind} in place of the result`)
				this.refused = result.leftOut
				this.channel.stream.close()
			}
			this.after = null
		} finally {
			this.channel.stream.reset()
		}
	}

	/** @param {number} patience @returns {Promise<Message>} */
	async #receive(patience) {
		const bytes = await this.channel.next(patience)
		if (bytes === null) throw new ClosedError("the hub ended the session")
		const message = decodeMessage(bytes)
		if (message.kind === "refuse") throw new Unreconciled(message.reason)
		return message
	}

	// By symbols

	/** @param {number} count @param {Uint8Array} symbols */
	async #findDifference(count, symbols) {
		const decoder = new SketchDecoder(this.sketch)
		decoder.add(unpack(symbols, 0, count))
		while (!decoder.isComplete) {
			const wanted = symbolsWanted(decoder)
			await this.channel.send(more(wanted))
			const reply = await this.#receive(ANSWER_S)
			if (reply.kind !== "symbols") throw new ProtocolError(`${reply.kind} in answer to more`)
			const window = unpack(reply.symbols, decoder.symbols, count)
			if (window.counts.length !== wanted) throw new ProtocolError(`${window.counts.length} symbols, ${wanted} were asked for`)
			decoder.add(window)
		}
		return decoder.difference()
	}

	/** @param {number} count @param {Uint8Array} symbols @param {boolean} takes */
	async #exchangeDifference(count, symbols, takes) {
		const { theirs, ours } = await this.#findDifference(count, symbols)
		const known = await this.log.store.known([...theirs, ...ours])
		if (ours.some((key) => !known.has(toHex(key)))) throw new Unreconciled("entries are said to be ours alone that we do not have", true)
		const wanted = theirs.filter((key) => !known.has(toHex(key)) && !this.#isAside(key))
		this.hasGap = wanted.length < theirs.length
		const gives = takes ? ours.filter((key) => !this.#isAside(key)) : []
		await this.channel.send(want(wanted, gives.length))
		await this.#both(this.#give(gives), this.#takeAll(wanted, wanted.length))
	}

	/** @param {Uint8Array[]} keys */
	async #give(keys) {
		for (let at = 0; at < keys.length; at += GIVEN_AT_ONCE) {
			const found = await this.log.store.values(keys.slice(at, at + GIVEN_AT_ONCE))
			if (found.includes(undefined)) throw new Unreconciled("an entry of ours is gone", true)
			await this.#send(/** @type {Uint8Array[]} */ (found))
		}
	}

	// Everything

	/** @param {number} count @param {boolean} takes */
	async #exchangeAll(count, takes) {
		const own = this.sketch.count
		const isUnlike = Math.min(count, own) === 0 || (Math.abs(count - own) > DIFFERENCES_MAX && 16 * Math.min(count, own) <= Math.max(count, own))
		if (this.after === null && !isUnlike) throw new ProtocolError(`${count} entries are to be sent to one who has ${own}`)
		await this.#both(this.#giveAll(takes ? own : 0), this.#takeAll(null, count + SLACK))
	}

	/** What comes meanwhile is not sent back: the hub takes little more than we said we have. @param {number} own How many that is: the first ones that were stored. */
	async #giveAll(own) {
		for (let left = own, after = /** @type {Uint8Array | null} */ (null); left > 0; ) {
			/** @type {import("./insertion.js").Row[]} */
			const page = await this.log.store.range(after, null, false, GIVEN_AT_ONCE)
			if (!page.length) break
			after = page[page.length - 1].key
			const before = page.filter(({ seq }) => seq <= own)
			left -= before.length
			if (before.length) await this.#send(before.map(({ value }) => value))
		}
		await this.channel.send(values([]))
	}

	// Either way

	/** Take values, in the order of their keys: those that were wanted; or, with null, whatever comes until nothing does. @param {Uint8Array[] | null} wanted @param {number} most */
	async #takeAll(wanted, most) {
		let came = 0
		/** @type {Uint8Array[]} */
		let batch = []
		for (let isEnd = most === 0; !isEnd; ) {
			const reply = await this.#receive(WORK_S)
			if (reply.kind !== "values" || (wanted !== null && !reply.values.length)) throw new ProtocolError(`${reply.kind} in place of values`)
			came += reply.values.length
			if (came > most) throw new ProtocolError(`${came} values, at most ${most} were to come`)
			batch.push(...reply.values)
			isEnd = wanted === null ? !reply.values.length : came === most
			const isFull = batch.length >= BATCH_ENTRIES || batch.reduce((size, value) => size + value.length, 0) >= BATCH_BYTES
			if (!isFull && !isEnd) continue
			await this.#insert(batch, wanted && wanted.slice(came - batch.length))
			batch = []
		}
	}

	/** Insert what came, and make what it is worth of the verdicts. @param {Uint8Array[]} batch @param {Uint8Array[] | null} keys Those that were wanted. */
	async #insert(batch, keys) {
		for (const [index, { outcome, rule, entry }] of (await this.log.take(batch)).entries()) {
			if (entry !== undefined) {
				const isNext = keys === null ? this.after === null || compare(this.after, entry.key) < 0 : compare(keys[index], entry.key) === 0
				if (!isNext) throw new ProtocolError("a value whose key is not the next one")
				if (keys === null) this.after = entry.key
			}
			if (outcome === "accept") continue
			if (rule === "parents" && !this.hasGap) throw new Unreconciled("an entry came without its parents", true)
			if (rule === "parents") continue
			this.hasGap = true
			const key = keys?.[index] ?? entry?.key
			if (key !== undefined) putAside(this.aside, key)
			if (outcome === "reject" && ++this.rejected > REJECTED_MAX) throw new ProtocolError(`more than ${REJECTED_MAX} invalid values`)
		}
	}

	/** @param {Uint8Array[]} items */
	async #send(items) {
		let size = 0
		/** @type {Uint8Array[]} */
		let fill = []
		for (const value of items) {
			if (fill.length && size + value.length > FRAME_BYTES) {
				await this.channel.send(values(fill))
				fill = []
				size = 0
			}
			fill.push(value)
			size += value.length
		}
		await this.channel.send(values(fill))
	}

	/** Give and take at once; what goes wrong with either ends both. @param {Promise<void>} giving @param {Promise<void>} taking */
	async #both(giving, taking) {
		try {
			await Promise.all([giving, taking])
		} catch (error) {
			this.channel.stream.reset()
			await Promise.allSettled([giving, taking])
			throw error
		}
	}

	/** @param {Uint8Array} key */
	#isAside(key) {
		return (this.aside.get(toHex(key)) ?? 0) > Date.now()
	}
}

/** Not want a key, and not offer it, for an hour. @param {Map<string, number>} aside @param {Uint8Array} key */
export function putAside(aside, key) {
	if (aside.size >= 10_000) aside.clear()
	aside.set(toHex(key), Date.now() + 3_600_000)
}

/** How many symbols to ask for: what the claimed differences may need, or first what it takes to guess these better. @param {SketchDecoder} decoder */
function symbolsWanted(decoder) {
	const claimed = decoder.estimate()
	const known = decoder.symbols
	const margin = 1 + 1.25 * Math.sqrt(2 / known)
	const most = Math.min(SYMBOLS_MAX, Math.max(4 * claimed, 128))
	if (claimed > DIFFERENCES_MAX * margin || known >= most) throw new Unreconciled(`some ${claimed} differences, not found in ${known} symbols`, true)
	if (claimed > LARGE_ESTIMATE && known < LARGE_ESTIMATE) return 2 * LARGE_ESTIMATE - known
	const expected = Math.floor((claimed > LARGE_ESTIMATE ? 1.4 : 1.45) * claimed * margin) + 8
	const goal = Math.max(expected, known >= 2 * expected ? 2 * known : known + Math.max(Math.floor(known / 8), 8))
	return Math.min(goal, most) - known
}
