// Traces of the simulator, played with the drawing of the live network; two of them side by side on one clock.

import { el, fill, say, span, whole } from "./drawing/dom.js"
import { percentile } from "./facts.js"
import { Force } from "./force.js"
import { NetworkCanvas } from "./network_canvas.js"
import { Playback } from "./playback.js"
import { Trace } from "./trace.js"

const LAYOUT_MS = 6
const SPEEDS = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10]

/** One trace with its picture. */
class Pane {
	/** @param {string} name @param {() => void} onLoaded */
	constructor(name, onLoaded) {
		this.onLoaded = onLoaded
		/** @type {Playback | null} */
		this.playback = null
		this.force = new Force()
		this.layoutVersion = 0
		this.drawing = new NetworkCanvas(`Simulated network, ${name}`)
		this.heading = el("h2", {}, name)
		this.figures = el("p", { class: "summary" })
		this.said = el("p", { class: "hint", role: "status" }, "Drop a trace here, or choose a file that ", el("code", {}, "gossiplog sim run SCENARIO --trace FILE"), " wrote.")
		const input = el("input", { type: "file", accept: ".jsonl,.json", "aria-label": `${name}: a trace`, onchange: () => this.take(input.files?.[0]) })
		this.element = el("section", { class: "pane", "aria-label": name }, el("header", {}, this.heading, input), this.said, this.drawing.canvas, this.figures)
		this.element.addEventListener("dragover", (event) => (event.preventDefault(), this.element.classList.add("over")))
		this.element.addEventListener("dragleave", () => this.element.classList.remove("over"))
		this.element.addEventListener("drop", (event) => {
			event.preventDefault()
			this.element.classList.remove("over")
			this.take(event.dataTransfer?.files[0])
		})
	}

	/** @param {File | undefined} file */
	take(file) {
		if (file !== undefined) this.load(file.stream())
	}

	/** @param {ReadableStream<Uint8Array>} stream */
	async load(stream) {
		try {
			const trace = await Trace.read(stream, (lines) => fill(this.said, `${whole(lines)} lines read`))
			if (trace.length === 0) throw new Error("there is no line of a trace in it")
			this.said.hidden = true
			say(this.heading, `${trace.router} · ${trace.scenario} · seed ${trace.seed}`)
			this.force.set(Array.from({ length: trace.nodeCount }, (_, number) => Force.at(number)), trace.pairs())
			this.force.heat = 1
			this.playback = new Playback(trace)
			this.onLoaded()
		} catch (error) {
			this.said.hidden = false
			fill(this.said, `This is no trace: ${error instanceof Error ? error.message : String(error)}`)
		}
	}

	/** @param {number} time @param {number} now */
	draw(time, now) {
		if (this.playback === null) return
		if (this.force.isMoving) {
			this.force.run(LAYOUT_MS)
			this.layoutVersion++
		}
		this.playback.goTo(time)
		this.drawing.draw(this.playback.scene(this.force.bodies, this.layoutVersion), now)
	}

	showFigures() {
		if (this.playback === null) return
		const { trace, published, delivered, sent, latencies } = this.playback
		const share = published === 0 ? 0 : delivered / (published * (trace.nodeCount - 1) || 1)
		const copies = delivered === 0 ? "" : `, ${(sent / delivered).toFixed(2)} copies sent for each`
		const late = latencies.length === 0 ? "" : `, latency ${span(percentile(latencies, 0.5))}, p99 ${span(percentile(latencies, 0.99))}`
		say(this.figures, `${whole(trace.nodeCount)} peers, ${whole(published)} published, ${(100 * share).toFixed(1)} % delivered${copies}${late}`)
	}
}

export class SimulatorView {
	title = "Simulator"

	constructor() {
		this.panes = [new Pane("First trace", () => this.loaded()), new Pane("Second trace", () => this.loaded())]
		this.time = 0
		this.duration = 0
		this.isPlaying = false
		this.frame = 0
		this.lastFrame = 0
		this.saidAt = 0
		this.play = el("button", { disabled: true, onclick: () => this.turn() }, "Play")
		this.slider = el("input", { type: "range", min: "0", max: "0", step: "any", value: "0", "aria-label": "Time" })
		this.clock = el("output", { class: "then" }, "0 ms")
		this.speed = el("select", { "aria-label": "Speed" }, ...SPEEDS.map((speed) => el("option", { value: speed, selected: speed === 0.1 }, `${speed} ×`)))
		this.slider.addEventListener("input", () => {
			this.time = this.slider.valueAsNumber
			this.wake()
		})
		const bar = el("div", { class: "player" }, this.play, this.slider, this.clock, this.speed)
		this.element = el("div", { class: "simulator" }, bar, el("div", { class: "panes" }, ...this.panes.map(({ element }) => element)))
		this.element.addEventListener("keydown", (event) => {
			if (event.key !== " " || (event.target instanceof Element && event.target.matches("button, input, select"))) return
			event.preventDefault()
			this.turn()
		})
		new ResizeObserver(() => this.wake()).observe(this.element)
	}

	/** @param {string} _rest @param {URLSearchParams} query `trace` once or twice: paths on this server */
	open(_rest, query) {
		query.getAll("trace").slice(0, 2).forEach((path, at) => this.fetchTrace(path, this.panes[at]))
		this.wake()
	}

	close() {
		cancelAnimationFrame(this.frame)
		this.frame = 0
		this.isPlaying = false
		say(this.play, "Play")
	}

	/** @param {string} path @param {Pane} pane */
	async fetchTrace(path, pane) {
		const answer = await fetch(new URL(path, location.origin))
		if (answer.ok && answer.body !== null) pane.load(answer.body)
		else fill(pane.said, `${path}: ${answer.status} ${answer.statusText}`)
	}

	loaded() {
		this.duration = Math.max(...this.panes.map(({ playback }) => playback?.trace.duration ?? 0))
		this.slider.max = String(this.duration)
		this.play.disabled = false
		this.wake()
	}

	turn() {
		this.isPlaying = !this.isPlaying && this.duration > 0
		if (this.isPlaying && this.time >= this.duration) this.time = 0
		this.lastFrame = 0
		say(this.play, this.isPlaying ? "Pause" : "Play")
		this.wake()
	}

	wake() {
		if (this.frame === 0) this.frame = requestAnimationFrame((now) => this.draw(now))
	}

	/** @param {number} now */
	draw(now) {
		this.frame = 0
		if (this.isPlaying) {
			const step = this.lastFrame === 0 ? 0 : Math.min(0.1, (now - this.lastFrame) / 1000)
			this.time = Math.min(this.duration, this.time + step * Number(this.speed.value))
			this.lastFrame = now
			if (this.time >= this.duration) this.turn()
		}
		for (const pane of this.panes) pane.draw(this.time, now)
		this.slider.value = String(this.time)
		if (!this.isPlaying || now - this.saidAt > 200) {
			this.saidAt = now
			say(this.clock, span(this.time))
			for (const pane of this.panes) pane.showFigures()
		}
		if (this.isPlaying || this.panes.some(({ force }) => force.isMoving)) this.wake()
	}
}
