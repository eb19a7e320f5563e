"""The provider, which keeps a document and a log in sync, and channels for members of a room who may only read.

The log speaks Yjs's sync protocol through a channel, as a server would, so what runs is pycrdt's own `Provider`.

Source: docs/pycrdt.md; pycrdt 0.14, `Provider` and `Channel`; y-protocols, "sync protocol".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from logging import Logger, getLogger
from typing import Any, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from pycrdt import (
    Channel,
    Doc,
    Provider,
    YMessageType,
    YSyncMessageType,
    create_sync_message,
    create_update_message,
    handle_sync_message,
    read_message,
)

from ..kit import Documents
from .shared import DOCUMENTS, SharedDoc

Factory: TypeAlias = Callable[..., AbstractAsyncContextManager[Provider]]
_MESSAGES_MAX = 256
_FLUSH_S = 5
_ASKS = bytes((YMessageType.SYNC, YSyncMessageType.SYNC_STEP1))
_TELLS_WHO = bytes((YMessageType.AWARENESS,))
READERS_SAY = (_ASKS, _TELLS_WHO)
"""The first bytes of messages that change no document."""


def provide(replica: Any, name: str, documents: Documents = DOCUMENTS) -> Factory:
    """Return a factory of providers for one document of a log, for `YRoom(provider_factory=…)`.

    Without a room: `async with provide(log, "plan")(doc) as provider: await provider.synced.wait()`. At the end of the block, the log has
    the whole document.
    """

    @asynccontextmanager
    async def make(doc: Doc[Any], log: Logger | None = None, path: str | None = None) -> AsyncIterator[Provider]:
        shared = SharedDoc(replica, documents, name, log or getLogger(__name__))
        sender, receiver = anyio.create_memory_object_stream[bytes](_MESSAGES_MAX)

        async def hand_out(update: bytes) -> None:
            await sender.send(create_update_message(update))

        async with sender, receiver, shared.following(hand_out):
            try:
                async with Provider(doc, _LogChannel(name, shared, sender, receiver), log) as provider:
                    yield provider
            finally:
                # pycrdt's provider drops updates that are in transit when a room is stopped.
                with anyio.move_on_after(_FLUSH_S, shield=True):
                    await shared.write(doc.get_update(shared.mirror.get_state()))

    return make


def read_only(channel: Channel) -> Channel:
    """Return a channel for a reader: `await room.serve(read_only(websocket))`. It drops messages that would change the document."""
    return _ReadOnly(channel)


class _LogChannel(Channel):
    """The log as the remote side of a provider."""

    def __init__(
        self, name: str, shared: SharedDoc, sender: MemoryObjectSendStream[bytes], receiver: MemoryObjectReceiveStream[bytes]
    ) -> None:
        self._name = name
        self._shared = shared
        self._sender = sender
        self._receiver = receiver

    @property
    def path(self) -> str:
        return self._name

    async def send(self, message: bytes) -> None:
        if message.startswith(_ASKS):
            answer = handle_sync_message(message[1:], self._shared.mirror)
            assert answer is not None
            await self._sender.send(answer)
            await self._sender.send(create_sync_message(self._shared.mirror))
        elif message[0] == YMessageType.SYNC:
            await self._shared.write(read_message(message[2:]))

    async def recv(self) -> bytes:
        return await self._receiver.receive()


class _ReadOnly(Channel):
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @property
    def path(self) -> str:
        return self._channel.path

    async def send(self, message: bytes) -> None:
        await self._channel.send(message)

    async def recv(self) -> bytes:
        async for message in self._channel:
            if message.startswith(READERS_SAY):
                return message
        raise StopAsyncIteration
