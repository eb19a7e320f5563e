"""The ids under which streams are opened, but for pubsub's, which are in `pubsub/protocol_ids.py`. Those of a log bear its topic.

Source: docs/spec/sync.md, "Long answers in parts"; docs/spec/reconcile.md, "Session"; libp2p specifications, "identify", "ping", "kad-dht";
the reference says `canvas` where others say `ipfs`; both are answered.
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
    """Return the ids of syncs: ours, in which long answers come in parts, and the reference's, in the order in which they are proposed."""
    return f"{_IN_PARTS}{topic}/sync", f"/canvas/v1/{topic}/sync"


def is_in_parts(protocol: str) -> bool:
    """Whether a stream that was negotiated for this id has answers in parts."""
    return protocol.startswith(_IN_PARTS)


def reconcile_protocol(topic: str) -> str:
    """Return the id of reconciliations, which only we speak."""
    return f"/gossiplog/reconcile/1/{topic}"


def refusals_protocol(topic: str) -> str:
    """Return the id of streams on which a hub says what it does not take, which only we speak."""
    return f"{_REFUSALS}{topic}"


def topic_of_refusals(protocol: str) -> str | None:
    """Return the topic in such an id, whatever it is; None of other ids."""
    return protocol.removeprefix(_REFUSALS) if protocol.startswith(_REFUSALS) else None


def proof_protocol(topic: str) -> str:
    """Return the id of streams on which a client proves a did to a hub, for one more log on a connection. Only we speak this."""
    return f"{_PROOF}{topic}"


def topic_of_proof(protocol: str) -> str | None:
    """Return the topic in such an id, whatever it is; None of other ids."""
    return protocol.removeprefix(_PROOF) if protocol.startswith(_PROOF) else None


def presence_protocol(topic: str) -> str:
    """Return the id of streams of what is true only now, which only we speak."""
    return f"/gossiplog/presence/1/{topic}"


def is_of_another(protocol: str, topic: str) -> bool:
    """Whether streams of this id are another log's: they bear a topic, and not this one."""
    ours = (reconcile_protocol, refusals_protocol, proof_protocol, presence_protocol)
    own = (push_protocol(topic), *sync_protocols(topic), *(protocol_of(topic) for protocol_of in ours))
    return protocol.startswith(_OF_LOGS) and protocol not in own


def kad_protocol(topic: str) -> str:
    """Return the id of the search for a topic's peers."""
    return f"/canvas/kad/1.0.0/{topic}"
