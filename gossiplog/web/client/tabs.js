// The tabs that share a store: each link belongs to one of them, one at a time appends, and all hear of new entries.

import { inWords } from "./errors.js"

/** A message between tabs. @typedef {{ stored?: number, url?: string, settle?: string, settled?: string, leads?: true, asks?: true, presence?: Uint8Array[], status?: import("./hub_link.js").Status }} Told */

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

	/** Act while no other tab acts under the same name. @template T @param {string} what @param {() => Promise<T>} act @param {AbortSignal} [signal] Ends the waiting. @returns {Promise<T>} */
	async alone(what, act, signal) {
		return navigator.locks.request(`${this.name}/${what}`, { signal }, act)
	}

	close() {
		this.channel.close()
	}
}

/** Stands for tabs where a log is in memory, so that there is only one. */
export class OneTab {
	/** The last of those that act one after the other, by name. @type {Map<string, Promise<unknown>>} */
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
