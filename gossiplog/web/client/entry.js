// Entries: VALUE taken apart and put together, and everything that makes one valid but for its parents being here.
// Source: docs/spec/entries.md.

import { compare, concat, fromBase32, fromBase58, toBase32, toBase58, utf8 } from "./bytes.js"
import { CborReader, DEPTH_MAX, TooDeep, decode, encode, header, textItem } from "./cbor.js"
import { toDagJson } from "./dag_json.js"
import { verify } from "./ed25519.js"
import { DecodeError, EncodeError, GossipLogError, inWords } from "./errors.js"
import { sha256 } from "./sha256.js"
import { CLOCK_MAX, decodeClock, decodePaddedVarint, encodeClock } from "./varint.js"

/** @typedef {import("./client.js").Entry} TypedEntry What client.d.ts says of it. */

export const KEY_BYTES = 20
const VALUE_BYTES_MAX = 4_194_294
/** The largest entry that we make. */
const APPENDED_BYTES_MAX = 64 * 1024
const PARENTS_MAX = 16_384
const DID_CHARS_MAX = 512
const ED25519_CODE = 0xed
const SIGNATURE_BYTES = 64
const TOPIC = /^([a-zA-Z0-9.-]+(#[a-zA-Z0-9]+)?|[a-zA-Z0-9:.-]+)$/
const DID = /^did:key:z([1-9A-HJ-NP-Za-km-z]+)$/
/** Rules that an entry may break which is good elsewhere. */
const UNSUPPORTED = ["size", "nesting", "portable", "scheme"]
/** Of [codec, did, signature], [parents] and the rest. @typedef {{ codec: string, did: string, signature: Uint8Array, topic: string, clock: number, parentKeys: Uint8Array[], payloadAt: number }} Envelope */
/** @typedef {{ outcome: "accept" | "ignore" | "reject", rule?: string, reason?: string, entry?: Entry }} Verdict */

/** Bytes that are no entry, or none for this log: the first rule that they break. */
class InvalidEntry extends DecodeError {
	/** @param {string} rule @param {string} reason */
	constructor(rule, reason) {
		super(reason)
		this.rule = rule
	}
}

/** One entry: a signed message, its bytes, and the key that follows from them. The payload is decoded when it is first asked for. @implements {TypedEntry} */
export class Entry {
	/** @type {any} */
	#payload
	/** @param {Uint8Array} value VALUE. @param {Envelope} envelope Of it. */
	constructor(value, envelope) {
		this.value = value
		this.envelope = envelope
		this.key = keyOf(envelope.clock, value)
	}

	/** What the bytes are that a store has kept, whose form was proved before. @param {Uint8Array} value */
	static stored(value) {
		return new Entry(value, parseEnvelope(value))
	}

	/** 32 characters; an ancestor's is smaller. */
	get id() {
		return toBase32(this.key)
	}
	/** The did that signed it. */
	get author() {
		return this.envelope.did
	}
	get topic() {
		return this.envelope.topic
	}
	get clock() {
		return this.envelope.clock
	}
	get parents() {
		return this.envelope.parentKeys.map((key) => toBase32(key))
	}
	/** The application's value. Treat it as frozen. */
	get payload() {
		this.#payload ??= { value: decode(this.value, this.envelope.payloadAt) }
		return this.#payload.value
	}
}

/** @param {number} clock @param {Uint8Array} value */
function keyOf(clock, value) {
	return concat([encodeClock(clock), sha256(value)]).slice(0, KEY_BYTES)
}

/** The key of an id, 20 bytes. @param {string} id */
export function keyOfId(id) {
	if (typeof id !== "string" || !/^[0-9a-v]{32}$/.test(id)) throw new GossipLogError(`${JSON.stringify(id)} is no id`)
	return fromBase32(id)
}

/** @param {Uint8Array} key */
export const idOfKey = (key) => toBase32(key)

/** Refuse a topic of the wrong form. @param {string} topic */
export function checkTopic(topic) {
	if (!isTopic(topic)) throw new GossipLogError(`topic ${JSON.stringify(topic).slice(0, 140)} is not well formed: letters, digits, '.', '-' and ':', at most 128`)
}

/** @param {unknown} topic */
function isTopic(topic) {
	return typeof topic === "string" && topic.length <= 128 && TOPIC.test(topic) && topic !== "." && topic !== ".."
}

/** The did:key of an Ed25519 key of 32 bytes. @param {Uint8Array} publicKey */
export const didOf = (publicKey) => "did:key:z" + toBase58(concat([Uint8Array.of(0xed, 0x01), publicKey]))

/** The Ed25519 key that a did:key names. @param {string} did @returns {Uint8Array} */
export function publicKeyOf(did) {
	const match = did.length <= DID_CHARS_MAX ? DID.exec(did) : null
	if (match === null) throw new InvalidEntry("scheme", "no did:key in base58btc")
	const bytes = fromBase58(match[1])
	const [code, end] = decodePaddedVarint(bytes)
	if (code !== ED25519_CODE) throw new InvalidEntry("scheme", `no Ed25519 key, but one of multicodec 0x${code.toString(16)}`)
	return bytes.subarray(end)
}

/** Prove that VALUE is well formed, and take it apart. @param {Uint8Array} value @returns {Envelope} */
function parseEnvelope(value) {
	if (value.length > VALUE_BYTES_MAX) throw new InvalidEntry("size", `${value.length} bytes, at most ${VALUE_BYTES_MAX} are allowed`)
	checkForm(value)
	if (value[0] !== 0x85) throw new InvalidEntry("shape", "not a tuple of five")
	const reader = new CborReader(value, 2)
	/** Nothing else is built. @param {number[]} kinds @param {string} what */
	const read = (kinds, what) => {
		if (!kinds.includes(reader.kind)) throw new InvalidEntry("shape", what)
		return reader.item()
	}
	const NO_SIGNATURE = "the signature is not a tuple of codec, did and bytes"
	if (value[1] !== 0x83) throw new InvalidEntry("shape", NO_SIGNATURE)
	const [codec, did, signature] = [3, 3, 2].map((kind) => read([kind], NO_SIGNATURE))
	const topic = read([3], "the topic is not a string")
	if (!isTopic(topic)) throw new InvalidEntry("topic", "not a topic")
	const clock = read([0, 1], "the clock is not an integer")
	const parentKeys = readParents(reader)
	const payloadAt = reader.at
	const expected = nextClock(parentKeys)
	if (clock === 0 && parentKeys.length === 0) throw new InvalidEntry("scheme", "clock 0, which is only for a snapshot, and is not read here")
	if (clock !== expected || clock > CLOCK_MAX) throw new InvalidEntry("clock", `clock ${clock}, expected ${expected}`)
	return { codec, did, signature, topic, clock, parentKeys, payloadAt }
}

/** Prove that VALUE is in PCF to its last byte. What only some version of the reference may keep is nobody's fault. @param {Uint8Array} value */
function checkForm(value) {
	const reader = new CborReader(value, 0, false)
	try {
		reader.item(DEPTH_MAX + 1)
		if (reader.at !== value.length) throw new DecodeError(`${value.length - reader.at} bytes follow the entry`)
	} catch (error) {
		throw new InvalidEntry(error instanceof TooDeep && reader.unportable === null ? "nesting" : "canonical", inWords(error))
	}
	if (reader.unportable !== null) throw new InvalidEntry(value[0] === 0x85 && value[1] === 0x83 ? "portable" : "canonical", reader.unportable)
}

/** @param {CborReader} reader */
function readParents(reader) {
	if (reader.kind !== 4) throw new InvalidEntry("shape", "the parents are not an array")
	const count = reader.array()
	if (count > PARENTS_MAX) throw new InvalidEntry("size", `${count} parents, at most ${PARENTS_MAX} are allowed`)
	const keys = []
	for (let index = 0; index < count; index++) {
		if (reader.bytes[reader.at] !== 0x54) throw new InvalidEntry("shape", `a parent's key is not ${KEY_BYTES} bytes`)
		keys.push(/** @type {Uint8Array} */ (reader.item()))
	}
	return keys
}

/** One more than the highest clock of the parents. @param {Uint8Array[]} parentKeys */
export function nextClock(parentKeys) {
	try {
		return 1 + parentKeys.reduce((highest, key) => Math.max(highest, decodeClock(key)), 0)
	} catch (error) {
		throw new InvalidEntry("clock", `a parent's key: ${inWords(error)}`)
	}
}

/** What the signature is over: `{clock, parents, payload, topic}` in the signature's codec. @param {string} codec @param {string} topic @param {number} clock @param {Uint8Array[]} parentKeys @param {Uint8Array} payload In PCF. */
export function signedBytes(codec, topic, clock, parentKeys, payload) {
	const parents = parentKeys.map((key) => toBase32(key))
	if (codec === "dag-json") {
		const text = toDagJson(new CborReader(payload))
		return utf8(`{"clock":${clock},"parents":${JSON.stringify(parents)},"payload":${text},"topic":${JSON.stringify(topic)}}`)
	}
	const before = [Uint8Array.of(0xa4), textItem("clock"), header(0, clock), textItem("topic"), textItem(topic), textItem("parents")]
	return concat([...before, header(4, parents.length), ...parents.map(textItem), textItem("payload"), payload])
}

/** Decide about one VALUE, apart from its parents. Never raises, whatever the bytes. @param {Uint8Array} value @param {string} topic The log's. @returns {Promise<Verdict>} */
export async function validate(value, topic) {
	/** @type {Entry | undefined} */
	let entry
	try {
		const envelope = parseEnvelope(value)
		entry = new Entry(value, envelope)
		if (envelope.topic !== topic) throw new InvalidEntry("topic", "the topic is another log's")
		const { codec, did, signature, clock, parentKeys, payloadAt } = envelope
		if (codec !== "dag-cbor" && codec !== "dag-json") throw new InvalidEntry("scheme", "its codec is not supported")
		const publicKey = publicKeyOf(did)
		if (signature.length !== SIGNATURE_BYTES) throw new InvalidEntry("signature", `${signature.length} bytes, expected ${SIGNATURE_BYTES}`)
		const isValid = publicKey.length === 32 && (await verify(publicKey, signature, signedBytes(codec, topic, clock, parentKeys, value.subarray(payloadAt))))
		if (!isValid) throw new InvalidEntry("signature", "it does not verify")
		if (parentKeys.some((key, index) => index > 0 && compare(parentKeys[index - 1], key) >= 0)) {
			throw new InvalidEntry("portable", "the parents' keys do not ascend, or repeat")
		}
		return { outcome: "accept", entry }
	} catch (error) {
		const rule = error instanceof InvalidEntry ? error.rule : "scheme"
		return { outcome: UNSUPPORTED.includes(rule) ? "ignore" : "reject", rule, reason: inWords(error), entry }
	}
}

/**
 * Sign a message, and build its entry.
 * @param {{ did: string, codec?: string, sign: (data: Uint8Array) => Promise<Uint8Array> | Uint8Array }} signer
 * @param {string} topic @param {Uint8Array[]} parentKeys @param {any} payload
 */
export async function signEntry(signer, topic, parentKeys, payload) {
	const item = encode(payload)
	const codec = signer.codec ?? "dag-cbor"
	const parents = [...parentKeys].sort(compare)
	const clock = nextClock(parents)
	const signature = await signer.sign(signedBytes(codec, topic, clock, parents, item))
	const head = [Uint8Array.of(0x85, 0x83), textItem(codec), textItem(signer.did), header(2, signature.length), signature]
	const keys = parents.flatMap((key) => [Uint8Array.of(0x54), key])
	const value = concat([...head, textItem(topic), header(0, clock), header(4, parents.length), ...keys, item])
	if (value.length > APPENDED_BYTES_MAX) throw new EncodeError(`the entry would take ${value.length} bytes, at most ${APPENDED_BYTES_MAX} are allowed`)
	return Entry.stored(value)
}
