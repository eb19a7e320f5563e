// Peers as dots and what runs between them, for the live network and for a simulated one. Source: docs/glass.md, "What the drawing shows".

import { el } from "./drawing/dom.js"
import { onThemeChange, themeColour } from "./drawing/palette.js"

/**
 * @typedef {object} Dot
 * @property {number} x
 * @property {number} y
 * @property {string} colour of its root
 * @property {string} label beside it; empty for none
 * @property {number} radius
 * @property {boolean} isAlive
 * @property {boolean} isChosen
 * @property {boolean} [isOurs]
 *
 * @typedef {object} Line
 * @property {number} from number of a dot
 * @property {number} to
 * @property {"full" | "metadata" | "fanout" | "none" | "cut"} style
 * @property {boolean} [isSyncing]
 * @property {boolean} [isMutual] it has no direction
 *
 * @typedef {object} Pulse something on its way
 * @property {number} from
 * @property {number} to
 * @property {number} progress 0 to 1
 * @property {string} colour
 *
 * @typedef {object} Scene
 * @property {Dot[]} dots
 * @property {Line[]} lines
 * @property {Pulse[]} pulses
 * @property {string} version another one when the lines, or where dots stand, have changed
 * @property {number} [chosen] number of the dot whose lines stand out; −1 for none
 */

/** With more lines than that arrows and dashes would be a grey mass that takes long to draw. */
const DETAILS_MAX = 1_200
/** What is drawn again at most for this share of the time. */
const STILL_SHARE = 0.25
/** Of more lines each is paler, that they do not hide each other. */
const PLAIN_LINES_MAX = 100
const LABELS_MAX = 260
const LABEL_HIGH = 16
const LABEL_PAD = 3
const FULL_TURN = 2 * Math.PI
/** `fade`: how much sooner than others they pale where lines are many. @type {Record<string, {dash: number[], colour: string, width: number, alpha: number, fade: number}>} */
const STYLES = {
	none: { dash: [], colour: "strong-line", width: 1, alpha: 0.6, fade: 1.8 },
	fanout: { dash: [1.5, 4], colour: "strong-line", width: 1.5, alpha: 1, fade: 1 },
	metadata: { dash: [6, 4], colour: "strong-line", width: 1.25, alpha: 1, fade: 1.6 },
	full: { dash: [], colour: "strong-line", width: 1.5, alpha: 1, fade: 1 },
	cut: { dash: [2, 7], colour: "bad", width: 2, alpha: 1, fade: 0 },
}

export class NetworkCanvas {
	/** @param {string} label */
	constructor(label) {
		this.canvas = el("canvas", { class: "network-canvas", role: "img", "aria-label": label })
		/** Lines, drawn once for as long as none of them moves. */
		this.still = document.createElement("canvas")
		this.stillFor = ""
		this.stillUntil = 0
		/** Whether lines have changed since they were drawn, as drawing them takes long: to be drawn once more. */
		this.isBehind = false
		this.theme = 0
		this.view = { scale: 1, x: 0, y: 0 }
		onThemeChange(() => this.theme++)
	}

