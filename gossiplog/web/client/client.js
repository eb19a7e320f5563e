// GossipLog in a browser: logs in memory and IndexedDB, connected to hubs of ours. Source: docs/browser.md.

export { ClosedError, DecodeError, EncodeError, GossipLogError, ProtocolError, StorageError } from "./errors.js"
export { Link } from "./link.js"
export { open } from "./log.js"
export { generateSigner, keptSigner, signerFromSeed } from "./signer.js"
