// The types of what client.js exports. `tests/client/typed.ts` is checked against them, and so are the classes of the modules.

/** The values that a payload is made of. */
export type Payload = null | boolean | number | bigint | string | Uint8Array | Link | readonly Payload[] | { readonly [key: string]: Payload }

/** A CID inside a payload. */
export declare class Link {
	constructor(bytes: Uint8Array)
	static parse(text: string): Link
	readonly bytes: Uint8Array
	toString(): string
}

/** One entry: a signed message and its bytes. */
export interface Entry {
	/** 32 characters; an ancestor's is smaller. */
	readonly id: string
	/** The did:key that signed it. */
	readonly author: string
	readonly topic: string
	readonly clock: number
	/** Ids. */
	readonly parents: string[]
	/** The application's value. Treat it as frozen. */
	readonly payload: any
	/** VALUE, byte for byte. */
	readonly value: Uint8Array
	/** 20 bytes. */
	readonly key: Uint8Array
}

/** An object that signs as one did. */
export interface AnySigner {
	readonly did: string
	/** `dag-cbor` by default. */
	readonly codec?: string
	sign(data: Uint8Array): Promise<Uint8Array> | Uint8Array
}

/** An Ed25519 key of WebCrypto. */
export interface Signer extends AnySigner {
	readonly pair: CryptoKeyPair
	readonly codec: "dag-cbor" | "dag-json"
	sign(data: Uint8Array): Promise<Uint8Array>
}

/** Return the key that this browser keeps under a name; it is made on first use. */
export declare function keptSigner(name?: string): Promise<Signer>
/** Make a key whose private half no script can read. */
export declare function generateSigner(options?: { codec?: "dag-cbor" | "dag-json" }): Promise<Signer>
/** Make the key of a seed of 32 bytes. */
export declare function signerFromSeed(seed: Uint8Array, options?: { codec?: "dag-cbor" | "dag-json" }): Promise<Signer>

/** The state that `apply` reads and writes. */
export interface StateWriter {
	get(key: string): Promise<any>
	set(key: string, value: any): void
	delete(key: string): void
}

export interface Options {
	/** Signs appends; without a signer the log cannot be appended to. */
	signer?: AnySigner
	/** `indexeddb` by default. */
	storage?: "indexeddb" | "memory"
	/** The store's name, by default the topic. */
	name?: string
	/** Called once for each entry, in the order of arrival. It may await its state, and nothing else. */
	apply?: (entry: Entry, state: StateWriter) => void | Promise<void>
}

export declare function open(topic: string, options?: Options): Promise<Log>

export interface Log {
	readonly topic: string
	/** Sign a payload and append it on top of all heads. It is stored when this returns. */
	append(payload: Payload): Promise<Entry>
	get(id: string): Promise<Entry | undefined>
	/** In the order of ids, which is causal. */
	iterate(range?: { after?: string; before?: string; reverse?: boolean; limit?: number }): AsyncGenerator<Entry, void, unknown>
	/** Return the ids of entries that have no children. */
	heads(): Promise<string[]>
	count(): Promise<number>
	/** Call a listener with all entries that are stored from now on, parents first. Returns a function that ends it. */
	subscribe(listener: (entries: Entry[]) => void): () => void
	/** What `apply` stored. */
	readonly state: {
		get(key: string): Promise<any>
		list(prefix?: string): Promise<[string, any][]>
		/** Return the entries at which `apply` raised. */
		aside(): Promise<{ id: string; reason: string }[]>
	}
	/** Who has the log open now, and what they state: sent to those who are connected, never stored. */
	readonly presence: Presence
	/** Keep the log connected to a hub, until the link is closed. */
	connect(url: string, options?: { token?: string }): HubLink
	close(): Promise<void>
}

/** Cursors, who is online, who is typing. An iteration begins with the current values and goes on with changes; null ends a value. */
export interface Presence extends AsyncIterable<{ author: string; name: string; value: any }> {
	/** The current values, by author and name. */
	readonly states: Record<string, Record<string, any>>
	/** State values by name, for `ttl` seconds (10 by default, at most 60); null takes a name back. */
	set(states: { readonly [name: string]: Payload }, options?: { ttl?: number }): Promise<void>
	/** End everything that was stated here. */
	leave(): Promise<void>
}

/** A link to a hub that is kept up. */
export interface HubLink {
	readonly url: string
	readonly isConnected: boolean
	/** Why it is not connected, or why the last session failed; null while all is well. */
	readonly error: string | null
	/** Our entries that the hub refused, the latest last. */
	readonly refused: readonly { rule: string; reason: string; ids: string[] }[]
	/** Called when one of these has changed. */
	onchange: (() => void) | null
	/** Wait until the hub has everything that the log has now. */
	settled(): Promise<void>
	close(): void
}

export declare class GossipLogError extends Error {}
/** A payload that no replica could read back. */
export declare class EncodeError extends GossipLogError {}
/** Bytes that are not what they should be. */
export declare class DecodeError extends GossipLogError {}
/** The store is full, closed or not available. */
export declare class StorageError extends GossipLogError {}
/** The other side broke the protocol. */
export declare class ProtocolError extends GossipLogError {}
/** The log, the link or a connection was closed. */
export declare class ClosedError extends GossipLogError {}
