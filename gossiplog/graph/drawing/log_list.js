// The graph as a list: a row for each entry, newest on top, its lanes drawn beside it. Only the rows in sight exist.

import { authorColour, onThemeChange, themeColour } from "./palette.js"
import { dot, el, plain, say, shortId, shortName, whole } from "./dom.js"
import { Lanes } from "./lanes.js"

/**
 * @typedef {object} Summary
 * @property {string} id
 * @property {string} author
 * @property {number} clock
 * @property {string | undefined} text the payload's beginning; undefined until it is known
 *
 * @typedef {object} LogModel
 * @property {number} count of rows
 * @property {(row: number) => Summary} entry
 * @property {(row: number) => number[]} parentsOf
 * @property {(id: string) => number} rowOf −1 if it has none
 * @property {(first: number, last: number) => void} [want] these rows are in sight
 * @property {(id: string) => boolean} [isMatch]
 * @property {(id: string) => string} [noteOn] why it has no effect, in a word or two; empty if it has
 */

const ROW = 28
const PITCH = 16
const MARGIN = 16
const LAYOUT_MS = 8

export class LogList {
	/** @param {(id: string) => void} onChoose called when somebody chooses an entry */
	constructor(onChoose) {
		this.onChoose = onChoose
		/** @type {LogModel | null} */
		this.model = null
		this.lanes = new Lanes(0, () => [])
		this.chosen = ""
		this.active = 0
		this.laneColumns = 1
		this.isAsked = false
		this.canvas = el("canvas", { class: "lanes", "aria-hidden": "true" })
		this.layer = el("div", { class: "log-layer" }, this.canvas)
		this.space = el("div", { class: "log-space" })
		const titles = [["id", "Id"], ["clock", "Clock"], ["by", "Author"], ["text", "Payload"]]
		this.titles = el("div", { class: "log-titles", "aria-hidden": "true" }, ...titles.map(([name, words]) => el("span", { class: name }, words)))
		this.list = el(
			"div",
			{ class: "log-list", role: "listbox", tabindex: "0", "aria-label": "Entries, newest first" },
			this.layer,
			this.space,
		)
		this.element = el("div", { class: "log-part" }, this.titles, this.list)
		/** @type {{element: HTMLElement, row: number, id: HTMLElement, mark: HTMLElement, note: HTMLElement, author: HTMLElement, clock: HTMLElement, text: HTMLElement}[]} */
		this.pool = []
		this.list.addEventListener("scroll", () => this.redraw(), { passive: true })
		this.list.addEventListener("keydown", (event) => this.onKey(event))
		this.list.addEventListener("click", (event) => this.onClick(event))
		new ResizeObserver(() => this.redraw()).observe(this.list)
		onThemeChange(() => this.redraw())
	}

	/** Show a model, or the same one after it changed. @param {LogModel} model */
	show(model) {
		this.model = model
		this.lanes = new Lanes(model.count, (row) => model.parentsOf(row))
		this.space.style.setProperty("height", `${model.count * ROW + 8}px`)
		this.active = Math.max(0, this.chosen === "" ? 0 : model.rowOf(this.chosen))
		this.redraw()
	}

	get isAtTop() {
		return this.list.scrollTop < ROW
	}

	scrollToTop() {
		this.list.scrollTop = 0
	}

	/** Mark an entry as chosen and bring it into sight. @param {string} id */
	choose(id) {
		this.chosen = id
		const row = this.model?.rowOf(id) ?? -1
		if (row >= 0) this.bringIntoSight(row)
		this.redraw()
		return row >= 0
	}

	/** Draw within the next frame. */
	redraw() {
		if (this.isAsked) return
		this.isAsked = true
		requestAnimationFrame(() => {
			this.isAsked = false
			this.draw()
		})
	}

	/** @param {number} row */
	bringIntoSight(row) {
		this.active = row
		const { scrollTop, clientHeight } = this.list
		if (row * ROW < scrollTop || (row + 1) * ROW > scrollTop + clientHeight) {
			this.list.scrollTop = Math.max(0, row * ROW - clientHeight / 3)
		}
	}

