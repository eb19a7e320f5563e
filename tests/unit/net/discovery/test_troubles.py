"""What is said of bootstrap peers that cannot be reached, and of messages that are refused."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from mesh_support import TCP, a_host, a_peer, eventually, free_place
from muxer_support import muxed_pair
from network_support import TOPIC, memory_log

from gossiplog.broadcast.events import PeerKind
from gossiplog.codec.framing import encode_frame
from gossiplog.net.libp2p import Address, PeerKey, host
from gossiplog.net.service.service import open_service
from gossiplog.net.transport.multistream import MULTISTREAM, encode_line
from gossiplog.pubsub.rpc import Message, Rpc
from gossiplog.pubsub.types import Topic
from gossiplog.pubsub.wire.rpc_codec import RPC, Wire

OTHER = PeerKey(b"\2" * 32).id


def said(caplog: pytest.LogCaptureFixture, event: str, level: int = logging.WARNING) -> list[dict[str, object]]:
    return [record.fields for record in caplog.records if getattr(record, "event", "") == event and record.levelno == level]


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[Address]:
    """A server that says one thing and hangs up, or nothing at all."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            if answer is None:
                await trio.sleep_forever()
            await stream.receive_some()
            await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield Address("ip4", "127.0.0.1", listener.socket.getsockname()[1])
        nursery.cancel_scope.cancel()


TLS_ONLY = encode_line(MULTISTREAM) + encode_line("na")


@pytest.mark.parametrize("has_id", [True, False])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (TLS_ONLY, "does not speak noise"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n" + b" " * 100, "no libp2p peer, or speaks another transport"),
        (b"", "hung up"),
        (None, "no answer within"),
    ],
    ids=("tls only", "another transport", "hangs up", "silent"),
)
async def test_bootstrap_peer_that_cannot_be_used_is_said_why_once(
    answer: bytes | None, reason: str, has_id: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answer is None:
        monkeypatch.setattr(host, "DIAL_S", 0.2)
    caplog.set_level(logging.DEBUG, logger="gossiplog.net")
    async with answering(answer) as place:
        address = place.of(OTHER) if has_id else place
        async with a_peer(address):
            await eventually(lambda: said(caplog, "peer not reached", logging.DEBUG))
    (fields,) = said(caplog, "peer not reached")
    assert fields["address"] == str(address)
    assert reason in str(fields["reason"])
    assert str(address) not in str(fields["reason"])


async def test_bootstrap_peer_that_comes_late_is_said_to_have_come(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="gossiplog.net")
    key, place = PeerKey(b"\3" * 32), free_place()
    async with a_peer(place.of(key.id)):
        await eventually(lambda: said(caplog, "peer not reached"))
        assert said(caplog, "peer not reached") == [{"address": str(place.of(key.id)), "reason": "Connection refused"}]
        async with a_host(place, key=key):
            await eventually(lambda: said(caplog, "peer reached after all", logging.INFO) == [{"address": str(place.of(key.id))}])


async def test_bootstrap_address_of_somebody_else_is_said_to_be(caplog: pytest.LogCaptureFixture) -> None:
    async with a_host(TCP) as other, a_peer(other.addresses[0].of(OTHER)):
        await eventually(lambda: said(caplog, "peer not reached"))
        assert f"dialled {OTHER}, and {other.id} answered" in str(said(caplog, "peer not reached")[0]["reason"])


async def test_refused_messages_are_counted_and_said_why_once_a_peer(caplog: pytest.LogCaptureFixture) -> None:
    signed = [RPC.encode({"publish": [{"data": b"%d" % n, "topic": TOPIC, "signature": bytes(64)}]}) for n in range(5)]
    other = [Message.of(Topic("other"), b"%d" % n) for n in range(3)]
    async with memory_log(1) as log, open_service(log) as service, service.host.running():
        protocol = service.host.protocols[0]
        async with (
            muxed_pair({}, {**service.handlers, **service.host.handlers}) as (theirs, ours),
            service.attached(ours, PeerKind.MESH, pubsub_protocol=protocol),
        ):
            stream = await theirs.open_stream([protocol])
            malformed = [Message.of(Topic(TOPIC), b"%d" % n) for n in range(2)]
            for body in signed:
                await stream.send_all(encode_frame(body))
            for message in (*other, *malformed):
                await stream.send_all(b"".join(Wire().encode(Rpc((message,)))))
            await eventually(lambda: service.counts.get("messages refused") == 10)
            assert service.links()[0].counts["messages refused"] == 10
    reasons = [str(fields["reason"]) for fields in said(caplog, "message refused")]
    assert len(reasons) == 4
    assert "StrictNoSign" in reasons[0]
    assert reasons[1] == "of another topic, 'other'"
    assert all(reason.startswith("malformed message: ") for reason in reasons[2:])


async def test_bootstrap_address_with_our_own_id_is_said_to_be_us_or_a_copy_unless_we_listen_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    key, place, elsewhere = PeerKey(b"\1" * 32), free_place(), Address("ip4", "127.0.0.1", 1)
    async with a_peer(place.of(key.id), elsewhere.of(key.id), key=key, listen=(place,)):
        await eventually(lambda: said(caplog, "peer not reached"))
        (fields,) = said(caplog, "peer not reached")
    assert fields["address"] == str(elsewhere.of(key.id))
    assert "a copy of its key" in str(fields["reason"])
