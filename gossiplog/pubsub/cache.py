"""The cache of messages that peers may ask for: gossip announces and serves from it, and so does episub's tree.

Source: gossipsub v1.0 specification, "Router state": put, get, window, shift.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Generic, Protocol, TypeVar

from .rpc import Message
from .types import MessageId, PeerId, Topic


class _Kept(Protocol):
    @property
    def data(self) -> bytes:
        """The data of the message."""


T = TypeVar("T", bound=_Kept)


class MessageCache(Generic[T]):
    """Hold something for each message, for `length` windows, one per heartbeat, of which the latest `recent` are announced.

    Args:
        size_max: Messages kept. If there are more, or more than `bytes_max` bytes of data, the oldest window that has any is forgotten.

    Attributes:
        kept: Read it directly; write with `put`.
    """

    __slots__ = ("_bytes", "_bytes_max", "_current", "_recent", "_served", "_size_max", "_windows", "kept")

    def __init__(self, recent: int, length: int, size_max: int, bytes_max: int) -> None:
        self.kept: dict[MessageId, T] = {}
        self._recent = recent
        self._size_max = size_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._served: dict[MessageId, dict[PeerId, int]] = {}
        self._current: dict[Topic, list[MessageId]] = {}
        self._windows: deque[dict[Topic, list[MessageId]]] = deque([self._current, *({} for _ in range(length - 1))])

    def __len__(self) -> int:
        return len(self.kept)

    def put(self, message: Message, kept: T) -> None:
        """Add a message to the current window, unless the cache has it."""
        if message.id in self.kept:
            return
        self._bytes += len(message.data)
        while self.kept and (len(self.kept) >= self._size_max or self._bytes > self._bytes_max):
            self._forget(next(window for window in reversed(self._windows) if window))
        self.kept[message.id] = kept
        self._current.setdefault(message.topic, []).append(message.id)

    def get_for(self, message_id: MessageId, peer: PeerId) -> tuple[T | None, int]:
        """Return what is held and how often this peer has asked for it, now included; `(None, 0)` if the message is not here."""
        kept = self.kept.get(message_id)
        if kept is None:
            return None, 0
        served = self._served.setdefault(message_id, {})
        served[peer] = count = served.get(peer, 0) + 1
        return kept, count

    def window(self, topic: Topic) -> list[MessageId]:
        """Return the ids of the topic's messages in the announced windows, the latest window first."""
        return [message_id for window in islice(self._windows, self._recent) for message_id in window.get(topic, ())]

    def shift(self) -> None:
        """Begin a new window and forget the oldest."""
        self._current = self._windows.pop()
        self._forget(self._current)
        self._windows.appendleft(self._current)

    def _forget(self, window: dict[Topic, list[MessageId]]) -> None:
        for ids in window.values():
            for message_id in ids:
                self._bytes -= len(self.kept.pop(message_id).data)
                self._served.pop(message_id, None)
        window.clear()
