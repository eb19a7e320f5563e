"""Pushes and refusals: what runs on the streams that peers open for them, and on those that we open."""

from __future__ import annotations

import logging
from functools import partial

import trio

from ...broadcast.events import PeerKind, PushClosed, PushOpened, PushReceived
from ...errors import ClosedError, DecodeError, RemoteProtocolError, StreamReset
from ..ground.journal import note
from ..ground.protocol_ids import push_protocol, refusals_protocol
from ..transport.stream import Handler, PromptHandler, Stream
from .driver import LogDriver
from .peers import PeerConnection, ServedPeer
from .push_stream import PushStream
from .refusals import write_refusals

INSERTING_MAX = 48
"""Entries of one peer that may be under way before its push stream is read on: fewer than the machine takes, so that none is left out."""


class Streams:
    """Runs the streams of one log but for syncs."""

    def __init__(self, driver: LogDriver) -> None:
        self._driver = driver
        self._push_protocol = push_protocol(driver.topic)

    def handlers(self) -> dict[str, Handler]:
        """Return what a connection serves, by protocol id."""
        serve = partial(self._driver.connections.handler, may_end=True)
        refusals = PromptHandler(serve(self._serve_refusals), is_deliberate=True)
        return {self._push_protocol: serve(self._serve_push), refusals_protocol(self._driver.topic): refusals}

    # Streams that peers open

    async def _serve_push(self, link: PeerConnection, stream: Stream) -> None:
        if link.peer.kind is PeerKind.HUB:
            raise RemoteProtocolError("a server opened a push stream to its client", peer=link.peer.id)
        await self._run_push(link.peer, stream)

    async def _serve_refusals(self, link: PeerConnection, stream: Stream) -> None:
        """Tell a client what is not taken of it, on the stream that it opened last. With that stream it gives the log up."""
        link.peer.hearing.cancel()
        with trio.CancelScope() as link.peer.hearing:
            await write_refusals(stream, link.peer.refusal_box)
            link.given_up.set()

    # Streams that we open

    async def open_push(self, link: PeerConnection) -> None:
        """Open a push stream and run it; whatever happens, the machine hears of it."""
        stream = await self._driver.open_stream(link, [self._push_protocol])
        if stream is None:
            self._driver.tell(PushClosed(link.peer.id))
            return
        try:
            await self._run_push(link.peer, stream)
        except (StreamReset, ClosedError, DecodeError):
            stream.reset()

    async def _run_push(self, peer: ServedPeer, stream: Stream) -> None:
        push = PushStream(stream, partial(self._on_pushed, peer), partial(self._take_pushed, peer))
        before, peer.push = peer.push, push
        if before is not None:
            before.stream.reset()
        self._driver.tell(PushOpened(peer.id))
        try:
            await push.run()
        except DecodeError as error:
            # The machine judges messages, and what is no message at all is as bad as one that means nothing.
            note("malformed push stream", level=logging.WARNING, peer=peer.id, reason=str(error))
            self._driver.tell(PushReceived(peer.id, b""))
            raise
        finally:
            if peer.push is push:
                peer.push = None
                self._driver.tell(PushClosed(peer.id))

    async def _on_pushed(self, peer: ServedPeer, message: bytes) -> None:
        await self._driver.wait_turn(peer, 1, INSERTING_MAX)
        peer.count("received")
        self._driver.tell(PushReceived(peer.id, message))

    def _take_pushed(self, peer: ServedPeer, message: bytes) -> bool:
        """Hand on what was pushed, unless it has to wait."""
        if self._driver.has_to_wait(peer, INSERTING_MAX):
            return False
        peer.count("received")
        self._driver.tell(PushReceived(peer.id, message))
        return True
