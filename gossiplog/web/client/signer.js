// Keys: Ed25519 by WebCrypto. A browser keeps the private half, and no script can read it.

import { didOf } from "./entry.js"
import { view } from "./ed25519.js"
import { GossipLogError, inWords } from "./errors.js"
import { answered, openDatabase } from "./indexeddb_store.js"

/** @typedef {import("./client.js").Signer} Signer */

/** PKCS #8 before an Ed25519 seed. */
const PKCS8 = Uint8Array.of(0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20)

/** Make a new key, whose private half cannot be read. @param {{ codec?: "dag-cbor" | "dag-json" }} [options] */
export async function generateSigner({ codec = "dag-cbor" } = {}) {
	return signerOf(await supported(() => crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"])), codec)
}

/** The key that this browser keeps under a name, made when it is first asked for. No script can read it, and it leaves with the page's data. @param {string} [name] */
export async function keptSigner(name = "default") {
	const made = await generateSigner()
	const database = await openDatabase("gossiplog-keys", 1, (database) => database.createObjectStore("keys"))
	try {
		const keys = database.transaction("keys", "readwrite").objectStore("keys")
		const kept = await answered(keys.get(name))
		if (kept === undefined) await answered(keys.put(made.pair, name))
		return kept === undefined ? made : signerOf(kept, "dag-cbor")
	} finally {
		database.close()
	}
}

/** The key of a seed of 32 bytes, which is the whole secret. @param {Uint8Array} seed @param {{ codec?: "dag-cbor" | "dag-json" }} [options] */
export async function signerFromSeed(seed, { codec = "dag-cbor" } = {}) {
	if (seed.length !== 32) throw new GossipLogError(`an Ed25519 seed has 32 bytes, not ${seed.length}`)
	const document = new Uint8Array([...PKCS8, ...seed])
	// Only a key that can be read tells its public half.
	const readable = await supported(() => crypto.subtle.importKey("pkcs8", document, "Ed25519", true, ["sign"]))
	const { kty, crv, x } = await crypto.subtle.exportKey("jwk", readable)
	const privateKey = await crypto.subtle.importKey("pkcs8", document, "Ed25519", false, ["sign"])
	const publicKey = await crypto.subtle.importKey("jwk", { kty, crv, x }, "Ed25519", true, ["verify"])
	return signerOf({ privateKey, publicKey }, codec)
}

/** Signs as one did. @param {CryptoKeyPair} pair @param {"dag-cbor" | "dag-json"} codec How what it signs is encoded. @returns {Promise<Signer>} */
async function signerOf(pair, codec) {
	const did = didOf(new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey)))
	const sign = async (/** @type {Uint8Array} */ data) => new Uint8Array(await crypto.subtle.sign("Ed25519", pair.privateKey, view(data)))
	return Object.freeze({ pair, did, codec, sign })
}

/** @template T @param {() => Promise<T>} ask @returns {Promise<T>} */
async function supported(ask) {
	if (globalThis.crypto?.subtle === undefined) throw new GossipLogError("no WebCrypto: pages need https://, or localhost")
	try {
		return await ask()
	} catch (error) {
		throw new GossipLogError(`this browser makes no Ed25519 keys: ${inWords(error)}`, { cause: error })
	}
}
