"""Every row of limits that concerns the WebSocket server, with a client that breaks it, while an honest one is served."""

from __future__ import annotations

import logging
import math
import resource
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from hostile_client import SYNC, hostile_push, muxed, push, push_stream
from network_support import PATIENCE_S, TOPIC, eventually, fetch, memory_log, open_stream, signer, until_count, until_has

import gossiplog
from gossiplog import GossipLog
from gossiplog.broadcast.offences import BROKEN_STREAMS_MAX
from gossiplog.codec.framing import FrameDecoder, encode_frame
from gossiplog.entry import Entry, validate
from gossiplog.errors import CannotConnect, StreamReset
from gossiplog.net.ground.admission import Admission, HubLimits
from gossiplog.net.hub.client import open_websocket, parse_url
from gossiplog.net.hub.server import Hub
from gossiplog.net.service.push_stream import QUEUE_BYTES_MAX
from gossiplog.sync.rpc import AbortResponse, GetRoot, GetValues, Update
from gossiplog.sync.wire import decode_response, encode_event, encode_request

SERVED_S = 5.0
"""Within which an honest peer is served, whatever others do."""


@asynccontextmanager
async def hub_of(log: GossipLog, limits: HubLimits | None = None) -> AsyncIterator[Hub]:
    async with log.listen("127.0.0.1:0", limits=limits) as hub:
        yield hub


async def serve_honest(hub: Hub, hub_log: GossipLog, number: int = 9) -> None:
    """An honest client comes, gets everything and gives something, within `SERVED_S`."""
    async with memory_log(number) as honest:
        entry = await honest.append({"honest": number, "before": await hub_log.count()})
        with trio.fail_after(SERVED_S):
            async with honest.connect(hub.urls[0]):
                await until_has(hub_log, [entry])
                await until_count(honest, await hub_log.count())


def forge(entry: Entry) -> Entry:
    value = entry.value[:-1] + bytes([entry.value[-1] ^ 1])
    verdict = validate(value)
    assert verdict.entry is not None
    assert not verdict.accepted
    return verdict.entry


async def test_forged_entries_end_the_connection_at_the_fifth() -> None:
    async with memory_log(1) as hub_log, memory_log(2) as author, hub_of(hub_log) as hub:
        genuine = [await author.append(n) for n in range(5)]
        await hostile_push(hub, [forge(entry) for entry in genuine])
        assert await hub_log.count() == 0
        # The forgeries keep nothing genuine out.
        async with author.connect(hub.urls[0]):
            await until_has(hub_log, genuine)


