"""The names by which routers know peers, topics, messages and timers."""

from __future__ import annotations

from typing import NewType

__all__ = ["MessageId", "PeerId", "TimerToken", "Topic"]

PeerId = NewType("PeerId", str)
"""Who a peer is. On a libp2p network the base58 text of its peer id.

Routers only hash, compare for equality and pass on; a driver that has no wire (the simulator) may use any hashable value that
hashes to the same number in every process, such as a small integer.
"""

Topic = NewType("Topic", str)
"""A topic's name: UTF-8, 1 to `WireLimits.topic_bytes_max` bytes."""

MessageId = NewType("MessageId", bytes)
"""A message's id: what `SignaturePolicy` says, 1 to `WireLimits.id_bytes_max` bytes. Never read from a message's sender."""

TimerToken = NewType("TimerToken", str)
"""Which of a router's timers; a router has a handful of them and never makes one up from what a peer said."""
