"""Our pubsub streams: what is not sent on them, what becomes of those that end, and how we learn that a peer speaks pubsub at all."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
import trio
import trio.testing
from muxer_support import muxed_pair
from network_support import TOPIC, eventually, memory_log

from gossiplog.broadcast.actions import StartSync
from gossiplog.broadcast.events import PeerKind
from gossiplog.codec.framing import FrameDecoder
from gossiplog.net import Connection, Stream
from gossiplog.net.service import pubsub_host
from gossiplog.net.service.pubsub_host import ANEW_FIRST_S, REOPEN_S_MAX, STREAMS_MAX
from gossiplog.net.service.service import Service, open_service
from gossiplog.net.transport.muxed import Handler
from gossiplog.pubsub.actions import SendRpc
from gossiplog.pubsub.rpc import Message, Rpc, Subscription
from gossiplog.pubsub.types import PeerId, Topic
from gossiplog.pubsub.wire.rpc_codec import Wire, WireLimits
from gossiplog.pubsub.wire.shared_frames import Copies, Encoder
from gossiplog.sync.source import Source

SUBSCRIBED = (Subscription(Topic(TOPIC), True),)


@asynccontextmanager
async def reader(service: Service, streams: list[list[Rpc]], *, ends: str = "") -> AsyncIterator[None]:
    """A stranger who reads RPCs, and ends the first of the streams after its first RPC: `fin` or `reset`."""

    async def read(connection: Connection, stream: Stream) -> None:
        rpcs: list[Rpc] = []
        streams.append(rpcs)
        frames = FrameDecoder()
        while data := await stream.receive_some():
            rpcs += [Wire().decode(body).rpc for body in frames.take(data)]
            if len(streams) == 1 and ends == "fin":
                return
            if len(streams) == 1 and ends == "reset":
                stream.reset()

    protocol = service.host.protocols[0]
    async with (
        muxed_pair({protocol: read}, {**service.handlers, **service.host.handlers}) as (theirs, ours),
        service.attached(ours, PeerKind.MESH, pubsub_protocol=protocol, has_push=False),
    ):
        stream = await theirs.open_stream([protocol])
        await stream.send_all(b"".join(Wire().encode(Rpc(subscriptions=SUBSCRIBED))))
        await eventually(lambda: service.state().router.peers[0].topics)
        yield


@pytest.mark.parametrize("ends", ["fin", "reset"])
async def test_pubsub_stream_that_the_peer_ended_is_opened_again(ends: str) -> None:
    streams: list[list[Rpc]] = []
    async with memory_log(1) as log, open_service(log) as service, service.host.running(), reader(service, streams, ends=ends):
        await eventually(lambda: len(streams) == 2 and streams[1])
        assert streams[1][0].subscriptions == SUBSCRIBED
        assert service.links()[0].counts["pubsub streams lost"] == 1


async def test_streams_that_a_peer_ends_are_opened_ever_less_often(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubsub_host, "STREAMS_MAX", 1_000)
    opened: list[float] = []

    async def refuse(connection: Connection, stream: Stream) -> None:
        opened.append(trio.current_time())

    async with memory_log(1) as log, open_service(log) as service, service.host.running():
        protocol = service.host.protocols[0]
        async with (
            muxed_pair({protocol: refuse}, {**service.handlers, **service.host.handlers}) as (_, ours),
            service.attached(ours, PeerKind.MESH, pubsub_protocol=protocol, has_push=False),
        ):
            await trio.sleep(600)
            assert not ours.is_over
    waits = [after - before for before, after in pairwise(opened)]
    assert [round(wait) for wait in waits[:3]] == [pytest.approx(each, rel=0.3) for each in (1, 2, 4)]
    assert max(waits) <= REOPEN_S_MAX + 1
    assert len(opened) < 20


@pytest.mark.parametrize("is_refused", [True, False])
async def test_connection_whose_pubsub_ended_is_closed_and_its_peer_dialled_anew_but_not_again_soon(
    is_refused: bool, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """rust-libp2p switches its pubsub off at the fifth stream of a connection, and declines every further one."""
    opened, dialled = 0, list[PeerId]()

    async def end(connection: Connection, stream: Stream) -> None:
        nonlocal opened
        opened += 1
        if is_refused:
            del handlers[protocol]

    class Mesh:
        def connect(self, peer: PeerId, record: bytes | None, source: PeerId | None) -> None:
            assert peer not in service.peers
            dialled.append(peer)

    async with memory_log(1) as log, open_service(log) as service, service.host.running():
        service.host.dialler = Mesh()  # type: ignore[assignment]
        protocol = service.host.protocols[0]
        for turn in range(3):
            handlers: dict[str, Handler] = {protocol: end}
            opened = 0
            async with (
                muxed_pair(handlers, {**service.handlers, **service.host.handlers}) as (_, ours),
                service.attached(ours, PeerKind.MESH, pubsub_protocol=protocol, has_push=False),
            ):
                if turn == 1:
                    await trio.sleep(20)
                    assert not ours.is_over
                    continue
                with trio.fail_after(200):
                    await ours.wait_ended()
                assert turn or opened == (1 if is_refused else STREAMS_MAX)
            await eventually(lambda: dialled)
            assert dialled.pop() == ours.peer
        assert trio.current_time() > ANEW_FIRST_S
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.event for record in warnings].count("pubsub ended on a connection that stays") == 2


async def test_message_that_fits_no_frame_is_counted_and_nothing_else_is_lost() -> None:
    streams: list[list[Rpc]] = []
    async with memory_log(1) as log, open_service(log) as service, service.host.running(), reader(service, streams):
        await eventually(lambda: streams and streams[0])
        large, small = (Message.of(Topic(TOPIC), data) for data in (bytes(65_530), b"small"))
        (peer,) = service.peers
        service._act(SendRpc((peer,), Rpc((large, small)), True))
        await eventually(lambda: any(rpc.messages for rpc in streams[0]))
        assert [message for rpc in streams[0] for message in rpc.messages] == [small]
        assert service.counts["messages too large"] == 1
        assert service.links()[0].counts["messages too large"] == 1


async def test_pubsub_stream_proves_that_a_peer_speaks_pubsub() -> None:
    heard: list[Rpc] = []

    async def read(connection: Connection, stream: Stream) -> None:
        frames = FrameDecoder()
        while data := await stream.receive_some():
            heard.extend(Wire().decode(body).rpc for body in frames.take(data))

    async with memory_log(1) as log, open_service(log) as service, service.host.running():
        protocol = service.host.protocols[0]
        async with (
            muxed_pair({protocol: read}, {**service.handlers, **service.host.handlers}) as (theirs, ours),
            service.attached(ours, PeerKind.MESH, has_push=False),
        ):
            await trio.testing.wait_all_tasks_blocked()
            assert not heard
            stream = await theirs.open_stream([protocol])
            await stream.send_all(b"".join(Wire().encode(Rpc(subscriptions=SUBSCRIBED))))
            await eventually(lambda: heard)
            assert heard[0].subscriptions == SUBSCRIBED
            await log.append("to the newcomer")
            await eventually(lambda: any(rpc.messages for rpc in heard))
            # And when it says that it speaks pubsub no longer, it is left alone.
            service.host.set_pubsub(ours.peer, None)
            assert service.state().router.peers == ()


@pytest.mark.parametrize("hops", [0, 3], ids=["gossipsub", "episub"])
def test_message_is_read_once_and_passed_on_unless_it_is_too_large(hops: int) -> None:
    message = Message.of(Topic(TOPIC), b"data")
    (frame,) = Wire().encode(Rpc((message,), hops=hops))
    for limits, expected in ((WireLimits(), (frame, 0)), (WireLimits(out_bytes_max=16), (b"", 1))):
        wire = Wire(limits=limits)
        copies, encoder = Copies(wire), Encoder(wire)
        assert copies.known(frame[1:]) is None
        rpc = copies.read(frame[1:])
        assert rpc is not None and copies.known(frame[1:]) is rpc
        assert encoder.encode(Rpc(rpc.messages, hops=hops)) == expected
        # With anything beside it, it is another RPC.
        both = Rpc(rpc.messages, SUBSCRIBED)
        assert encoder.encode(both)[0] == b"".join(encoder.wire.encode(both))


def test_rpc_of_more_than_one_message_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = tuple(Message.of(Topic(TOPIC), data) for data in (b"one", b"two"))
    wire, decoded = Wire(), list[bytes]()
    (frame,) = wire.encode(Rpc(messages))
    decode = Wire.decode
    monkeypatch.setattr(Wire, "decode", lambda self, body: decoded.append(body) or decode(self, body))
    copies, body = Copies(wire), frame[1:]
    assert copies.read(body) is None
    assert copies.decode(body).rpc.messages == messages
    assert len(decoded) == 1
    # What was declined before is not taken for another peer's.
    assert copies.decode(bytearray(body)).rpc.messages == messages
    assert len(decoded) == 2


async def test_peer_without_sync_is_warned_of_once_however_often_it_is_tried_and_comes_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As go and rust peers that speak pubsub alone."""
    async with memory_log(1) as log, open_service(log) as service, service.host.running():
        for _ in range(2):
            async with (
                muxed_pair({}, {**service.handlers, **service.host.handlers}) as (_, ours),
                service.attached(ours, PeerKind.MESH, has_push=False),
            ):
                for _ in range(3):
                    before = service.peers[ours.peer].counts["syncs"]
                    service._act(StartSync(ours.peer, Source(), -1))
                    await eventually(lambda: service.peers[ours.peer].counts["syncs"] > before)
    warnings = [getattr(record, "event", record.getMessage()) for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["protocol not served there", "sync ended early"]


async def test_peer_that_is_not_heeded_is_heard_to_leave_and_in_nothing_else() -> None:
    async with memory_log(1) as log, open_service(log) as service, service.host.running():
        protocol = service.host.protocols[0]

        async def drop(connection: Connection, stream: Stream) -> None:
            while await stream.receive_some():
                pass

        async with (
            muxed_pair({protocol: drop}, {**service.handlers, **service.host.handlers}) as (theirs, ours),
            service.attached(ours, PeerKind.MESH, pubsub_protocol=protocol, has_push=False),
        ):
            stream = await theirs.open_stream([protocol])
            await stream.send_all(b"".join(Wire().encode(Rpc(subscriptions=SUBSCRIBED))))
            await eventually(lambda: service.state().router.peers[0].topics)
            service.host.shared.router._gate = lambda peer: False  # type: ignore[attr-defined]
            other = Rpc(subscriptions=(Subscription(Topic("other"), True), Subscription(Topic(TOPIC), False)))
            await stream.send_all(b"".join(Wire().encode(other)))
            await eventually(lambda: not service.state().router.peers[0].topics)
