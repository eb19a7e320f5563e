"""Presence on the network: one stream with each hub, client and mesh peer that speaks it. Only peers of this project do.

A client opens the stream to its hub; in a mesh either peer does. Nobody opens one before presence is in use, by us or through us, so it
costs nothing where it is not needed.

Source: docs/spec/presence.md.
"""

from __future__ import annotations

import logging
import time

from ...broadcast.events import Misbehaved, PeerKind
from ...errors import ClosedError, DecodeError, StreamReset
from ...presence.messages import FRAME_BYTES_MAX
from ...presence.room import FaultyPeer, FrameReceived, PeerBlocked, PeerEntered, PeerGone, SendFrames
from ...pubsub.types import PeerId
from ..ground.journal import note
from ..ground.protocol_ids import presence_protocol
from ..transport.muxed import Handler, Stream
from .driver import LogDriver
from .peers import PeerConnection, ServedPeer
from .push_stream import PushStream


class PresenceStreams:
    """Carries one log's presence while the log is on the network."""

    def __init__(self, driver: LogDriver) -> None:
        self._driver = driver
        self._presence = driver.log.presence
        self._protocol = presence_protocol(driver.topic)
        # The streams with each peer, the oldest first. We send on the first.
        self._streams: dict[PeerId, list[PushStream]] = {}

    def handlers(self) -> dict[str, Handler]:
        """Return the handler of presence streams, by protocol id."""
        return {self._protocol: self._driver.connections.handler(self._serve, may_end=True)}

    async def join(self, link: PeerConnection) -> None:
        """Open a stream to a hub, or to a mesh peer that speaks presence, once presence is in use."""
        await self._presence.in_use.wait()
        stream = None if link.peer.id in self._streams else await self._driver.open_stream(link, [self._protocol])
        if stream is not None:
            await self._run(link, stream)

    async def _serve(self, link: PeerConnection, stream: Stream) -> None:
        if link.peer.kind is PeerKind.CLIENT and "pull" not in link.peer.rights:
            stream.reset()
            return
        self._presence.use()
        await self._run(link, stream)

    async def _run(self, link: PeerConnection, stream: Stream) -> None:
        """Read the peer's frames until the stream ends. When its last stream ends, so does the presence that came by the peer."""
        peer, push = link.peer, self._made(link.peer, stream)
        streams = self._streams.setdefault(peer.id, [])
        streams.append(push)
        self._presence.carry = self._carry
        if len(streams) == 1:
            is_client = peer.kind is PeerKind.CLIENT
            may_speak = not is_client or "push" in peer.rights or self._driver.log.has_members
            self._presence.tell(PeerEntered(peer.id, is_client, peer.kind is PeerKind.HUB, may_speak))
        try:
            await push.run()
        except (StreamReset, ClosedError):
            pass
        except DecodeError as error:
            self._carry(FaultyPeer(peer.id, str(error)))
        finally:
            streams.remove(push)
            stream.reset()
            if not streams:
                del self._streams[peer.id]
                self._presence.tell(PeerGone(peer.id))
            others = [each for each in peer.links if not each.connection.is_over]
            if link.connection.is_over and peer.kind is PeerKind.MESH and others:
                others[0].start(self.join)

    def _made(self, peer: ServedPeer, stream: Stream) -> PushStream:
        def take(body: bytes) -> bool:
            self._presence.tell(FrameReceived(peer.id, body, int(1_000 * time.time())))
            return True

        async def take_later(body: bytes) -> None:
            take(body)

        return PushStream(stream, take_later, take, FRAME_BYTES_MAX, lambda: self._presence.tell(PeerBlocked(peer.id, is_blocked=False)))

    def _carry(self, action: SendFrames | FaultyPeer) -> None:
        if isinstance(action, SendFrames):
            for id in action.peers:
                streams = self._streams.get(id)
                if streams:
                    streams[0].put(action.data)
                    if streams[0].queued_bytes:
                        # It gets no more until they are written.
                        self._presence.tell(PeerBlocked(id))
        elif action.peer in self._streams:
            # The fifth time it is banned.
            note("presence ended", level=logging.WARNING, peer=action.peer, reason=action.reason)
            self._driver.tell(Misbehaved(action.peer, action.reason, is_grave=True))
            for push in self._streams[action.peer]:
                push.stream.reset()
