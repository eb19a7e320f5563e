"""One client's connection to a hub, and the logs that it uses there: that of its URL, and others for which it opens a stream of refusals.

A log is used until either side ends that stream, and the connection lasts until no log is used. Each log is asked for by the rights that
the client came with, is opened as for a connection of its own, and goes on by itself.

Source: docs/spec/sync.md, "Several logs on one connection".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Protocol

import trio

from ...broadcast.allowance import Allowance
from ...broadcast.events import PeerKind
from ...errors import StreamReset
from ...tasks.nursery import open_service_nursery
from ..ground.access import Caller, Rights
from ..ground.admission import Admission, Place, Refused, Worth
from ..ground.journal import note
from ..ground.protocol_ids import topic_of_refusals
from ..service.peers import PeerConnection
from ..service.pubsub_host import PubsubHost
from ..service.refusals import STREAMS_A_LOG
from ..service.service import Service
from ..transport.flushes import Flushes
from ..transport.muxed import MuxedConnection, open_muxed
from ..transport.stream import ByteStream, Connection, EndKind, Handler, PromptHandler, Stream

LOGS_MAX = 256
"""Logs on one connection."""


class ServedLogs(Protocol):
    """What is used of a hub; see there."""

    admission: Admission
    allowances: dict[str, Allowance]
    flushes: Flushes

    def entered(self, topic: str, caller: Caller, address: str) -> AbstractAsyncContextManager[tuple[Service, Rights]]:
        """Use a log for a client's connection for the length of a block. Raises Refused."""


class ClientConnection(Mapping[str, Handler]):
    """What a client's connection serves at the moment, by protocol id.

    Args:
        hub: The hub that serves it.
        caller: What the client may.
        address: Where it comes from.
        port: The client's port, or that of its proxy.
        place: The connection's place among those allowed.
    """

    def __init__(self, hub: ServedLogs, caller: Caller, address: str, port: int, place: Place) -> None:
        self._hub = hub
        self._caller = caller
        self._address = address
        self._port = port
        self._place = place
        # None while a log is about to be used, and the topics of those that are asked for.
        self._links: dict[str, PeerConnection | None] = {}
        self._asked: set[str] = set()
        self._handlers: dict[str, Handler] = {}
        self._others = PromptHandler(self._use_another, is_deliberate=True)
        self._host: PubsubHost
        self._muxed: MuxedConnection
        self._nursery: trio.Nursery

    def __getitem__(self, protocol: str) -> Handler:
        handler = self._handlers.get(protocol)
        # What an application said of a caller, it said of one log.
        if handler is None and topic_of_refusals(protocol) is not None and self._caller.known is None:
            return self._others
        if handler is None:
            raise KeyError(protocol)
        return handler

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)

    async def serve(self, stream: ByteStream, service: Service, rights: Rights, using: AsyncExitStack) -> None:
        """Serve the connection until it ends.

        Args:
            stream: The binary messages of its WebSocket.
            service: Of the log that it was opened for.
            rights: What the client may there.
            using: Closed when that log is used no longer.
        """
        self._host = service.host
        self._begin(service)
        with service.host.named(f"ws://{show_host(self._address)}:{self._port}") as peer:
            muxing = open_muxed(stream, is_client=False, peer=peer, address=self._address, handlers=self, flushes=self._hub.flushes)
            async with open_service_nursery() as self._nursery:
                # The nursery outlives all streams, which may ask for one more log.
                async with muxing as self._muxed:
                    self._place.worth = self._worth
                    self._nursery.start_soon(self._use, service, rights, using)
                    await self._muxed.wait_ended()
                self._nursery.cancel_scope.cancel()

    def _worth(self) -> Worth:
        return max((link.peer.worth for link in self._links.values() if link is not None), default=Worth.NOTHING)

    def _begin(self, service: Service) -> None:
        self._links[service.topic] = None
        self._handlers.update(service.handlers)

    async def _use_another(self, connection: Connection, stream: Stream) -> None:
        """Use one more log, and then serve the stream as that of the first one."""
        topic = topic_of_refusals(stream.protocol) or ""
        if topic in self._asked or len(self._links) + len(self._asked) >= LOGS_MAX:
            raise StreamReset("too many logs at once")
        self._asked.add(topic)
        try:
            await self._nursery.start(self._enter, topic)
        except Refused as refusal:
            raise StreamReset(str(refusal)) from None
        finally:
            self._asked.discard(topic)
        if (handler := self._handlers.get(stream.protocol)) is not None:
            await handler(connection, stream)

    async def _enter(self, topic: str, *, task_status: trio.TaskStatus[None]) -> None:
        """Use one more log until it is given up. Refused, where it is, before it is used."""
        muxer = self._muxed.muxer
        async with AsyncExitStack() as using:
            using.enter_context(self._hub.admission.further_log(self._address))
            service, rights = await using.enter_async_context(self._hub.entered(topic, self._caller, self._address))
            if service.host is not self._host:
                raise Refused("this log has a connection of its own")
            self._begin(service)
            muxer.streams_max += STREAMS_A_LOG
            try:
                await self._use(service, rights, using.pop_all(), task_status=task_status)
            finally:
                muxer.streams_max -= STREAMS_A_LOG

    async def _use(
        self,
        service: Service,
        rights: Rights,
        using: AsyncExitStack,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Have a log use the connection until either side gives it up; with the last one the connection is closed."""
        hub, topic, muxed = self._hub, service.topic, self._muxed
        is_counted = not hub.admission.is_exempt(self._address)
        attaching = service.attached(muxed, PeerKind.CLIENT, is_counted=is_counted, rights=rights, allowance=hub.allowances[topic])
        reason = "the server closes"
        try:
            async with using, attaching as link:
                self._links[topic] = link
                did = self._caller.did(topic)
                if did is not None:
                    link.start(partial(self._end_with_role, topic, did, rights))
                note("client connected", peer=muxed.peer, topic=topic)
                task_status.started()
                await link.given_up.wait()
                reason = "the log is given up"
        finally:
            note("client gone", peer=muxed.peer, topic=topic, reason=reason if muxed.end is None else muxed.end.reason)
            del self._links[topic]
            for protocol in service.handlers:
                del self._handlers[protocol]
            if not self._links:
                muxed.finish(EndKind.CLOSED, reason)

    async def _end_with_role(self, topic: str, did: str, rights: Rights, link: PeerConnection) -> None:
        """Give up the log for a member whose role in it changes. Nothing is given or taken from then on."""
        await self._hub.admission.limits.access.wait_changed(topic, did, rights)
        note("client's role changed", peer=link.peer.id)
        link.peer.rights = Rights()
        link.given_up.set()


def show_host(host: str) -> str:
    """Return a host as URLs have it."""
    return f"[{host}]" if ":" in host else host
