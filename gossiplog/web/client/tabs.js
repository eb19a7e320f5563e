// The tabs that share a store: one of them has each link, one at a time appends, and all hear what is new.

import { inWords } from "./errors.js"

/** What tabs tell each other. @typedef {{ stored?: number, url?: string, settle?: string, settled?: string, leads?: true, asks?: true, presence?: Uint8Array[], status?: import("./hub_link.js").Status }} Told */

export class Tabs {
	/** @param {string} name Of the store. @param {(told: Told) => void} onTold */
	constructor(name, onTold) {
		this.name = name
		this.channel = new BroadcastChannel(name)
		this.channel.onmessage = ({ data }) => onTold(data)
	}

	/** Tell the others. @param {Told} told */
	tell(told) {
		this.channel.postMessage(told)
	}

	/** Act while no other tab does the same. @template T @param {string} what @param {() => Promise<T>} act @param {AbortSignal} [signal] Ends the waiting. @returns {Promise<T>} */
	async alone(what, act, signal) {
		return navigator.locks.request(`${this.name}/${what}`, { signal }, act)
	}

	close() {
		this.channel.close()
	}
}

/** The one tab that has a log in memory. */
export class OneTab {
	/** What acts, or waits to, one after the other. @type {Map<string, Promise<unknown>>} */
	#turns = new Map()

	tell() {}

	/** @template T @param {string} what @param {() => Promise<T>} act @param {AbortSignal} [signal] @returns {Promise<T>} */
	alone(what, act, signal) {
		const before = this.#turns.get(what) ?? Promise.resolve()
		const done = before.then(() => {
			if (signal?.aborted) throw new Error(inWords(signal.reason))
			return act()
		})
		this.#turns.set(what, done.catch(() => {}))
		return done
	}

	close() {}
}
