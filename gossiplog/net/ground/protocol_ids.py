"""Protocol ids of streams. A log's ids contain its topic. Pubsub's are in `pubsub/protocol_ids.py`.

Source: docs/spec/sync.md, "Long answers in parts"; docs/spec/reconcile.md, "Session"; libp2p specifications, "identify", "ping", "kad-dht".
The reference says `canvas` where libp2p says `ipfs`; we answer both.
"""

from __future__ import annotations

NOISE = "/noise"
YAMUX = "/yamux/1.0.0"
IDENTIFY_PROTOCOLS = ("/canvas/id/1.0.0", "/ipfs/id/1.0.0")
IDENTIFY_PUSH_PROTOCOLS = ("/canvas/id/push/1.0.0", "/ipfs/id/push/1.0.0")
PING_PROTOCOLS = ("/canvas/ping/1.0.0", "/ipfs/ping/1.0.0")

_IN_PARTS = "/gossiplog/v1/"
_REFUSALS = "/gossiplog/refusals/1/"
_PROOF = "/gossiplog/proof/1/"
_OF_LOGS = ("/canvas/v1/", "/gossiplog/")


def push_protocol(topic: str) -> str:
    """Return the id of streams of new entries and heads."""
    return f"/canvas/v1/{topic}/push"


def sync_protocols(topic: str) -> tuple[str, str]:
    """Return the ids of syncs in the order in which we propose them: ours, which sends long answers in parts, then the reference's."""
    return f"{_IN_PARTS}{topic}/sync", f"/canvas/v1/{topic}/sync"


def is_in_parts(protocol: str) -> bool:
    """Whether a sync with this id sends long answers in parts."""
    return protocol.startswith(_IN_PARTS)


def reconcile_protocol(topic: str) -> str:
    """Return the id of reconciliations, which only our peers speak."""
    return f"/gossiplog/reconcile/1/{topic}"


def refusals_protocol(topic: str) -> str:
    """Return the id of streams on which a hub reports entries that it refused. Only our peers speak it."""
    return f"{_REFUSALS}{topic}"


def topic_of_refusals(protocol: str) -> str | None:
    """Return the topic in such an id, unchecked; None for other ids."""
    return protocol.removeprefix(_REFUSALS) if protocol.startswith(_REFUSALS) else None


def proof_protocol(topic: str) -> str:
    """Return the id of streams on which a client proves a did for one more log on a connection. Only our peers speak it."""
    return f"{_PROOF}{topic}"


def topic_of_proof(protocol: str) -> str | None:
    """Return the topic in such an id, unchecked; None for other ids."""
    return protocol.removeprefix(_PROOF) if protocol.startswith(_PROOF) else None


def presence_protocol(topic: str) -> str:
    """Return the id of presence streams, which only our peers speak."""
    return f"/gossiplog/presence/1/{topic}"


def is_of_another(protocol: str, topic: str) -> bool:
    """Whether a protocol id belongs to a log of another topic."""
    ours = (reconcile_protocol, refusals_protocol, proof_protocol, presence_protocol)
    own = (push_protocol(topic), *sync_protocols(topic), *(protocol_of(topic) for protocol_of in ours))
    return protocol.startswith(_OF_LOGS) and protocol not in own


def kad_protocol(topic: str) -> str:
    """Return the id of the Kademlia DHT in which a topic's peers find each other."""
    return f"/canvas/kad/1.0.0/{topic}"
