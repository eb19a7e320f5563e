// Small charts: a value for each second, the newest at the right edge.

import { el } from "./drawing/dom.js"
import { onThemeChange, themeColour } from "./drawing/palette.js"

const HEIGHT = 96

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
		context.strokeStyle = themeColour("line")
		context.lineWidth = 1
		context.beginPath()
		for (const y of [0.5, HEIGHT / 2, HEIGHT - 0.5]) {
			context.moveTo(0, y)
			context.lineTo(width, y)
		}
		context.stroke()
		this.series.forEach(({ colour }, at) => this.drawLine(context, this.values[at] ?? [], themeColour(colour), { width, low, high }))
		context.fillStyle = themeColour("muted")
		context.font = "11px system-ui, sans-serif"
		context.fillText(Math.ceil(high).toLocaleString("en"), 2, 12)
		if (this.isFilled && all.length > 0 && !isFlat) context.fillText(Math.floor(low).toLocaleString("en"), 2, HEIGHT - 6)
	}

	/**
	 * @param {CanvasRenderingContext2D} context @param {number[]} values @param {string} colour
	 * @param {{width: number, low: number, high: number}} box
	 */
	drawLine(context, values, colour, { width, low, high }) {
		if (values.length < 2) return
		const step = width / (values.length - 1)
		context.beginPath()
		values.forEach((value, at) => context.lineTo(at * step, HEIGHT - 3 - (high === low ? 0.5 : (value - low) / (high - low)) * (HEIGHT - 18)))
		context.strokeStyle = colour
		context.lineWidth = 1.75
		context.lineJoin = "round"
		context.stroke()
		if (!this.isFilled) return
		context.lineTo(width, HEIGHT)
		context.lineTo(0, HEIGHT)
		context.globalAlpha = 0.12
		context.fillStyle = colour
		context.fill()
		context.globalAlpha = 1
	}
}
