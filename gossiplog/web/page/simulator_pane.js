// One trace with its picture and its figures.

import { el, fill, plain, say, shortName, span, whole } from "./drawing/dom.js"
import { percentile } from "./facts.js"
import { Force } from "./force.js"
import { NetworkCanvas } from "./network_canvas.js"
import { Playback } from "./playback.js"
import { Trace } from "./trace.js"

const LAYOUT_MS = 6
/** Of that many latencies percentiles are taken, evenly from all. */
const SAMPLE_MAX = 20_000

export class Pane {
	/** @param {string} name @param {() => void} onLoaded @param {() => void} onChange something is to be drawn again */
	constructor(name, onLoaded, onChange) {
		this.onLoaded = onLoaded
		/** @type {Playback | null} */
		this.playback = null
		/** Seconds by which its clock is ahead of the one that is shown. */
		this.shift = 0
		this.chosen = -1
		this.url = ""
		this.force = new Force()
		this.layoutVersion = 0
		this.drawing = new NetworkCanvas(`${name}: peers and what runs between them; the figures below say what there is`)
		this.heading = el("h2", {}, name)
		this.figures = el("p", { class: "summary" })
		this.ofChosen = el("p", { class: "summary of-chosen", role: "status", hidden: true })
		this.said = el("p", { class: "hint", role: "status" }, "Drop a trace here, or choose a file that ", el("code", {}, "gossiplog sim run SCENARIO --trace FILE.jsonl"), " wrote, or the facts.jsonl of a test network’s report.")
		const input = el("input", { type: "file", class: "unseen", accept: ".jsonl,.json", "aria-label": `${name}: choose a file`, onchange: () => this.take(input.files?.[0]) })
		const button = el("label", { class: "button of-file" }, "Choose a file", input)
		const number = el("input", { type: "number", min: "0", class: "of-peer-number", placeholder: "none", oninput: () => choose(number.value === "" ? -1 : number.valueAsNumber) })
		this.number = number
		const choice = el("label", { class: "of-peer" }, "Lines of peer ", number)
		this.chooser = el("div", { class: "chooser", hidden: true }, choice, this.ofChosen)
		/** @param {number} chosen */
		const choose = (chosen) => {
			this.chosen = Number.isInteger(chosen) && chosen < (this.playback?.trace.nodeCount ?? 0) ? chosen : -1
			onChange()
		}
		this.drawing.canvas.addEventListener("click", (event) => {
			const found = this.drawing.dotAt(this.force.bodies, event.offsetX, event.offsetY)
			number.value = found < 0 ? "" : String(found)
			choose(found)
		})
		this.element = el(
			"section",
			{ class: "pane empty", "aria-label": name },
			el("header", {}, this.heading, button),
			this.said,
			this.drawing.canvas,
			this.figures,
			this.chooser,
		)
		this.element.addEventListener("dragover", (event) => (event.preventDefault(), this.element.classList.add("over")))
		this.element.addEventListener("dragleave", () => this.element.classList.remove("over"))
		this.element.addEventListener("drop", (event) => {
			event.preventDefault()
			this.element.classList.remove("over")
			this.take(event.dataTransfer?.files[0])
		})
	}

	get isBusy() {
		return this.force.isMoving || this.drawing.isBehind
	}

	/** @param {File | undefined} file */
	take(file) {
		if (file !== undefined) this.load(file.stream())
	}

	/** @param {{name: string, url: string}} trace on this server */
	async fetchTrace({ name, url }) {
		if (url === this.url) return
		this.url = url
		try {
			const answer = await fetch(new URL(url, location.origin))
			if (answer.ok && answer.body !== null) await this.load(answer.body)
			else this.refuse(`${name}: ${answer.status} ${answer.statusText}`)
		} catch (error) {
			this.refuse(`${name}: ${error instanceof Error ? error.message : String(error)}`)
		}
	}

	/** @param {string} words */
	refuse(words) {
		this.url = ""
		this.said.hidden = false
		fill(this.said, plain(words))
	}

	/** @param {ReadableStream<Uint8Array>} stream */
	async load(stream) {
		try {
			this.said.hidden = false
			const trace = await Trace.read(stream, (lines) => fill(this.said, `${whole(lines)} lines read`))
			if (trace.length === 0) throw new Error("there is no line of a trace in it")
			this.said.hidden = trace.skipped === 0
			fill(this.said, `${whole(trace.skipped)} ${trace.skipped === 1 ? "line" : "lines"} could not be read.`)
			const of = trace.isLive ? "real processes" : `seed ${trace.seed}`
			say(this.heading, plain(`${trace.router} · ${trace.scenario} · ${of}`))
			this.force.set(Array.from({ length: trace.nodeCount }, (_, number) => Force.at(number)), trace.pairs())
			this.force.heat = 1
			this.playback = new Playback(trace)
			Object.assign(this, { chosen: -1, shift: 0 })
			Object.assign(this.number, { value: "", max: String(trace.nodeCount - 1) })
			this.chooser.hidden = false
			this.element.classList.remove("empty")
			this.onLoaded()
		} catch (error) {
			this.refuse(`This is no trace: ${error instanceof Error ? error.message : String(error)}`)
		}
	}

	/** @param {number} time @param {number} now @param {boolean} isWay */
	draw(time, now, isWay) {
		if (this.playback === null) return
		if (this.force.isMoving) {
			this.force.run(LAYOUT_MS)
			this.layoutVersion++
		}
		this.playback.goTo(time + this.shift)
		this.drawing.draw(this.playback.scene(this.force.bodies, this.layoutVersion, { chosen: this.chosen, isWay }), now)
	}

	showFigures() {
		if (this.playback === null) return
		const { trace, published, delivered, sent, latencies, way, time } = this.playback
		const share = published === 0 ? 0 : delivered / (published * (trace.nodeCount - 1) || 1)
		const copies = delivered === 0 ? "" : ` · ${(sent / delivered).toFixed(2)} copies sent for each`
		const sample = latencies.length <= SAMPLE_MAX ? latencies : Array.from({ length: SAMPLE_MAX }, (_, at) => latencies[Math.floor((at * latencies.length) / SAMPLE_MAX)])
		const late = sample.length === 0 ? "" : ` · latency p50 ${span(percentile(sample, 0.5))}, p99 ${span(percentile(sample, 0.99))}`
		const newest = published === 0 ? "" : ` · the newest is at ${whole(way.length)} others`
		const fault = trace.faults.findLast((one) => one.time <= time)
		const done = fault === undefined ? "" : ` · ${plain(fault.words)} at ${span(fault.time - this.shift)}`
		say(this.figures, `${whole(trace.nodeCount)} peers · ${whole(published)} published, ${(100 * share).toFixed(1)} % delivered${copies}${late}${newest}${done}`)
		this.showChosen()
	}

	showChosen() {
		const { playback, chosen } = this
		this.ofChosen.hidden = playback === null || chosen < 0
		if (playback === null || chosen < 0) return
		const { full, metadata, none } = playback.linesOf(chosen)
		const state = playback.isAlive[chosen] === 1 ? "" : ", down"
		const words = `${shortName(playback.trace.nameOf(chosen))}${state}: ${whole(full)} for messages, ${whole(metadata)} for announcements, ${whole(none)} only connected`
		say(this.ofChosen, plain(words))
	}
}
