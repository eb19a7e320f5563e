// Hues of roots and authors, as graph/palette.py computes them; lightness and chroma come from the stylesheet made there.

const HUES = 18
const SHADES = [0, -0.13, 0.07]
const encoder = new TextEncoder()
/** @type {Map<string, number>} */
const spreads = new Map()
const dark = matchMedia("(prefers-color-scheme: dark)")
let [lightness, chroma] = ["", ""]
/** @type {Record<string, string>} */
let colours = {}

const NAMES = ["ground", "surface", "raised", "line", "strong-line", "ink", "muted", "accent", "good", "warn", "bad"]

function readTheme() {
	const style = getComputedStyle(document.documentElement)
	lightness = style.getPropertyValue("--dot-lightness").trim()
	chroma = style.getPropertyValue("--dot-chroma").trim()
	colours = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]))
}

/** A colour of the theme by its name in the stylesheet. @param {string} name */
export function themeColour(name) {
	if (lightness === "") readTheme()
	return colours[name] ?? ""
}

/** Call a function when the theme changes, after the new colours are known. @param {() => void} redraw */
export function onThemeChange(redraw) {
	dark.addEventListener("change", () => {
		readTheme()
		redraw()
	})
}

/** @param {number} hue in degrees @param {number} [shade] what is added to the theme's lightness */
export function hueColour(hue, shade = 0) {
	if (lightness === "") readTheme()
	return `oklch(${(Number(lightness) + shade).toFixed(2)} ${chroma} ${hue})`
}

/**
 * Equal roots, equal colours. Two roots whose hues happen to be near differ in lightness with two chances of three.
 * @param {string | null | undefined} hash of the root, in hex; without one, grey
 */
export function rootColour(hash) {
	return hash ? hueColour(rootHue(hash), SHADES[parseInt(hash.slice(4, 6), 16) % SHADES.length]) : themeColour("strong-line")
}

/** @param {string} hash in hex */
export function rootHue(hash) {
	return Math.floor((parseInt(hash.slice(0, 4), 16) * 360) / 65536)
}

/** @param {string} did */
export function authorColour(did) {
	const value = spread(did)
	return hueColour((value % HUES) * (360 / HUES), SHADES[Math.floor(value / HUES) % SHADES.length])
}

/** FNV-1a of the did's UTF-8, folded. @param {string} did */
function spread(did) {
	let folded = spreads.get(did)
	if (folded === undefined) {
		let value = 0x811c9dc5
		for (const byte of encoder.encode(did)) value = Math.imul(value ^ byte, 0x01000193) >>> 0
		folded = (value ^ (value >>> 16)) >>> 0
		spreads.set(did, folded)
	}
	return folded
}
