"""Bytes and text: clocks, ids' alphabet, did:key, the portable canonical form of payloads, dag-json, protobuf and its framing."""