	/** Draw a scene. @param {Scene} scene @param {number} now in milliseconds, for what moves */
	draw(scene, now) {
		const { clientWidth: width, clientHeight: height } = this.canvas
		if (width === 0 || height === 0) return
		const ratio = Math.min(2, devicePixelRatio)
		const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)]
		if (this.canvas.width !== w || this.canvas.height !== h) Object.assign(this.canvas, { width: w, height: h })
		this.fit(scene.dots, width, height)
		const context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"))
		context.setTransform(1, 0, 0, 1, 0, 0)
		context.clearRect(0, 0, w, h)
		this.drawStill(scene, w, h, ratio)
		context.drawImage(this.still, 0, 0)
		this.project(context, ratio)
		this.drawChosen(context, scene)
		this.drawSyncs(context, scene, now)
		this.drawPulses(context, scene)
		this.drawDots(context, scene)
		context.setTransform(ratio, 0, 0, ratio, 0, 0)
		if (scene.dots.length <= LABELS_MAX) this.drawLabels(context, scene, width)
	}

	/** @param {Dot[]} dots @param {number} width @param {number} height */
	fit(dots, width, height) {
		let [left, right, top, bottom] = [-60, 60, -60, 60]
		for (const { x, y } of dots) {
			left = Math.min(left, x)
			right = Math.max(right, x)
			top = Math.min(top, y)
			bottom = Math.max(bottom, y)
		}
		const margin = dots.length > LABELS_MAX ? 14 : width < 500 ? 34 : 60
		const scale = Math.min(5, (width - 2 * margin) / (right - left), (height - 2 * margin) / (bottom - top))
		this.view = { scale, x: width / 2 - (scale * (left + right)) / 2, y: height / 2 - (scale * (top + bottom)) / 2 }
	}

	/** @param {CanvasRenderingContext2D} context @param {number} ratio */
	project(context, ratio) {
		const { scale, x, y } = this.view
		context.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * x, ratio * y)
	}

	/** The number of the dot at a place of the canvas, −1 if there is none. @param {{x: number, y: number}[]} dots @param {number} x @param {number} y */
	dotAt(dots, x, y) {
		const { scale, x: left, y: top } = this.view
		const [at, high] = [(x - left) / scale, (y - top) / scale]
		let [found, nearest] = [-1, 22 / scale]
		dots.forEach((dot, number) => {
			const distance = Math.hypot(dot.x - at, dot.y - high)
			if (distance < nearest) [found, nearest] = [number, distance]
		})
		return found
	}

	/** The number of the line near a place, −1 if there is none. @param {Scene} scene @param {number} x @param {number} y */
	lineAt({ dots, lines }, x, y) {
		const { scale, x: left, y: top } = this.view
		const [px, py] = [(x - left) / scale, (y - top) / scale]
		let [found, nearest] = [-1, 9 / scale]
		lines.forEach(({ from, to }, number) => {
			const [a, b] = [dots[from], dots[to]]
			const [dx, dy] = [b.x - a.x, b.y - a.y]
			const share = Math.max(0, Math.min(1, ((px - a.x) * dx + (py - a.y) * dy) / (dx * dx + dy * dy || 1)))
			const distance = Math.hypot(a.x + share * dx - px, a.y + share * dy - py)
			if (distance < nearest) [found, nearest] = [number, distance]
		})
		return found
	}

	/** @param {Scene} scene @param {number} w @param {number} h @param {number} ratio */
	drawStill(scene, w, h, ratio) {
		const wanted = `${scene.version} ${w} ${h} ${this.theme} ${this.view.scale} ${this.view.x} ${this.view.y}`
		const begun = performance.now()
		const isSameSize = this.still.width === w && this.still.height === h
		this.isBehind = wanted !== this.stillFor && isSameSize && begun < this.stillUntil
		if (wanted === this.stillFor || this.isBehind) return
		this.stillFor = wanted
		Object.assign(this.still, { width: w, height: h })
		const context = /** @type {CanvasRenderingContext2D} */ (this.still.getContext("2d"))
		this.project(context, ratio)
		const isMany = scene.lines.length > DETAILS_MAX
		const share = Math.min(1, PLAIN_LINES_MAX / scene.lines.length) ** 0.5
		for (const [name, style] of Object.entries(STYLES)) {
			context.beginPath()
			for (const line of scene.lines) {
				if (line.style !== name) continue
				const [a, b] = [scene.dots[line.from], scene.dots[line.to]]
				context.moveTo(a.x, a.y)
				context.lineTo(b.x, b.y)
			}
			context.setLineDash(isMany ? [] : style.dash.map((length) => length / this.view.scale))
			context.strokeStyle = themeColour(style.colour)
			context.lineWidth = (style.width * (isMany ? 0.6 : 1)) / this.view.scale
			context.globalAlpha = style.alpha * share ** style.fade
			context.stroke()
		}
		context.globalAlpha = 1
		if (!isMany) this.drawArrows(context, scene)
		const end = performance.now()
		this.stillUntil = end + (end - begun) * (1 / STILL_SHARE - 1)
	}

	/** The lines of the chosen one, whatever they are. @param {CanvasRenderingContext2D} context @param {Scene} scene */
	drawChosen(context, { dots, lines, chosen = -1 }) {
		if (chosen < 0) return
		context.strokeStyle = themeColour("accent")
		for (const [name, { dash, width, alpha }] of Object.entries(STYLES)) {
			context.beginPath()
			for (const { from, to, style } of lines) {
				if (style !== name || (from !== chosen && to !== chosen)) continue
				context.moveTo(dots[from].x, dots[from].y)
				context.lineTo(dots[to].x, dots[to].y)
			}
			context.setLineDash(dash.map((length) => length / this.view.scale))
			context.lineWidth = width / this.view.scale
			context.globalAlpha = alpha ** 2
			context.stroke()
		}
		context.globalAlpha = 1
		context.setLineDash([])
	}

	/** @param {CanvasRenderingContext2D} context @param {Scene} scene */
	drawArrows(context, { dots, lines }) {
		context.setLineDash([])
		context.fillStyle = themeColour("strong-line")
		context.beginPath()
		for (const line of lines) {
			if (line.isMutual || line.style === "none" || line.style === "cut") continue
			const [a, b] = [dots[line.from], dots[line.to]]
			const length = Math.hypot(b.x - a.x, b.y - a.y) || 1
			const [x, y] = [(b.x - a.x) / length, (b.y - a.y) / length]
			const back = b.radius / this.view.scale + 3
			const [tipX, tipY, big] = [b.x - x * back, b.y - y * back, 7 / this.view.scale]
			context.moveTo(tipX, tipY)
			context.lineTo(tipX - x * big - y * big * 0.45, tipY - y * big + x * big * 0.45)
			context.lineTo(tipX - x * big + y * big * 0.45, tipY - y * big - x * big * 0.45)
			context.closePath()
		}
		context.fill()
	}

	/** @param {CanvasRenderingContext2D} context @param {Scene} scene @param {number} now */
	drawSyncs(context, { dots, lines }, now) {
		context.strokeStyle = themeColour("accent")
		context.lineWidth = 3 / this.view.scale
		context.setLineDash([9 / this.view.scale, 7 / this.view.scale])
		context.lineDashOffset = -(now / 30 / this.view.scale)
		context.beginPath()
		for (const { from, to, isSyncing } of lines) {
			if (!isSyncing) continue
			context.moveTo(dots[from].x, dots[from].y)
			context.lineTo(dots[to].x, dots[to].y)
		}
		context.stroke()
		context.setLineDash([])
	}

	/** Entries on their way are small squares, as entries are everywhere. @param {CanvasRenderingContext2D} context @param {Scene} scene */
	drawPulses(context, { dots, pulses }) {
		const half = 3 / this.view.scale
		for (const { from, to, progress, colour } of pulses) {
			const [a, b] = [dots[from], dots[to]]
			context.fillStyle = colour
			context.fillRect(a.x + (b.x - a.x) * progress - half, a.y + (b.y - a.y) * progress - half, 2 * half, 2 * half)
		}
	}

	/** @param {CanvasRenderingContext2D} context @param {Scene} scene */
	drawDots(context, { dots }) {
		/** @type {Map<string, Dot[]>} */
		const byColour = new Map()
		for (const dot of dots) {
			const same = byColour.get(dot.colour)
			if (same === undefined) byColour.set(dot.colour, [dot])
			else same.push(dot)
		}
		const scale = this.view.scale
		for (const [colour, same] of byColour) {
			context.fillStyle = colour
			context.beginPath()
			for (const { x, y, radius, isAlive } of same) {
				if (!isAlive) continue
				context.moveTo(x + radius / scale, y)
				context.arc(x, y, radius / scale, 0, FULL_TURN)
			}
			context.fill()
		}
		for (const dot of dots) {
			if (dot.isAlive && !dot.isChosen && !dot.isOurs) continue
			context.strokeStyle = themeColour(dot.isChosen ? "accent" : dot.isAlive ? "ink" : "muted")
			context.lineWidth = (dot.isChosen ? 3 : 1.5) / scale
			context.setLineDash(dot.isAlive ? [] : [3 / scale, 3 / scale])
			context.beginPath()
			context.arc(dot.x, dot.y, (dot.radius + (dot.isAlive ? 3.5 : 0)) / scale, 0, FULL_TURN)
			context.stroke()
		}
		context.setLineDash([])
	}

	/** Names, on a ground of their own so that no line runs through them. @param {CanvasRenderingContext2D} context @param {Scene} scene @param {number} width */
	drawLabels(context, { dots }, width) {
		context.font = "12px system-ui, sans-serif"
		context.textBaseline = "middle"
		context.textAlign = "left"
		/** Where dots and labels stand already: a label that would lie upon one is left out. @type {Box[]} */
		const taken = dots.map((dot) => {
			const [x, y] = this.placeOf(dot)
			return { left: x - dot.radius, right: x + dot.radius, top: y - dot.radius, bottom: y + dot.radius }
		})
		for (const dot of [...dots].sort((a, b) => rank(a) - rank(b))) {
			if (dot.label === "") continue
			const box = placesOfLabel(dot, this.placeOf(dot), context.measureText(dot.label).width).find(
				(one) => one.left >= 0 && one.right <= width && !taken.some((other) => areUpon(one, other)),
			)
			if (box === undefined) continue
			taken.push(box)
			context.fillStyle = themeColour("surface")
			context.fillRect(box.left, box.top, box.right - box.left, box.bottom - box.top)
			context.fillStyle = themeColour("ink")
			context.fillText(dot.label, box.left + LABEL_PAD, (box.top + box.bottom) / 2)
		}
	}

	/** Where a dot stands, in CSS pixels. @param {Dot} dot @returns {[number, number]} */
	placeOf({ x, y }) {
		return [x * this.view.scale + this.view.x, y * this.view.scale + this.view.y]
	}
}

/** @typedef {{left: number, right: number, top: number, bottom: number}} Box in CSS pixels */

/** Where a label may stand, the best place first: right, left, below, above. @param {Dot} dot @param {[number, number]} place @param {number} width of its text @returns {Box[]} */
function placesOfLabel({ radius, isChosen, isOurs }, [x, y], width) {
	const beside = radius + (isChosen || isOurs ? 6 : 3)
	const [wide, half] = [width + 2 * LABEL_PAD, LABEL_HIGH / 2]
	/** @param {number} left @param {number} middle */
	const box = (left, middle) => ({ left, right: left + wide, top: middle - half, bottom: middle + half })
	return [box(x + beside, y), box(x - beside - wide, y), box(x - wide / 2, y + beside + half), box(x - wide / 2, y - beside - half)]
}

/** @param {Box} one @param {Box} other */
const areUpon = (one, other) => one.left < other.right && one.right > other.left && one.top < other.bottom && one.bottom > other.top

/** Whose label comes first. @param {Dot} dot */
const rank = (dot) => (dot.isChosen ? 0 : dot.isOurs ? 1 : 2)
