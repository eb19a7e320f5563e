// Small charts: a value for each second, the newest at the right edge.

import { el } from "./drawing/dom.js"
import { onThemeChange, themeColour } from "./drawing/palette.js"

const HEIGHT = 96
/** The lines of the grid for the highest value and the lowest; a label beside them needs half its height. */
const [TOP, BOTTOM] = [8.5, HEIGHT - 8.5]
const GAP = 6

/** @typedef {{left: number, width: number, low: number, high: number}} Box what is drawn into, and the values at its edges */

/** @param {number} value @param {Box} box */
const heightOf = (value, { low, high }) => BOTTOM - (high === low ? 0.5 : (value - low) / (high - low)) * (BOTTOM - TOP)

export class Chart {
	/** @param {string} label for those who do not see it @param {{name: string, colour: string}[]} series @param {boolean} [isFilled] */
	constructor(label, series, isFilled = false) {
		this.label = label
		this.series = series
		this.isFilled = isFilled
		/** @type {number[][]} */
		this.values = []
		this.canvas = el("canvas", { class: "chart", role: "img", "aria-label": label })
		new ResizeObserver(() => this.draw()).observe(this.canvas)
		onThemeChange(() => this.draw())
	}

	/** @param {number[][]} values of each series, equally many @param {string} words what they say */
	show(values, words) {
		this.values = values
		this.canvas.setAttribute("aria-label", `${this.label}: ${words}`)
		this.draw()
	}

	draw() {
		const width = this.canvas.clientWidth
		if (width === 0) return
		const scale = devicePixelRatio
		Object.assign(this.canvas, { width: Math.round(width * scale), height: Math.round(HEIGHT * scale) })
		const context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"))
		context.setTransform(scale, 0, 0, scale, 0, 0)
		const all = this.values.flat().filter(Number.isFinite)
		const low = this.isFilled ? Math.min(...all, Infinity) : 0
		const isFlat = this.isFilled && all.length > 0 && Math.max(...all) === low
		const high = Math.max(...all, isFlat ? low : low + 1)
		// What stands beside a line of the grid is the value there.
		const marks = isFlat ? [high] : all.length > 0 ? [high, low] : []
		context.font = "11px system-ui, sans-serif"
		const words = marks.map((mark) => mark.toLocaleString("en", { maximumFractionDigits: 0 }))
		const left = Math.max(0, ...words.map((word) => context.measureText(word).width + GAP))
		const box = { left, width, low, high }
		context.strokeStyle = themeColour("line")
		context.lineWidth = 1
		context.beginPath()
		for (const y of [TOP, (TOP + BOTTOM) / 2, BOTTOM]) {
			context.moveTo(left, y)
			context.lineTo(width, y)
		}
		context.stroke()
		this.series.forEach(({ colour }, at) => this.drawLine(context, this.values[at] ?? [], themeColour(colour), box))
		context.fillStyle = themeColour("muted")
		context.textAlign = "right"
		context.textBaseline = "middle"
		marks.forEach((mark, at) => context.fillText(words[at], left - GAP, heightOf(mark, box)))
	}

	/**
	 * @param {CanvasRenderingContext2D} context @param {number[]} values @param {string} colour
	 * @param {Box} box
	 */
	drawLine(context, values, colour, box) {
		if (values.length < 2) return
		const { left, width } = box
		const step = (width - left) / (values.length - 1)
		context.beginPath()
		values.forEach((value, at) => context.lineTo(left + at * step, heightOf(value, box)))
		context.strokeStyle = colour
		context.lineWidth = 1.75
		context.lineJoin = "round"
		context.stroke()
		if (!this.isFilled) return
		context.lineTo(width, BOTTOM)
		context.lineTo(left, BOTTOM)
		context.globalAlpha = 0.12
		context.fillStyle = colour
		context.fill()
		context.globalAlpha = 1
	}
}
