// What goes wrong, as errors of our own: a fault of the caller, of the machine, or of what others sent.

export class GossipLogError extends Error {
	name = "GossipLogError"

	/** @param {string} message @param {ErrorOptions} [options] */
	constructor(message, options) {
		super(message, options)
	}
}

/** A payload that no replica could read back. */
export class EncodeError extends GossipLogError {
	name = "EncodeError"
}

/** Bytes that are not what they should be. */
export class DecodeError extends GossipLogError {
	name = "DecodeError"
}

/** The store refused: it is full, closed, or not to be had. */
export class StorageError extends GossipLogError {
	name = "StorageError"
}

/** The other side broke the protocol. */
export class ProtocolError extends GossipLogError {
	name = "ProtocolError"
}

/** A stream or a connection ended. */
export class ClosedError extends GossipLogError {
	name = "ClosedError"
}

/** What others threw, in words. @param {unknown} error */
export const inWords = (error) => (error instanceof Error ? error.message || error.name : String(error))
