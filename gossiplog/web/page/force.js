// Where dots stand: those that are connected near each other, and all of them apart. A few hundred steps, a few a frame.

const CELL = 110
const REPULSION = 2600
const SPRING = 0.035
const LENGTH = 78
const CENTRE = 0.012
const COOLING = 0.985

/** @typedef {{x: number, y: number, dx: number, dy: number, fixed: boolean}} Body */

export class Force {
	constructor() {
		/** @type {Body[]} */
		this.bodies = []
		/** Pairs of numbers of bodies. @type {Int32Array} */
		this.edges = new Int32Array(0)
		this.heat = 0
	}

	/** @param {number} number @returns {Body} placed on a spiral, where the same number always is */
	static at(number) {
		const [radius, angle] = [26 * Math.sqrt(number + 0.5), number * 2.399963]
		return { x: radius * Math.cos(angle), y: radius * Math.sin(angle), dx: 0, dy: 0, fixed: false }
	}

	/** @param {Body[]} bodies @param {Int32Array} edges */
	set(bodies, edges) {
		this.bodies = bodies
		this.edges = edges
		this.heat = Math.max(this.heat, 0.6)
	}

	get isMoving() {
		return this.heat > 0.02
	}

	/** Step for at most so many milliseconds. @param {number} budget_ms */
	run(budget_ms) {
		const end = performance.now() + budget_ms
		while (this.isMoving && performance.now() < end) this.step()
	}

	step() {
		this.repel()
		const { bodies, edges, heat } = this
		for (let at = 0; at < edges.length; at += 2) {
			const [a, b] = [bodies[edges[at]], bodies[edges[at + 1]]]
			const [x, y] = [b.x - a.x, b.y - a.y]
			const distance = Math.hypot(x, y) || 1
			const pull = (SPRING * (distance - LENGTH)) / distance
			a.dx += x * pull
			a.dy += y * pull
			b.dx -= x * pull
			b.dy -= y * pull
		}
		for (const body of bodies) {
			body.dx -= body.x * CENTRE
			body.dy -= body.y * CENTRE
			const speed = Math.hypot(body.dx, body.dy)
			const kept = (speed > 30 ? 30 / speed : 1) * heat
			if (!body.fixed) {
				body.x += body.dx * kept
				body.y += body.dy * kept
			}
			body.dx *= 0.4
			body.dy *= 0.4
		}
		this.heat *= COOLING
	}

	/** Only neighbouring cells repel each other; further away it makes no difference to the eye. */
	repel() {
		/** @type {Map<number, Body[]>} */
		const cells = new Map()
		/** @param {number} x @param {number} y */
		const cellOf = (x, y) => Math.floor(x / CELL) * 65_536 + Math.floor(y / CELL)
		for (const body of this.bodies) {
			const cell = cellOf(body.x, body.y)
			const others = cells.get(cell)
			if (others === undefined) cells.set(cell, [body])
			else others.push(body)
		}
		for (const [cell, inside] of cells) {
			for (const step of [0, 1, 65_535, 65_536, 65_537]) {
				const others = step === 0 ? inside : cells.get(cell + step)
				if (others === undefined) continue
				for (let a = 0; a < inside.length; a++) {
					for (let b = step === 0 ? a + 1 : 0; b < others.length; b++) push(inside[a], others[b])
				}
			}
		}
	}
}

/** @param {Body} a @param {Body} b */
function push(a, b) {
	const x = b.x - a.x || 0.5
	const y = b.y - a.y || 0.25
	const squared = x * x + y * y
	// Beyond, one side of a cell would be felt and the other not.
	if (squared > CELL * CELL) return
	const strength = REPULSION / (squared + 60) / Math.sqrt(squared + 1)
	a.dx -= x * strength
	a.dy -= y * strength
	b.dx += x * strength
	b.dy += y * strength
}
