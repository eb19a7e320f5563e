// Links: the CIDs inside payloads, which are kept as bytes and never followed.
// Source: docs/spec/entries.md, "Portable canonical form"; the CID specification.

import { fromBase32, fromBase58, toBase32, toBase58 } from "./bytes.js"
import { DecodeError } from "./errors.js"
import { decodePaddedVarint, decodeVarint } from "./varint.js"

const BASE32 = "abcdefghijklmnopqrstuvwxyz234567"

export class Link {
	/** @param {Uint8Array} bytes Of the CID. */
	constructor(bytes) {
		checkCid(bytes)
		this.bytes = bytes
		Object.freeze(this)
	}

	/** @param {string} text Base58btc of version 0, or base32 of version 1. */
	static parse(text) {
		const bytes = text.startsWith("b") ? fromBase32(text.slice(1), BASE32) : fromBase58(text)
		const link = new Link(bytes)
		if (String(link) !== text) throw new DecodeError(`${JSON.stringify(text.slice(0, 80))} is not the canonical text of its CID`)
		return link
	}

	toString() {
		return this.bytes[0] === 0x12 ? toBase58(this.bytes) : "b" + toBase32(this.bytes, BASE32)
	}
}

/** Accept a CID that survives the reference's decoding and encoding. @param {Uint8Array} cid */
export function checkCid(cid) {
	if (cid[0] === 0x12) {
		if (cid.length !== 34 || cid[1] !== 0x20) throw new DecodeError("a CID of version 0 is sha2-256 of 32 bytes")
		return
	}
	if (cid[0] !== 1) throw new DecodeError("the CID's version is neither 0 nor 1")
	const codecEnd = decodeVarint(cid, 1)[1]
	const hashEnd = decodePaddedVarint(cid, codecEnd)[1]
	const [size, start] = decodePaddedVarint(cid, hashEnd)
	if (cid.length - start !== size) throw new DecodeError(`the CID has a digest of ${cid.length - start} bytes and says ${size}`)
}
