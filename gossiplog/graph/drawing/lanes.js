// Lanes: in which column each entry stands, and how lines run from one row to the next; as in graph/layout.py, but only as far down
// as is visible. Rows are numbers, 0 the newest; a row's parents have higher numbers.

/**
 * @typedef {object} Row
 * @property {number} column where the entry stands, 0 for the leftmost
 * @property {boolean} isHead whether nobody above names it as a parent
 * @property {Int32Array} links triples: column above, column below, 1 if the line begins at the row's own entry
 */

export class Lanes {
	/** @param {number} count of rows @param {(row: number) => number[]} parentsOf rows of the parents that there are, in their order */
	constructor(count, parentsOf) {
		this.count = count
		this.parentsOf = parentsOf
		/** @type {Row[]} */
		this.rows = []
		/** @type {Map<number, number>} the lane that waits for a row */
		this.waiting = new Map()
		/** @type {number[]} the row that each lane waits for, −1 if it is free */
		this.lanes = []
		this.width = 1
	}

	/**
	 * Lay out down to a row, or as far as the time allows.
	 * @param {number} row
	 * @param {number} [until] of `performance.now()`
	 * @returns {boolean} whether the row is laid out
	 */
	reach(row, until = Infinity) {
		const end = Math.min(row, this.count - 1)
		while (this.rows.length <= end) {
			this.rows.push(this.next(this.rows.length))
			if ((this.rows.length & 127) === 0 && performance.now() > until) break
		}
		return this.rows.length > end
	}

	/** @param {number} row @returns {Row} */
	next(row) {
		const lane = this.close(row)
		const column = lane < 0 ? this.lowestFree() : lane
		/** @type {number[]} */
		const passing = []
		this.lanes.forEach((waited, at) => waited >= 0 && passing.push(at))
		/** @type {Map<number, number>} */
		const moved = new Map()
		/** @type {number[]} */
		const edges = []
		for (const parent of new Set(this.parentsOf(row))) {
			let target = this.waiting.get(parent)
			const isOwnFree = !((this.lanes[column] ?? -1) >= 0)
			if (target === undefined) {
				target = isOwnFree ? column : this.lowestFree()
				this.open(parent, target)
			} else if (isOwnFree && column < target) {
				this.close(parent)
				this.open(parent, column)
				moved.set(target, column)
				target = column
			}
			edges.push(column, target, 1)
		}
		const links = passing.flatMap((at) => [at, moved.get(at) ?? at, 0])
		this.width = Math.max(this.width, column + 1, this.lanes.length)
		return { column, isHead: lane < 0, links: Int32Array.from([...links, ...edges]) }
	}

	/** @param {number} row @param {number} lane */
	open(row, lane) {
		this.waiting.set(row, lane)
		this.lanes[lane] = row
	}

	/** @param {number} row */
	close(row) {
		const lane = this.waiting.get(row) ?? -1
		if (lane >= 0) {
			this.waiting.delete(row)
			this.lanes[lane] = -1
			while (this.lanes.length > 0 && this.lanes[this.lanes.length - 1] === -1) this.lanes.pop()
		}
		return lane
	}

	lowestFree() {
		const at = this.lanes.findIndex((waited) => !(waited >= 0))
		return at < 0 ? this.lanes.length : at
	}
}
