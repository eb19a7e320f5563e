// dag-json: JSON with bytes and links, written byte for byte as the reference writes it. It is only ever signed, so it is only written.
// Source: the dag-json specification; docs/spec/entries.md, "Signature".

import { toBase64 } from "./bytes.js"
import { Link } from "./link.js"

const JOINED_AT_ONCE = 4096

/** The text of the item in PCF that begins here. It is made of the bytes: values of millions of items would take a gigabyte. @param {import("./cbor.js").CborReader} reader @returns {string} */
export function toDagJson(reader) {
	if (reader.kind === 4) return `[${joined(reader)}]`
	if (reader.kind !== 5) return scalar(reader.item())
	/** @type {[string, string][]} */
	const items = []
	for (let left = reader.array(); left > 0; left--) items.push([reader.item(), toDagJson(reader)])
	items.sort(([one], [other]) => (one < other ? -1 : 1))
	return `{${items.map(([key, text]) => `${JSON.stringify(key)}:${text}`).join(",")}}`
}

/** @param {import("./cbor.js").CborReader} reader */
function joined(reader) {
	let text = ""
	for (let left = reader.array(); left > 0; left -= JOINED_AT_ONCE) {
		text += (text && ",") + Array.from({ length: Math.min(left, JOINED_AT_ONCE) }, () => toDagJson(reader)).join(",")
	}
	return text
}

/** Safe integers bare, other numbers told from integers by a point or an exponent. @param {any} value */
function scalar(value) {
	if (value instanceof Uint8Array) return `{"/":{"bytes":"${toBase64(value)}"}}`
	if (value instanceof Link) return `{"/":"${value}"}`
	if (typeof value === "string") return JSON.stringify(value)
	const text = String(value)
	return typeof value !== "number" || Number.isSafeInteger(value) || /[.e]/.test(text) ? text : text + ".0"
}
