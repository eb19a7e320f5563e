// Traces, played with the drawing of the live network: of the simulator, or the facts of real processes; two of them on one clock.

import { el, say, span } from "./drawing/dom.js"
import { onThemeChange } from "./drawing/palette.js"
import { makeLegend } from "./network_view.js"
import { Pane } from "./simulator_pane.js"

const SPEEDS = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10]
/** Before the first message, so that it is seen to begin. */
const LEAD_S = 0.05
const LINES = [
	["full", "messages: mesh, or eager link"],
	["metadata", "announcements only: not in the mesh, or lazy link"],
	["none", "connected; for episub, outside the active view"],
	["arrow", "way of the newest message: to whom it was sent"],
]

export class SimulatorView {
	title = "Simulator"

	/** @param {{name: string, url: string}[]} traces of this server, to begin with */
	constructor(traces) {
		this.traces = traces
		this.panes = ["First trace", "Second trace"].map((name) => new Pane(name, () => this.loaded(), () => this.wake()))
		this.time = 0
		this.duration = 0
		this.isPlaying = false
		this.frame = 0
		this.lastFrame = 0
		this.saidAt = 0
		this.play = el("button", { disabled: true, onclick: () => this.turn() }, "Play")
		this.back = el("button", { disabled: true, onclick: () => this.step(-1) }, "Previous message")
		this.next = el("button", { disabled: true, onclick: () => this.step(1) }, "Next message")
		this.slider = el("input", { type: "range", min: "0", max: "0", step: "any", value: "0", disabled: true, "aria-label": "Time" })
		this.clock = el("output", { class: "then", "aria-live": "off" })
		this.speed = el("select", { "aria-label": "Speed", disabled: true }, ...SPEEDS.map((speed) => el("option", { value: speed, selected: speed === 0.1 }, `${speed} × real time`)))
		this.lines = el(
			"select",
			{ "aria-label": "Lines", disabled: true, onchange: () => this.wake() },
			el("option", { value: "peerings" }, "Peerings"),
			el("option", { value: "way" }, "Way of the newest message"),
		)
		this.slider.addEventListener("input", () => this.goTo(this.slider.valueAsNumber))
		const tools = el("div", { class: "player-tools" }, this.play, this.back, this.next, this.speed, el("label", {}, "Lines ", this.lines))
		const bar = el("div", { class: "player" }, tools, el("div", { class: "player-time" }, this.slider, this.clock))
		this.legend = makeLegend("Equal colours: the same messages; grey: none yet", LINES)
		this.legend.hidden = true
		this.legend.append(el("li", {}, el("span", { class: "dot square", "aria-hidden": "true" }), "a message on its way"))
		this.element = el("div", { class: "simulator" }, bar, el("div", { class: "panes" }, ...this.panes.map(({ element }) => element)), this.legend)
		this.element.addEventListener("keydown", (event) => {
			if (event.key !== " " || (event.target instanceof Element && event.target.matches("button, input, select"))) return
			event.preventDefault()
			this.turn()
		})
		new ResizeObserver(() => this.wake()).observe(this.element)
		onThemeChange(() => this.wake())
	}

	/** @param {string} _rest @param {URLSearchParams} query `trace` once or twice: paths on this server */
	open(_rest, query) {
		const named = query.getAll("trace").map((url) => ({ name: url, url }))
		const wanted = named.length > 0 ? named : this.traces
		wanted.slice(0, 2).forEach((trace, at) => this.panes[at].fetchTrace(trace))
		this.wake()
	}

	close() {
		cancelAnimationFrame(this.frame)
		this.frame = 0
		this.isPlaying = false
		say(this.play, "Play")
	}

	/** What really happened has a clock of its own: its first message is put where the other trace has its own. */
	loaded() {
		const playbacks = this.panes.flatMap(({ playback }) => playback ?? [])
		const first = Math.min(...playbacks.map(({ trace }) => trace.publishTimes[0] ?? 0))
		const areLive = playbacks.some(({ trace }) => trace.isLive)
		for (const pane of this.panes) pane.shift = areLive && pane.playback !== null ? (pane.playback.trace.publishTimes[0] ?? 0) - first : 0
		this.duration = Math.max(...this.panes.map(({ playback, shift }) => (playback === null ? 0 : playback.trace.duration - shift)))
		this.slider.max = String(this.duration)
		for (const control of [this.play, this.back, this.next, this.slider, this.speed, this.lines]) control.disabled = false
		this.legend.hidden = false
		this.element.classList.toggle("is-one", playbacks.length === 1)
		if (this.time === 0) this.time = Math.max(0, first - LEAD_S)
		this.wake()
	}

	/** @param {number} time */
	goTo(time) {
		this.time = Math.max(0, Math.min(this.duration, time))
		this.wake()
	}

	/** To just before the next message, or the one before. @param {1 | -1} way */
	step(way) {
		const times = this.panes.flatMap(({ playback, shift }) => playback?.trace.publishTimes.map((time) => time - shift - LEAD_S) ?? [])
		const others = times.filter((time) => (way > 0 ? time > this.time + 1e-6 : time < this.time - 1e-6))
		if (others.length > 0) this.goTo(others.reduce((a, b) => (way > 0 ? Math.min(a, b) : Math.max(a, b))))
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
		for (const pane of this.panes) pane.draw(this.time, now, this.lines.value === "way")
		this.slider.value = String(this.time)
		if (!this.isPlaying || now - this.saidAt > 200) {
			this.saidAt = now
			const words = span(this.time)
			say(this.clock, this.duration > 0 ? words : "")
			this.slider.setAttribute("aria-valuetext", words)
			for (const pane of this.panes) pane.showFigures()
		}
		if (this.isPlaying || this.panes.some(({ isBusy }) => isBusy)) this.wake()
	}
}
