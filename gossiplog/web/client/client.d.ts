// What client.js exports, for TypeScript. `tests/client/typed.ts` is checked against it, and the classes of the modules against its interfaces.

/** What a payload may be made of. */
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

/** Signs as one did. */
export interface AnySigner {
	readonly did: string
	/** `dag-cbor` unless said otherwise. */
	readonly codec?: string
	sign(data: Uint8Array): Promise<Uint8Array> | Uint8Array
}

/** An Ed25519 key of WebCrypto. */
export interface Signer extends AnySigner {
	readonly pair: CryptoKeyPair
	readonly codec: "dag-cbor" | "dag-json"
	sign(data: Uint8Array): Promise<Uint8Array>
}

/** The key that this browser keeps under a name, made when it is first asked for. */
export declare function keptSigner(name?: string): Promise<Signer>
/** A new key, whose private half cannot be read. */
export declare function generateSigner(options?: { codec?: "dag-cbor" | "dag-json" }): Promise<Signer>
/** The key of a seed of 32 bytes. */
export declare function signerFromSeed(seed: Uint8Array, options?: { codec?: "dag-cbor" | "dag-json" }): Promise<Signer>

/** What `apply` reads and writes. */
export interface StateWriter {
	get(key: string): Promise<any>
	set(key: string, value: any): void
	delete(key: string): void
}

export interface Options {
	/** Who appends. */
	signer?: AnySigner
	/** `indexeddb` unless said otherwise. */
	storage?: "indexeddb" | "memory"
	/** Of the store; the topic unless said otherwise. */
	name?: string
	/** Makes something of each entry, in the order of their arrival. It may wait for its state, and for nothing else. */
	apply?: (entry: Entry, state: StateWriter) => void | Promise<void>
}

export declare function open(topic: string, options?: Options): Promise<Log>

export interface Log {
	readonly topic: string
	/** Sign a payload, and put it on top of everything the log holds. It is stored when this returns. */
	append(payload: Payload): Promise<Entry>
	get(id: string): Promise<Entry | undefined>
	/** In the order of ids, which is causal. */
	iterate(range?: { after?: string; before?: string; reverse?: boolean; limit?: number }): AsyncGenerator<Entry, void, unknown>
	/** The ids of the entries that are nobody's parents. */
	heads(): Promise<string[]>
	count(): Promise<number>
	/** Be told of all that is stored from now on, parents first. Returns what ends it. */
	subscribe(listener: (entries: Entry[]) => void): () => void
	/** What `apply` has made of the entries. */
	readonly state: {
		get(key: string): Promise<any>
		list(prefix?: string): Promise<[string, any][]>
		/** The entries at which `apply` raised. */
		aside(): Promise<{ id: string; reason: string }[]>
	}
	/** What is true only now of those who have the log open: told to them, never stored. */
	readonly presence: Presence
	/** Keep the log connected to a hub, until the link is closed. */
	connect(url: string, options?: { token?: string }): HubLink
	close(): Promise<void>
}

/** What is true only now: cursors, who is here, who types. Iterate over it: it begins with what is true, and goes on with what changes. */
export interface Presence extends AsyncIterable<{ author: string; name: string; value: any }> {
	/** By author and name. */
	readonly states: Record<string, Record<string, any>>
	/** State something of oneself, for `ttl` seconds, 10 unless said otherwise; null takes a name back. */
	set(states: { readonly [name: string]: Payload }, options?: { ttl?: number }): Promise<void>
	/** Everything that was stated here is over. */
	leave(): Promise<void>
}

/** A link to a hub that is kept up. */
export interface HubLink {
	readonly url: string
	readonly isConnected: boolean
	/** Why it does not, or why a session came to nothing; null while all is well. */
	readonly error: string | null
	/** What the hub does not take of ours. */
	readonly refused: readonly { rule: string; reason: string; ids: string[] }[]
	/** Called when any of these has changed. */
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
/** The store is full, closed, or not to be had. */
export declare class StorageError extends GossipLogError {}
/** The other side broke the protocol. */
export declare class ProtocolError extends GossipLogError {}
/** The log, the link or a connection was closed. */
export declare class ClosedError extends GossipLogError {}
