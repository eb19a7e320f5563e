"""The protocols of sync streams: ours, in which long answers come in parts, and the reference's.

Source: docs/spec/sync.md, "Long answers in parts".
"""

from __future__ import annotations

__all__ = ["is_in_parts", "sync_protocols"]

_IN_PARTS = "/gossiplog/v1/"


def sync_protocols(topic: str) -> tuple[str, str]:
    """Return ours and the reference's, in the order in which they are proposed."""
    return f"{_IN_PARTS}{topic}/sync", f"/canvas/v1/{topic}/sync"


def is_in_parts(protocol: str) -> bool:
    """Whether a stream that was negotiated for this protocol has answers in parts."""
    return protocol.startswith(_IN_PARTS)
