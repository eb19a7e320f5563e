// Building the page's elements. Text is always text: nothing here or elsewhere parses markup.

/**
 * @typedef {string | number | Node | null | undefined | false} Child
 * @typedef {Record<string, string | number | boolean | EventListener | null | undefined>} Attributes
 */

/**
 * Make an element. Attributes whose names begin with `on` are listeners; false, null and undefined leave one out.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(name, attributes = {}, ...children) {
	const element = document.createElement(name)
	for (const [key, value] of Object.entries(attributes)) {
		if (typeof value === "function") element.addEventListener(key.slice(2), value)
		else if (value === true) element.setAttribute(key, "")
		else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, String(value))
	}
	append(element, children)
	return element
}

/** Replace the children of an element. @param {Element} element @param {...Child} children */
export function fill(element, ...children) {
	element.replaceChildren()
	append(element, children)
}

/** @param {Element} element @param {Child[]} children */
function append(element, children) {
	for (const child of children) {
		if (child === null || child === undefined || child === false) continue
		element.append(child instanceof Node ? child : String(child))
	}
}

/** Set an element's text if it changed, so that screen readers read only changes. @param {Element} element @param {string} text */
export function say(element, text) {
	if (element.textContent !== text) element.textContent = text
}

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g

/** Text from a log, without characters that would reorder or hide the text around it. @param {string} text */
export const plain = (text) => text.replace(UNSEEN, "\ufffd")

/**
 * Text of a server, in which commands are between backticks.
 * @param {string} text
 * @returns {(string | HTMLElement)[]}
 */
export function withCode(text) {
	const parts = plain(text).split("`")
	return parts.length % 2 === 0 ? [plain(text)] : parts.map((part, index) => (index % 2 === 0 ? part : el("code", {}, part)))
}

/** The first characters of an id, enough to tell entries apart by eye. @param {string} id */
export const shortId = (id) => id.slice(0, 12)

/** The last characters of a did or a peer id, which tell two of them apart. @param {string} name */
export const shortName = (name) => (name.length > 14 ? "…" + name.slice(-8) : name)

/** @param {number} value */
export const whole = (value) => Math.round(value).toLocaleString("en")

/** @param {number} bytes */
export function size(bytes) {
	if (bytes < 1000) return `${Math.round(bytes)} B`
	const at = Math.min(4, Math.floor(Math.log10(bytes) / 3))
	return `${(bytes / 1000 ** at).toPrecision(3)} ${["B", "kB", "MB", "GB", "TB"][at]}`
}

/** A duration. @param {number} seconds */
export function span(seconds) {
	if (seconds < 0.9995) return `${(seconds * 1000).toPrecision(seconds < 0.01 ? 2 : 3)} ms`
	if (seconds < 60) return `${seconds.toPrecision(3)} s`
	if (seconds < 3600) return `${Math.round(seconds / 60)} min`
	return seconds < 86_400 ? `${(seconds / 3600).toFixed(1)} h` : `${Math.round(seconds / 86_400)} d`
}

/** The dot beside a name. @param {string} colour @param {string} [shape] round for peers and roots, square for entries and authors */
export function dot(colour, shape = "round") {
	const mark = el("span", { class: `dot ${shape}`, "aria-hidden": "true" })
	mark.style.setProperty("--colour", colour)
	return mark
}
