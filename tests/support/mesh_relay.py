"""Stands in for the log of a peer of a mesh: what comes is accepted in the step that brings it, neither verified nor stored, and passed on.

Programs on go-libp2p-pubsub and rust-libp2p do no more than that, so this is what to hold beside them. Host, noise, muxer, pubsub's streams
and the router, which asks for a verdict as ever, are those of every peer of ours; the log is there, and stays empty.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from gossiplog.broadcast import broadcast
from gossiplog.broadcast.spreading import Spreading
from gossiplog.pubsub.actions import Validate
from gossiplog.pubsub.events import Outcome, Validated

__all__ = ["Relay", "Relayed", "stand_in"]

_MARK = b"relayed\0"
_CLOCK = slice(len(_MARK), len(_MARK) + 8)
_BYTES = 276
"""Of a message of `mesh_peer.py` with its entry."""


class Relayed(NamedTuple):
    """What is sent in an entry's place."""

    value: bytes
    parent_keys: tuple[bytes, ...] = ()

    @property
    def key(self) -> bytes:
        """What tells it from others."""
        return self.value

    @classmethod
    def new(cls) -> Relayed:
        """Make one that says when it was made."""
        return cls((_MARK + time.monotonic_ns().to_bytes(8, "big") + os.urandom(16)).ljust(_BYTES, b"\0"))


class Relay(Spreading):
    """The spreading machine of a peer that accepts whatever comes.

    Attributes:
        count: Messages so far, its own included.
        latencies_ms: How old those of other relays were when they were accepted.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.count = 0
        self.latencies_ms: list[float] = []

    def _on_validate(self, action: Validate) -> None:
        message = action.message
        self.count += 1
        if message.data.startswith(_MARK):
            self.latencies_ms.append((time.monotonic_ns() - int.from_bytes(message.data[_CLOCK], "big")) / 1e6)
        self._route(Validated(message.id, Outcome.ACCEPT))

    def _on_appended(self, entries: Sequence[Relayed]) -> None:
        for entry in entries:
            self.count += 1
            self._publish(entry.value, None)


def stand_in() -> None:
    """Have every service of this process made with a `Relay`."""
    broadcast.Spreading = Relay
