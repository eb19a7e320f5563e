// dag-json: JSON with bytes and links, written byte for byte as the reference writes it. It is only ever signed, so it is only written.
// Source: the dag-json specification; docs/spec/entries.md, "Signature".

import { toBase64 } from "./bytes.js"
import { isMap } from "./cbor.js"
import { Link } from "./link.js"

/** The text of what PCF can hold, which bounds how deep it is. @param {any} value @returns {string} */
export function toDagJson(value) {
	if (typeof value === "number") return numberText(value)
	if (typeof value === "bigint") return String(value)
	if (value instanceof Uint8Array) return `{"/":{"bytes":"${toBase64(value)}"}}`
	if (value instanceof Link) return `{"/":"${value}"}`
	if (Array.isArray(value)) return `[${value.map(toDagJson).join(",")}]`
	if (!isMap(value)) return JSON.stringify(value)
	const items = Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${toDagJson(value[key])}`)
	return `{${items.join(",")}}`
}

/** Safe integers bare, others told from integers by a point or an exponent. @param {number} number */
function numberText(number) {
	const text = String(number)
	return Number.isSafeInteger(number) || /[.e]/.test(text) ? text : text + ".0"
}
