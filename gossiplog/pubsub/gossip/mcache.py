"""The message cache: messages of the last heartbeats, to announce and to serve.

Source: gossipsub v1.0 specification, "Router state": put, get, window, shift.
"""

from __future__ import annotations

from collections import deque

from ..rpc import Message
from ..types import MessageId, PeerId, Topic

__all__ = ["MessageCache"]


class MessageCache:
    """Hold messages for `length` heartbeats and announce those of the last `gossip`.

    Args:
        gossip: Windows announced.
        length: Windows kept.
        size_max: Messages kept; when it is reached, the oldest window that has any is forgotten.
        bytes_max: And bytes of their data.
    """

    __slots__ = ("_bytes", "_bytes_max", "_current", "_gossip", "_messages", "_served", "_size_max", "_windows")

    def __init__(self, gossip: int, length: int, size_max: int, bytes_max: int) -> None:
        self._gossip = gossip
        self._size_max = size_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._messages: dict[MessageId, Message] = {}
        self._served: dict[MessageId, dict[PeerId, int]] = {}
        self._current: dict[Topic, list[MessageId]] = {}
        self._windows: deque[dict[Topic, list[MessageId]]] = deque([self._current, *({} for _ in range(length - 1))])

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: Message) -> None:
        """Add a message to the current window, unless it is in the cache."""
        if message.id in self._messages:
            return
        self._bytes += len(message.data)
        while self._messages and (len(self._messages) >= self._size_max or self._bytes > self._bytes_max):
            self._forget(next(window for window in reversed(self._windows) if window))
        self._messages[message.id] = message
        ids = self._current.get(message.topic)
        if ids is None:
            self._current[message.topic] = [message.id]
        else:
            ids.append(message.id)

    def get(self, message_id: MessageId) -> Message | None:
        """A message, if it is still there."""
        return self._messages.get(message_id)

    def get_for(self, message_id: MessageId, peer: PeerId) -> tuple[Message | None, int]:
        """A message, and how often this peer has asked for it, now included."""
        message = self._messages.get(message_id)
        if message is None:
            return None, 0
        served = self._served.setdefault(message_id, {})
        served[peer] = count = served.get(peer, 0) + 1
        return message, count

    def window(self, topic: Topic) -> list[MessageId]:
        """Ids of the topic's messages in the windows that are announced."""
        windows = self._windows
        ids: list[MessageId] = []
        for index in range(self._gossip):
            more = windows[index].get(topic)
            if more is not None:
                ids += more
        return ids

    def shift(self) -> None:
        """Begin a new window and forget the oldest."""
        oldest = self._windows.pop()
        self._forget(oldest)
        self._current = oldest
        self._windows.appendleft(oldest)

    def _forget(self, window: dict[Topic, list[MessageId]]) -> None:
        for ids in window.values():
            for message_id in ids:
                self._bytes -= len(self._messages.pop(message_id).data)
                self._served.pop(message_id, None)
        window.clear()
