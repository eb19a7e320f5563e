// Lets tasks wait for a change, and wakes all of them at once.

export class Bell {
	/** @type {Set<() => void>} */
	#waiting = new Set()

	/** Wait until it rings, or so many seconds. @param {number} [seconds] @returns {Promise<void>} */
	heard(seconds = Infinity) {
		return new Promise((resolve) => {
			const done = () => {
				clearTimeout(timer)
				this.#waiting.delete(done)
				resolve()
			}
			const timer = seconds < Infinity ? setTimeout(done, 1000 * seconds) : undefined
			this.#waiting.add(done)
		})
	}

	ring() {
		for (const done of [...this.#waiting]) done()
	}
}
