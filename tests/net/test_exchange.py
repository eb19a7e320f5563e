"""One exchange with a hub over a real WebSocket: both directions, interruptions, and hubs that do not play along."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from network_support import PATIENCE_S, TOPIC, memory_log

import gossiplog
from gossiplog.codec import pcf
from gossiplog.codec.framing import FrameDecoder, encode_frame
from gossiplog.entry.signing import sign_entry
from gossiplog.errors import CannotConnect, RemoteProtocolError
from gossiplog.net import open_muxed
from gossiplog.net.hub import exchange as exchange_module
from gossiplog.net.hub.client import HubUrl, parse_url
from gossiplog.net.hub.exchange import Exchange, exchange
from gossiplog.net.service import sessions, syncs
from gossiplog.net.service.sessions import PullSession
from gossiplog.net.transport.http_head import read_head
from gossiplog.net.transport.muxed import Connection, Stream
from gossiplog.net.transport.tcp import TcpStream
from gossiplog.net.transport.websocket import accept_websocket
from gossiplog.pubsub.types import PeerId
from gossiplog.pull.machine import Resumption
from gossiplog.sync.events import Closed, Received, SessionAction, SessionEvent
from gossiplog.sync.result import Ending
from gossiplog.sync.rpc import AbortResponse, GetRoot, NodeResponse, Request, Response, RootResponse
from gossiplog.sync.server import SyncServer
from gossiplog.sync.wire import decode_request, encode_response
from gossiplog.tree.node import ANCHOR_HASH, Node


async def swap(log: gossiplog.GossipLog, url: str, *, pulls: bool = True, pushes: bool = True) -> Exchange:
    with trio.fail_after(PATIENCE_S):
        return await exchange(log, parse_url(url), pulls=pulls, pushes=pushes)


async def no_sketch(log: gossiplog.GossipLog) -> None:
    """As a log whose sketch is not ready: the merkle sync does it."""


async def test_both_sides_end_equal_and_what_it_took_is_counted() -> None:
    async with memory_log(1) as hub_log, memory_log(2) as ours, hub_log.listen("127.0.0.1:0") as hub:
        await hub_log.append_many(range(300))
        await ours.append_many(range(200))
        moved: list[int] = []
        with trio.fail_after(PATIENCE_S):
            done = await exchange(ours, parse_url(hub.urls[0]), on_progress=moved.append)
        assert done.pulled is not None
        assert (done.pulled.entries, done.pushed, sum(moved)) == (300, 200, 500)
        assert (done.is_taken, done.is_equal) == (True, True)
        assert await ours.root() == await hub_log.root() == done.root
        assert done.pulled.waits <= 20
        assert done.bytes_sent > 200 * 150
        assert done.bytes_received > 300 * 150
        assert done.bytes_per_entry == (done.bytes_sent + done.bytes_received) / 500
        again = await swap(ours, hub.urls[0])
        assert (again.moved, again.bytes_per_entry, again.is_equal) == (0, None, True)
        assert again.bytes_sent + again.bytes_received < 2_000


async def test_a_hub_is_not_asked_again_for_the_heads_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, had = [], list[bytes | None]()
    ask = exchange_module._Session.ask

    async def noted(session: exchange_module._Session, requests: Sequence[Request]) -> list[Response]:
        answers = await ask(session, requests)
        sizes.append(len(requests))
        had.extend(answer.node.key for answer in answers if isinstance(answer, NodeResponse) and answer.node is not None)
        return answers

    monkeypatch.setattr(exchange_module._Session, "ask", noted)
    monkeypatch.setattr(sessions, "sketch_in_time", no_sketch)
    heads = [sign_entry(gossiplog.Ed25519Signer.generate(), TOPIC, 1, [], pcf.encode(number)) for number in range(600)]
    async with memory_log(1) as hub_log, memory_log(2) as ours, hub_log.listen("127.0.0.1:0") as hub:
        await ours.insert_many([entry.value for entry in heads])
        done = await swap(ours, hub.urls[0])
        assert (done.pushed, done.is_equal, done.is_taken) == (600, True, True)
    assert sorted(had) == sorted(entry.key for entry in heads)
    assert max(sizes) <= 256


async def test_empty_logs_are_equal() -> None:
    async with memory_log(1) as hub_log, memory_log(2) as ours, hub_log.listen("127.0.0.1:0") as hub:
        done = await swap(ours, hub.urls[0])
        assert (done.moved, done.is_equal, done.is_taken) == (0, True, True)


async def test_one_direction_is_only_that() -> None:
    async with memory_log(1) as hub_log, memory_log(2) as ours, hub_log.listen("127.0.0.1:0") as hub:
        await hub_log.append_many(range(30))
        await ours.append_many(range(20))
        taken = await swap(ours, hub.urls[0], pushes=False)
        assert taken.pulled is not None
        assert (taken.pulled.entries, taken.is_taken, taken.is_equal) == (30, None, False)
        assert await hub_log.count() == 30
        given = await swap(ours, hub.urls[0], pulls=False)
        assert (given.pulled, given.pushed, given.is_taken) == (None, 20, True)
        assert await hub_log.count() == 50


async def test_many_heads_are_given(tmp_path: Path) -> None:
    async with memory_log(1) as hub_log, memory_log(9) as root_log, hub_log.listen("127.0.0.1:0") as hub:
        first = await root_log.append("first")
        async with gossiplog.open(tmp_path / "many.db", topic=TOPIC) as ours:
            await ours.insert(first.value)
            for number in range(10, 60):
                async with memory_log(number) as branch:
                    await branch.insert(first.value)
                    await ours.insert((await branch.append(number)).value)
            assert len(await ours.heads()) == 50
            assert (await swap(ours, hub.urls[0])).is_equal
            assert await hub_log.heads() == await ours.heads()


async def test_hub_that_ends_each_session_early_is_pulled_in_many(monkeypatch: pytest.MonkeyPatch) -> None:
    class Impatient(SyncServer):
        """Ends a session as soon as it has answered a few requests, as the reference does after two seconds."""

        def handle(self, event: SessionEvent, now: float) -> list[SessionAction]:
            return super().handle(event, now + 60 if self.requests > 20 else now)

    receive, ends = PullSession._receive, 0

    async def count_ends(session: PullSession) -> Received | Closed:
        nonlocal ends
        received = await receive(session)
        ends += isinstance(received, Closed)
        return received

    monkeypatch.setattr(syncs, "SyncServer", Impatient)
    monkeypatch.setattr(sessions, "sketch_in_time", no_sketch)
    monkeypatch.setattr(PullSession, "_receive", count_ends)
    async with memory_log(1) as hub_log, memory_log(2) as ours, hub_log.listen("127.0.0.1:0") as hub:
        await hub_log.append_many(range(4_000))
        done = await swap(ours, hub.urls[0], pushes=False)
        assert done.pulled is not None
        assert done.pulled.sessions > 1
        assert await ours.count() == 4_000
        # A stream that has ended is not read again and again while what it brought is being inserted.
        assert ends <= done.pulled.sessions


async def test_interrupted_exchange_keeps_what_it_has_and_goes_on() -> None:
    async with memory_log(1) as hub_log, memory_log(2) as ours:
        await hub_log.append_many(range(4_000))
        async with hub_log.listen("127.0.0.1:0") as hub:
            with trio.CancelScope() as scope:
                await exchange(ours, parse_url(hub.urls[0]), on_progress=lambda moved: scope.cancel())
            assert scope.cancelled_caught
            had = await ours.count()
            assert 0 < had < 4_000
            done = await swap(ours, hub.urls[0])
            assert done.pulled is not None
            assert done.pulled.entries == 4_000 - had


async def test_hub_that_goes_away_is_an_error_and_not_a_fault() -> None:
    async with memory_log(1) as hub_log, memory_log(2) as ours:
        await hub_log.append_many(["more than fits into what is on its way " * 60] * 3_000)
        with pytest.raises(CannotConnect, match=r"went away|does not serve"):
            async with trio.open_nursery() as nursery:
                leaving = trio.CancelScope()

                async def serve(task_status: trio.TaskStatus[str]) -> None:
                    with leaving:
                        async with hub_log.listen("127.0.0.1:0") as hub:
                            task_status.started(hub.urls[0])
                            await trio.sleep_forever()

                url = await nursery.start(serve)
                try:
                    await exchange(ours, parse_url(url), on_progress=lambda moved: leaving.cancel())
                except CannotConnect as error:
                    nursery.cancel_scope.cancel()
                    caught = error
            raise caught
        assert await ours.count() > 0


async def test_topic_or_server_that_is_another_is_said() -> None:
    async with memory_log(1) as hub_log, memory_log(2, "other.example") as ours, hub_log.listen("127.0.0.1:0") as hub:
        with pytest.raises(CannotConnect, match=r"does not serve topic other\.example"):
            await swap(ours, hub.urls[0])
    with pytest.raises(CannotConnect, match="cannot connect"):
        async with memory_log(2) as ours:
            await swap(ours, f"ws://127.0.0.1:{hub.port}")


@asynccontextmanager
async def odd_hub(serve_sync_stream: object, serve_push_stream: object = None) -> AsyncIterator[HubUrl]:
    """A hub of which the test makes the handlers."""
    handlers = {f"/canvas/v1/{TOPIC}/sync": serve_sync_stream, f"/canvas/v1/{TOPIC}/push": serve_push_stream}

    async def accept(stream: trio.SocketStream) -> None:
        connection = TcpStream(stream)
        websocket = await accept_websocket(connection, await read_head(connection, 16_384))
        async with open_muxed(websocket, is_client=False, peer=PeerId("us"), handlers=handlers) as muxed:  # type: ignore[arg-type]
            await muxed.wait_ended()

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, accept, 0, host="127.0.0.1"))
        yield parse_url(f"ws://127.0.0.1:{listener.socket.getsockname()[1]}")
        nursery.cancel_scope.cancel()


async def test_hub_that_answers_nonsense_broke_the_protocol() -> None:
    async def serve(connection: Connection, stream: Stream) -> None:
        await stream.receive_some()
        await stream.send_all(encode_frame(b"\xff\xff\xff"))

    async with memory_log(2) as ours, odd_hub(serve) as hub:
        done = await exchange_until_root(ours, hub)
        assert "broke" in done or "no answer" in done


async def exchange_until_root(log: gossiplog.GossipLog, hub: HubUrl) -> str:
    with trio.fail_after(PATIENCE_S):
        try:
            await exchange(log, hub, pushes=False)
        except RemoteProtocolError as error:
            return str(error)
    raise AssertionError


async def test_hub_that_only_aborts_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each attempt after the first is preceded by a longer pause.
    monkeypatch.setattr(exchange_module, "RESUMPTION", Resumption(stuck_max=0))

    async def serve(connection: Connection, stream: Stream) -> None:
        await stream.receive_some()
        await stream.send_all(encode_frame(encode_response(AbortResponse(0))))

    async with memory_log(2) as ours, odd_hub(serve) as hub:
        with trio.fail_after(PATIENCE_S):
            done = await exchange(ours, hub, pushes=False)
        assert done.pulled is not None
        assert (done.pulled.ending, done.pulled.entries, done.root) == (Ending.ABORTED, 0, None)


@pytest.mark.parametrize(("cooldown_s", "waits"), [(4_000, []), (1, [1.0])])
async def test_hub_that_asks_for_a_pause_is_granted_a_short_one_and_left_for_a_long_one(
    monkeypatch: pytest.MonkeyPatch, cooldown_s: int, waits: list[float]
) -> None:
    monkeypatch.setattr(exchange_module, "RESUMPTION", Resumption(stuck_max=1))

    async def serve(connection: Connection, stream: Stream) -> None:
        await stream.receive_some()
        await stream.send_all(encode_frame(encode_response(AbortResponse(1000 * cooldown_s))))

    said: list[float] = []
    async with memory_log(2) as ours, odd_hub(serve) as hub:
        with trio.fail_after(PATIENCE_S):
            done = await exchange(ours, hub, pushes=False, on_pause=said.append)
    assert said == waits
    assert done.pulled is not None
    assert done.pulled.ending is Ending.ABORTED
    assert "asks for a pause" in done.pulled.reason


async def test_hub_that_takes_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "QUIET_S", 0.3)

    async def serve(connection: Connection, stream: Stream) -> None:
        frames = FrameDecoder()
        while data := await stream.receive_some():
            for request in map(decode_request, frames.take(data)):
                answer = RootResponse(Node(0, None, ANCHOR_HASH)) if isinstance(request, GetRoot) else NodeResponse(None)
                await stream.send_all(encode_frame(encode_response(answer)))

    async def ignore(connection: Connection, stream: Stream) -> None:
        while await stream.receive_some():
            pass

    async with memory_log(2) as ours, odd_hub(serve, ignore) as hub:
        await ours.append(1)
        with trio.fail_after(PATIENCE_S):
            done = await exchange(ours, hub)
        assert (done.is_taken, done.is_equal, done.pushed) == (False, False, 0)
        assert done.root == Node(0, None, ANCHOR_HASH)