async def test_pushes_that_are_no_messages_close_the_stream_and_count() -> None:
    async with memory_log(1) as hub_log, hub_of(hub_log) as hub:
        async with muxed(hub) as connection:
            with pytest.raises(StreamReset):
                stream = await push_stream(connection)
                await stream.send_all(encode_frame(b"\xff\xff"))
                while await stream.receive_some():
                    pass
            await eventually(lambda: list(hub.services[TOPIC].state().offences.values()) == [1])
            with pytest.raises(StreamReset):
                stream = await push_stream(connection)
                await stream.send_all(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
                while await stream.receive_some():
                    pass
        await serve_honest(hub, hub_log)


async def test_connections_that_say_nothing_make_room_for_those_that_do() -> None:
    limits = HubLimits(half_open_max=16)
    async with memory_log(1) as hub_log, hub_of(hub_log, limits) as hub:
        silent = [await open_stream(hub) for _ in range(200)]
        await eventually(lambda: hub.admission.half_open >= 16)
        assert hub.admission.half_open <= 16
        await serve_honest(hub, hub_log)
        assert (await fetch(hub, "/api/clock")).status == 200
        for stream in silent:
            await trio.aclose_forcefully(stream)


async def test_handshake_has_its_time(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_log(1) as hub_log, hub_of(hub_log) as hub:
        stream = await open_stream(hub)
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: loc")
        began = trio.current_time()
        assert await stream.receive_some() == b""
        assert trio.current_time() - began == pytest.approx(5.0, abs=0.5)
        await stream.aclose()


async def test_head_without_end_is_refused() -> None:
    async with memory_log(1) as hub_log, hub_of(hub_log) as hub:
        stream = await open_stream(hub)
        answer = b""
        with trio.fail_after(PATIENCE_S):
            try:
                for _ in range(100):
                    await stream.send_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"a: " + b"b" * 1000 + b"\r\n")
                while data := await stream.receive_some():
                    answer += data
            except trio.BrokenResourceError:
                pass
        assert answer == b"" or b" 431 " in answer
        await stream.aclose()
        await eventually(lambda: hub.admission.half_open == 0)
        await serve_honest(hub, hub_log)


async def test_garbage_in_place_of_http_is_answered_and_closed() -> None:
    async with memory_log(1) as hub_log, hub_of(hub_log) as hub:
        for garbage in (b"\x13/multistream/1.0.0\n\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET\r\n\r\n"):
            stream = await open_stream(hub)
            with trio.fail_after(PATIENCE_S):
                await stream.send_all(garbage)
                answer = b""
                while data := await stream.receive_some():
                    answer += data
            assert answer.startswith(b"HTTP/1.1 400"), answer
            await stream.aclose()


async def test_addresses_have_so_many_connections_and_no_more() -> None:
    # Through a proxy that is trusted, or all would come from loopback, which is exempt.
    limits = HubLimits(connections_per_address=3, proxies=frozenset({"127.0.0.1"}))
    async with memory_log(1) as hub_log, hub_of(hub_log, limits) as hub:

        async def status_from(address: str) -> int:
            return (await fetch(hub, "/api/clock", headers={"x-forwarded-for": f"8.8.8.8, {address}"})).status

        held = []
        for _ in range(3):
            stream = await open_stream(hub)
            await stream.send_all(b"GET /api/events HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: 203.0.113.7\r\n\r\n")
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
            held.append(stream)
        assert await status_from("203.0.113.7") == 503
        assert await status_from("203.0.113.8") == 200
        await held.pop().aclose()
        await eventually(lambda: hub.admission.open == 2)
        assert await status_from("203.0.113.7") == 200
        for stream in held:
            await stream.aclose()


async def test_client_that_stops_reading_costs_the_others_nothing() -> None:
    async with (
        memory_log(1, value_bytes_max=2**20) as hub_log,
        memory_log(2, value_bytes_max=2**20) as honest,
        hub_of(hub_log) as hub,
        muxed(hub) as deaf,
        honest.connect(hub.urls[0]) as link,
    ):
        await push_stream(deaf)
        await eventually(lambda: link.state is not None and link.state.is_pushing and len(hub.links()) == 2)
        # More than the queue, the windows and the sockets' buffers hold together.
        for n in range(60):
            entry = await hub_log.append({"n": n, "bulk": b"x" * 500_000})
            with trio.fail_after(SERVED_S):
                await until_has(honest, [entry])
        assert max(state.queued_bytes for state in hub.links()) <= QUEUE_BYTES_MAX
        slow = next(state for state in hub.links() if state.counts.get("dropped"))
        assert slow.queued_bytes <= QUEUE_BYTES_MAX


async def test_streams_are_128_a_connection_and_then_reset() -> None:
    async with memory_log(1) as hub_log, hub_of(hub_log) as hub, muxed(hub) as connection:
        opened = 0
        with pytest.raises(StreamReset):
            for _ in range(200):
                with trio.fail_after(PATIENCE_S):
                    stream = await connection.open_stream([SYNC])
                    await stream.send_all(b"\x10")
                    opened += 1
        assert opened <= 128
        await serve_honest(hub, hub_log)


async def test_sync_session_that_asks_for_nothing_is_cut_short_when_others_wait() -> None:
    async with memory_log(1) as hub_log, hub_of(hub_log) as hub:
        await hub_log.append_many(range(50))
        async with trio.open_nursery() as nursery:

            async def squat(task_status: trio.TaskStatus[None]) -> None:
                async with muxed(hub) as connection:
                    stream = await connection.open_stream([SYNC])
                    await stream.send_all(encode_frame(encode_request(GetRoot())))
                    await stream.receive_some()
                    task_status.started()
                    await trio.sleep_forever()

            for _ in range(32):
                await nursery.start(squat)
            await serve_honest(hub, hub_log)
            nursery.cancel_scope.cancel()


async def test_sync_sessions_that_overlap_do_not_let_the_write_ahead_log_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossiplog.store.sqlite.store.WAL_BYTES_MAX", 1024 * 1024)
    path = tmp_path / "hub.db"
    aborted, peak = 0, 0

    async def hold() -> None:
        """Ask now and then, and come back at once when the session is ended."""
        nonlocal aborted
        async with muxed(hub) as connection:
            while True:
                stream, frames = await connection.open_stream([SYNC]), FrameDecoder()
                answer: object = None
                while not isinstance(answer, AbortResponse):
                    await stream.send_all(encode_frame(encode_request(GetRoot())))
                    while not (found := frames.take(await stream.receive_some())):
                        pass
                    answer = decode_response(found[0])
                    await trio.sleep(0.05)
                aborted += 1

    async with gossiplog.open(path, topic=TOPIC, signer=signer(1), durability="off") as hub_log, hub_of(hub_log) as hub:
        await hub_log.append(1)
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(hold)
            for number in range(60):
                await hub_log.append_many([f"{number} {at} {'x' * 3000}" for at in range(40)])
                peak = max(peak, path.with_name("hub.db-wal").stat().st_size)
                await trio.sleep(0.01)
            async with memory_log(9) as honest, honest.connect(hub.urls[0]):
                await until_count(honest, await hub_log.count())
            nursery.cancel_scope.cancel()
        assert path.stat().st_size > 8 * 1024 * 1024
    assert peak < 2 * 1024 * 1024, peak
    assert aborted >= 8


async def test_a_session_on_postgres_ends_with_its_time_and_lets_go_of_its_snapshot(postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = "gossiplog.net.service.sessions.SESSION_S"
    held = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND backend_xmin IS NOT NULL"

    async def count_held() -> int:
        return (await trio.to_thread.run_sync(postgres.sql, held))[0][0]

    async def hold(pause_s: float, task_status: trio.TaskStatus[None]) -> None:
        async with muxed(hub) as connection:
            stream, frames = await connection.open_stream([SYNC]), FrameDecoder()
            while True:
                await stream.send_all(encode_frame(encode_request(GetRoot())))
                while not (found := frames.take(await stream.receive_some())):
                    pass
                if isinstance(decode_response(found[-1]), AbortResponse):
                    return
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                if pause_s == math.inf:
                    # One that says nothing more is told as well.
                    found = frames.take(await stream.receive_some())
                    assert isinstance(decode_response(found[-1]), AbortResponse)
                    return
                await trio.sleep(pause_s)

    async with gossiplog.open(postgres.new_log(), topic=TOPIC, signer=signer(1)) as hub_log, hub_of(hub_log) as hub:
        await hub_log.append(1)
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                await nursery.start(hold, 0.05)
                assert await count_held() == 1
                monkeypatch.setattr(bound, 0.2)
                await nursery.start(hold, math.inf)
            while await count_held():
                await trio.sleep(0.01)


async def test_requests_beyond_their_rate_wait() -> None:
    async with memory_log(1) as hub_log, hub_of(hub_log) as hub:
        await hub_log.append(1)
        async with muxed(hub) as connection, trio.open_nursery() as nursery:
            stream = await connection.open_stream([SYNC])
            asked = 6_000

            async def ask() -> None:
                await stream.send_all(encode_frame(encode_request(GetRoot())) * asked)

            began = trio.current_time()
            nursery.start_soon(ask)
            nursery.start_soon(serve_honest, hub, hub_log)
            frames, answered = FrameDecoder(), 0
            with trio.fail_after(PATIENCE_S):
                while answered < asked:
                    answered += len(frames.take(await stream.receive_some()))
            # 2,000 at once, and then 2,000 a second.
            assert trio.current_time() - began > 1.9


async def test_invented_heads_cost_us_little() -> None:
    async with memory_log(1) as hub_log, hub_of(hub_log) as hub, muxed(hub) as connection:
        stream = await push_stream(connection)
        for n in range(200):
            heads = [bytes([1]) + n.to_bytes(4) + k.to_bytes(15) for k in range(20)]
            await stream.send_all(encode_frame(encode_event(Update(heads))))
        await serve_honest(hub, hub_log)
        # The hub has tried to sync, on streams that nobody serves here.
        assert connection.streams_accepted <= 10


async def test_orphans_are_not_kept_and_start_one_sync() -> None:
    async with memory_log(1) as hub_log, memory_log(2) as author, hub_of(hub_log) as hub:
        entries = await author.append_many(range(300))
        async with muxed(hub) as connection:
            await push(await push_stream(connection), entries[1:])
            await serve_honest(hub, hub_log)
            assert connection.streams_accepted <= 10
        assert await hub_log.count() == 1


async def test_a_hundred_sync_streams_that_break_the_protocol_are_an_offence_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with memory_log(1) as hub_log, hub_of(hub_log) as hub, muxed(hub) as connection:
        for number in range(BROKEN_STREAMS_MAX):
            assert not hub.services[TOPIC].state().offences, number
            stream = await connection.open_stream([SYNC])
            with pytest.raises(StreamReset):
                await stream.send_all(encode_frame(b"\xff\xff"))
                while await stream.receive_some():
                    pass
        await eventually(lambda: list(hub.services[TOPIC].state().offences.values()) == [1])
        assert sum(record.levelno >= logging.WARNING for record in caplog.records) == 1


async def test_keys_that_are_not_there_end_that_stream_alone_and_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async with memory_log(1) as hub_log, hub_of(hub_log) as hub, muxed(hub) as connection:
        stream = await connection.open_stream([SYNC])
        await stream.send_all(encode_frame(encode_request(GetValues([bytes(20)] * 1025))))
        with trio.fail_after(PATIENCE_S), pytest.raises(StreamReset):
            while await stream.receive_some():
                pass
        again = await connection.open_stream([SYNC])
        await again.send_all(encode_frame(encode_request(GetValues([bytes(20)]))))
        with trio.fail_after(PATIENCE_S), pytest.raises(StreamReset):
            while await again.receive_some():
                pass
        assert [getattr(record, "event", record.getMessage()) for record in caplog.records if record.levelno == logging.WARNING] == [
            "sync ended without an answer"
        ]
        again = await connection.open_stream([SYNC])
        await again.send_all(encode_frame(encode_request(GetRoot())))
        with trio.fail_after(PATIENCE_S):
            assert await again.receive_some()


async def test_memory_stays_bounded_under_floods_of_connections() -> None:
    async with memory_log(1) as hub_log, hub_of(hub_log) as hub:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(20):
            streams = [await open_stream(hub) for _ in range(20)]
            for stream in streams:
                await stream.send_all(b"GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n")
                await trio.aclose_forcefully(stream)
        await eventually(lambda: hub.admission.open == 0)
        await serve_honest(hub, hub_log)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


async def test_address_of_a_forger_is_shut_out_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    # All tests come from loopback, which nothing is counted against.
    monkeypatch.setattr(Admission, "is_exempt", lambda self, address: False)
    async with memory_log(1) as hub_log, memory_log(2) as author, hub_of(hub_log) as hub:
        assert (await fetch(hub, "/api/clock")).status == 200
        await hostile_push(hub, [forge(await author.append(n)) for n in range(5)])
        await eventually(lambda: hub.admission.open == 0)
        answer = await fetch(hub, "/api/clock")
        assert answer.status == 503
        assert b"banned" in answer.body
        with pytest.raises(CannotConnect, match="503"):
            await open_websocket(parse_url(hub.urls[0]))


async def test_forger_who_reconnects_is_shut_out_and_one_among_neighbours_slows_strangers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admission, "is_exempt", lambda self, address: False)
    async with memory_log(1) as hub_log, memory_log(2) as author, memory_log(3) as honest, hub_of(hub_log) as hub:
        forgeries = [forge(await author.append(n)) for n in range(13)]

        async def forge_some(entries: Sequence[Entry]) -> None:
            """Fewer than a connection may bring; gone before they are judged."""
            before = hub.services[TOPIC].counts.get("entries rejected", 0)
            async with muxed(hub) as connection:
                await push(await push_stream(connection), entries)
                await eventually(lambda: hub.services[TOPIC].counts.get("entries rejected", 0) >= before + len(entries))

        async with honest.connect(hub.urls[0]) as link:
            await eventually(lambda: link.state is not None and link.state.is_pushing)
            await forge_some(forgeries[:4])
            await forge_some(forgeries[4:8])
            # Neighbours are here: nobody is shut out, and who comes now is served, if slowly.
            entries = [await honest.append(n) for n in range(25)]
            await until_has(hub_log, entries)
            await serve_honest(hub, hub_log)
        await eventually(lambda: hub.admission.open == 0)
        async with muxed(hub) as connection:
            await push(await push_stream(connection), forgeries[8:9])
            with trio.fail_after(PATIENCE_S):
                await connection.wait_ended()
        with pytest.raises(CannotConnect, match="503"):
            await open_websocket(parse_url(hub.urls[0]))
