"""One client's connection to a hub, and the logs that it uses: the one in its URL, and each for which it opens a stream of refusals.

A log is used until either side ends that stream, and the connection lasts until no log is used. The client's rights to each log are those
of the token it connected with, or of a did that it proved for that log. Each log is opened, served and given up independently.

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
from ..ground.proof import Refusal
from ..ground.protocol_ids import topic_of_proof, topic_of_refusals
from ..service.peers import PeerConnection
from ..service.pubsub_host import PubsubHost
from ..service.refusals import STREAMS_A_LOG
from ..service.service import Service
from ..transport.flushes import Flushes
from ..transport.http_names import Names
from ..transport.muxed import Connection, Handler, PromptHandler, Stream, open_muxed
from ..transport.stream import ByteStream
from .proving import take_proof

LOGS_MAX = 256
"""Logs that one connection may use, and proofs that it may leave unused."""


class ServedLogs(Protocol):
    """The part of a `Hub` that connections use; see there."""

    admission: Admission
    allowances: dict[str, Allowance]
    flushes: Flushes
    names: Names

    def entered(self, topic: str, caller: Caller, address: str) -> AbstractAsyncContextManager[tuple[Service, Rights]]:
        """Use a log for the length of a block. Raises Refused."""

    def knowing_members(self, topic: str) -> AbstractAsyncContextManager[None]:
        """Keep a log open for the length of a block, if it has members."""


class ClientConnection(Mapping[str, Handler]):
    """The handlers of a client's connection by protocol id, as its logs come and go.

    Args:
        caller: The client's rights by what it connected with.
        address: The client's address.
        port: The client's port, or that of its proxy.
        local: Our own address and port on the connection.
    """

    def __init__(self, hub: ServedLogs, caller: Caller, address: str, port: int, local: tuple[str, int], place: Place) -> None:
        self._hub = hub
        self._caller = caller
        self._address = address
        self._port = port
        self._local = local
        self._place = place
        # The logs in use, None for one that is not attached yet; and the topics that are being opened.
        self._links: dict[str, PeerConnection | None] = {}
        self._asked: set[str] = set()
        self._handlers: dict[str, Handler] = {}
        self._others = PromptHandler(self._use_another, is_deliberate=True)
        # The rights by proofs that were not used yet, by topic.
        self._proven: dict[str, Caller] = {}
        self._host: PubsubHost
        self._muxed: Connection
        self._nursery: trio.Nursery

    def __getitem__(self, protocol: str) -> Handler:
        if (handler := self._handlers.get(protocol)) is not None:
            return handler
        # An application that decided about a caller decided for one log.
        if self._caller.known is None and topic_of_refusals(protocol) is not None:
            return self._others
        if self._caller.known is None and topic_of_proof(protocol) is not None:
            return self._take_proof
        raise KeyError(protocol)

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)

    async def serve(self, stream: ByteStream, service: Service, rights: Rights, using: AsyncExitStack) -> None:
        """Serve the connection until it ends.

        Args:
            stream: The binary messages of its WebSocket.
            service: The service of the log in its URL.
            rights: The client's rights to that log.
            using: Closed when the connection no longer uses that log.
        """
        self._host = service.host
        self._begin(service)
        with service.host.named(f"ws://{show_host(self._address)}:{self._port}") as peer:
            muxing = open_muxed(stream, is_client=False, peer=peer, address=self._address, handlers=self, flushes=self._hub.flushes)
            # The nursery has to outlive all streams, because they may start tasks in it.
            async with open_service_nursery() as self._nursery, muxing as self._muxed:
                self._place.worth = self._worth
                self._nursery.start_soon(self._use, service, rights, self._caller, using)
                await self._muxed.wait_ended()

    def _worth(self) -> Worth:
        return max((link.peer.worth for link in self._links.values() if link is not None), default=Worth.NOTHING)

    def _begin(self, service: Service) -> None:
        self._links[service.topic] = None
        self._handlers.update(service.handlers)

    async def _take_proof(self, connection: Connection, stream: Stream) -> None:
        """Have the client prove a did for one log that it asks for next."""
        topic, access = topic_of_proof(stream.protocol) or "", self._hub.admission.limits.access
        proof = await take_proof(stream, topic)
        if not isinstance(proof, Refusal) and not self._hub.names.are_ours(proof.host, self._local):
            proof = Refusal(401, f"this was signed for {proof.host}, which is no name of this server")
        if isinstance(proof, Refusal):
            raise StreamReset(proof.reason)
        async with self._hub.knowing_members(topic):
            # Dids are free. One without rights of its own is anonymous, so that what it creates is counted by its address.
            caller = Caller(access, known=proof.did) if access.knows(topic, proof.did) else Caller(access)
        if len(self._proven) >= LOGS_MAX:
            raise StreamReset("too many proofs for logs that were not asked for")
        self._proven[topic] = caller

    async def _use_another(self, connection: Connection, stream: Stream) -> None:
        """Open one more log, then serve the stream as its stream of refusals."""
        topic = topic_of_refusals(stream.protocol) or ""
        # For a moment a log is among both.
        if topic in self._asked or len(self._links.keys() | self._asked) >= LOGS_MAX:
            raise StreamReset("too many logs at once")
        self._asked.add(topic)
        try:
            await self._nursery.start(self._enter, topic, self._proven.pop(topic, self._caller))
        except Refused as refusal:
            raise StreamReset(str(refusal)) from None
        finally:
            self._asked.discard(topic)
        if (handler := self._handlers.get(stream.protocol)) is not None:
            await handler(connection, stream)

    async def _enter(self, topic: str, caller: Caller, *, task_status: trio.TaskStatus[None]) -> None:
        """Use one more log until it is given up. Raises Refused before it has started."""
        muxer = self._muxed.muxer
        async with AsyncExitStack() as using:
            using.enter_context(self._hub.admission.further_log(self._address))
            service, rights = await using.enter_async_context(self._hub.entered(topic, caller, self._address))
            if service.host is not self._host:
                raise Refused("this log has a connection of its own")
            self._begin(service)
            muxer.streams_max += STREAMS_A_LOG
            try:
                await self._use(service, rights, caller, using.pop_all(), task_status=task_status)
            finally:
                muxer.streams_max -= STREAMS_A_LOG

    async def _use(
        self,
        service: Service,
        rights: Rights,
        caller: Caller,
        using: AsyncExitStack,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve a log on the connection until either side gives it up; after the last log close the connection."""
        hub, topic, muxed = self._hub, service.topic, self._muxed
        is_counted = not hub.admission.is_exempt(self._address)
        attaching = service.attached(muxed, PeerKind.CLIENT, is_counted=is_counted, rights=rights, allowance=hub.allowances[topic])
        reason = "the server closes"
        try:
            async with using, attaching as link:
                self._links[topic] = link
                did = caller.did(topic)
                if did is not None:
                    link.start(partial(self._end_with_role, topic, did, rights))
                note("client connected", peer=muxed.peer, topic=topic)
                task_status.started()
                await link.given_up.wait()
                reason = "the log is given up"
        finally:
            note("client gone", peer=muxed.peer, topic=topic, reason=muxed.end or reason)
            del self._links[topic]
            for protocol in service.handlers:
                del self._handlers[protocol]
            if not self._links:
                muxed.finish(reason)

    async def _end_with_role(self, topic: str, did: str, rights: Rights, link: PeerConnection) -> None:
        """Give up the log when the member's role changes. From then on nothing goes either way."""
        await self._hub.admission.limits.access.wait_changed(topic, did, rights)
        note("client's role changed", peer=link.peer.id)
        link.peer.rights = Rights()
        link.given_up.set()


def show_host(host: str) -> str:
    """Return a host as it is written in URLs."""
    return f"[{host}]" if ":" in host else host