	/** @param {KeyboardEvent} event */
	onKey(event) {
		const model = this.model
		if (model === null || model.count === 0 || event.ctrlKey || event.metaKey || event.altKey) return
		const page = Math.max(1, Math.floor(this.list.clientHeight / ROW) - 1)
		const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -model.count, End: model.count }
		const step = steps[/** @type {keyof typeof steps} */ (event.key)]
		const parent = event.key === "p" ? model.parentsOf(this.active)[0] : undefined
		if (step !== undefined) this.bringIntoSight(Math.min(model.count - 1, Math.max(0, this.active + step)))
		else if (parent !== undefined) this.bringIntoSight(parent)
		else if (event.key === "Enter" || event.key === " ") this.onChoose(model.entry(this.active).id)
		else return
		event.preventDefault()
		this.redraw()
	}

	/** @param {MouseEvent} event */
	onClick(event) {
		const option = event.target instanceof Element ? event.target.closest("[role=option]") : null
		const found = this.pool.find((one) => one.element === option)
		if (found && this.model && found.row < this.model.count) {
			this.active = found.row
			this.onChoose(this.model.entry(found.row).id)
		}
	}

	draw() {
		const { model, list: element } = this
		if (model === null || element.clientHeight === 0) return
		const top = element.scrollTop
		const first = Math.max(0, Math.floor(top / ROW))
		const last = Math.min(model.count - 1, Math.ceil((top + element.clientHeight) / ROW))
		const isLaidOut = this.lanes.reach(last, performance.now() + LAYOUT_MS)
		if (!isLaidOut) this.redraw()
		model.want?.(first, last)
		const width = this.drawLanes(first, last, top)
		this.element.style.setProperty("--lanes", `${width}px`)
		this.placeRows(model, first, last, top)
		if (model.count > 0) element.setAttribute("aria-activedescendant", `row-${this.active}`)
	}

	/** @param {LogModel} model @param {number} first @param {number} last @param {number} top */
	placeRows(model, first, last, top) {
		while (this.pool.length < last - first + 1) this.pool.push(this.addRow())
		this.pool.forEach((slot, at) => {
			const row = first + at
			slot.element.hidden = row > last
			slot.row = row
			if (row > last) return
			const entry = model.entry(row)
			slot.element.style.setProperty("transform", `translateY(${row * ROW - top}px)`)
			slot.mark.style.setProperty("--colour", authorColour(entry.author))
			slot.element.id = `row-${row}`
			slot.element.setAttribute("aria-setsize", String(model.count))
			slot.element.setAttribute("aria-posinset", String(row + 1))
			slot.element.setAttribute("aria-selected", String(entry.id === this.chosen))
			slot.element.classList.toggle("active", row === this.active)
			slot.element.classList.toggle("match", model.isMatch?.(entry.id) ?? false)
			slot.element.classList.toggle("head", this.lanes.rows[row]?.isHead ?? false)
			const note = model.noteOn?.(entry.id) ?? ""
			slot.note.hidden = note === ""
			say(slot.note, note)
			say(slot.id, shortId(entry.id))
			say(slot.author, shortName(entry.author))
			say(slot.clock, whole(entry.clock))
			say(slot.text, plain(entry.text ?? ""))
		})
	}

	addRow() {
		const mark = dot("", "square")
		const id = el("span", { class: "id" })
		const author = el("span", { class: "author" })
		const clock = el("span", { class: "clock" })
		const text = el("span", { class: "text" })
		const note = el("span", { class: "aside", hidden: true })
		const element = el("div", { class: "log-row", role: "option" }, id, clock, el("span", { class: "by" }, mark, author), el("span", { class: "words" }, note, text))
		this.layer.append(element)
		return { element, row: 0, id, mark, note, author, clock, text }
	}

	/** @param {number} first @param {number} last @param {number} top @returns {number} how wide the lanes are, in CSS pixels */
	drawLanes(first, last, top) {
		const { canvas, list: element, lanes, model } = this
		const columnsMax = Math.max(3, Math.floor((element.clientWidth * 0.35) / PITCH))
		for (let row = first; row <= last; row++) {
			const links = lanes.rows[row]?.links ?? []
			for (let at = 0; at < links.length; at += 3) this.laneColumns = Math.max(this.laneColumns, links[at] + 1, links[at + 1] + 1)
		}
		const columns = Math.min(columnsMax, this.laneColumns)
		const width = 2 * MARGIN + (columns - 1) * PITCH
		const scale = devicePixelRatio
		const [w, h] = [Math.round(width * scale), Math.round(element.clientHeight * scale)]
		if (canvas.width !== w || canvas.height !== h) {
			Object.assign(canvas, { width: w, height: h })
			canvas.style.setProperty("width", `${width}px`)
			canvas.style.setProperty("height", `${element.clientHeight}px`)
		}
		const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"))
		context.setTransform(scale, 0, 0, scale, 0, 0)
		context.clearRect(0, 0, width, element.clientHeight)
		/** @param {number} column */
		const x = (column) => MARGIN + Math.min(column, columns - 1) * PITCH
		/** @param {number} row */
		const y = (row) => row * ROW - top + ROW / 2
		context.lineWidth = 1.75
		context.strokeStyle = themeColour("strong-line")
		context.beginPath()
		for (let row = Math.max(0, first - 1); row <= last; row++) {
			const links = lanes.rows[row]?.links ?? []
			for (let at = 0; at < links.length; at += 3) {
				const [from, to, middle] = [x(links[at]), x(links[at + 1]), y(row) + ROW / 2]
				context.moveTo(from, y(row))
				if (from === to) context.lineTo(to, y(row + 1))
				else context.bezierCurveTo(from, middle, to, middle, to, y(row + 1))
			}
		}
		context.stroke()
		for (let row = first; row <= last && model !== null; row++) {
			const placed = lanes.rows[row]
			if (placed !== undefined) drawEntry(context, x(placed.column), y(row), authorColour(model.entry(row).author), placed.isHead)
		}
		return width
	}
}

/**
 * An entry: a small rounded square in its author's colour; a head has a ring.
 * @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {string} colour @param {boolean} isHead
 */
export function drawEntry(context, x, y, colour, isHead) {
	context.fillStyle = themeColour("surface")
	context.beginPath()
	context.roundRect(x - 6.5, y - 6.5, 13, 13, 4)
	context.fill()
	context.fillStyle = colour
	context.beginPath()
	context.roundRect(x - 5, y - 5, 10, 10, 3)
	context.fill()
	if (isHead) {
		context.strokeStyle = colour
		context.lineWidth = 1.5
		context.beginPath()
		context.roundRect(x - 8, y - 8, 16, 16, 5)
		context.stroke()
	}
}
