"""A hub and its clients over real WebSockets on loopback."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio
from network_support import (
    PATIENCE_S,
    TOPIC,
    client_tls,
    eventually,
    make_certificate,
    memory_log,
    server_tls,
    signer,
    until_count,
    until_equal,
    until_has,
)
from ports import free_port

import gossiplog
from gossiplog.codec import pcf
from gossiplog.entry.signing import sign_entry
from gossiplog.errors import CannotConnect, CannotListen, LocalProtocolError
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.hub import client as hub_client
from gossiplog.net.hub.client import connect, open_websocket, parse_url
from gossiplog.net.hub.server import listen
from gossiplog.sync.rpc import HEADS_MAX


async def test_what_either_side_lacks_goes_over_on_connecting() -> None:
    async with memory_log(1) as hub_log, memory_log(2) as ours:
        await hub_log.append_many(range(120))
        await ours.append_many(range(80))
        async with hub_log.listen("127.0.0.1:0") as hub, ours.connect(hub.urls[0]):
            await until_count(hub_log, 200)
            await until_count(ours, 200)
            await until_equal(hub_log, ours)


async def test_an_append_on_one_client_reaches_another_without_a_sync() -> None:
    async with (
        memory_log(1) as hub_log,
        memory_log(2) as a,
        memory_log(3) as b,
        hub_log.listen("127.0.0.1:0") as hub,
        a.connect(hub.urls[0]) as to_hub,
        b.connect(hub.urls[0]) as also_to_hub,
    ):
        await eventually(lambda: all(link.state is not None and link.state.is_pushing for link in (to_hub, also_to_hub)))
        entries = [await a.append({"n": n}) for n in range(50)]
        await until_has(b, entries)
        assert also_to_hub.state is not None
        assert also_to_hub.state.counts.get("syncs", 0) == 0
        back = await b.append("back")
        await until_has(a, [back])


async def test_a_burst_of_pushes_larger_than_any_queue_arrives_whole() -> None:
    async with (
        memory_log(1) as hub_log,
        memory_log(2) as a,
        memory_log(3) as b,
        hub_log.listen("127.0.0.1:0") as hub,
        a.connect(hub.urls[0]),
        b.connect(hub.urls[0]),
    ):
        for _ in range(6):
            await a.append_many(range(250))
        await until_count(b, 1500)
        await until_equal(a, hub_log, b)


async def test_clients_that_append_at_the_same_time_converge() -> None:
    async with memory_log(1) as hub_log, memory_log(2) as a, memory_log(3) as b, hub_log.listen("127.0.0.1:0") as hub:
        async with a.connect(hub.urls[0]), b.connect(hub.urls[0]), trio.open_nursery() as nursery:

            async def append(log: gossiplog.GossipLog) -> None:
                for n in range(100):
                    await log.append(n)

            for log in (hub_log, a, b):
                nursery.start_soon(append, log)
        async with a.connect(hub.urls[0]), b.connect(hub.urls[0]):
            for log in (hub_log, a, b):
                await until_count(log, 300)
            await until_equal(hub_log, a, b)


async def test_chain_of_hubs_passes_entries_on() -> None:
    async with (
        memory_log(1) as first,
        memory_log(2) as middle,
        memory_log(3) as last,
        first.listen("127.0.0.1:0") as hub,
        middle.connect(hub.urls[0]),
        middle.listen("127.0.0.1:0") as next_hub,
        last.connect(next_hub.urls[0]),
    ):
        one, other = await first.append("down"), await last.append("up")
        await until_has(last, [one])
        await until_has(middle, [one, other])


async def test_entry_that_was_posted_or_inserted_is_pushed() -> None:
    async with (
        memory_log(1) as elsewhere,
        memory_log(2) as hub_log,
        memory_log(3) as client,
        hub_log.listen("127.0.0.1:0") as hub,
        client.connect(hub.urls[0]) as link,
    ):
        await eventually(lambda: link.state is not None and link.state.is_pushing)
        entry = await elsewhere.append("inserted")
        assert (await hub_log.insert(entry.value)).is_new
        await until_has(client, [entry])


async def test_import_of_many_entries_is_told_by_heads_and_fetched_by_a_sync() -> None:
    async with memory_log(1) as elsewhere, memory_log(2) as hub_log, memory_log(3) as client, hub_log.listen("127.0.0.1:0") as hub:
        entries = await elsewhere.append_many(range(2_000))
        async with client.connect(hub.urls[0]) as link:
            await eventually(lambda: link.state is not None and link.state.is_pushing)
            await hub_log.insert_many([entry.value for entry in entries])
            await until_count(client, 2_000)
            await eventually(lambda: link.state is not None and link.state.counts.get("syncs"))
            assert link.state is not None
            assert link.state.counts["received"] < 100


async def test_several_logs_are_served_by_topic() -> None:
    async with memory_log(1, "a.example") as a, memory_log(2, "b#c") as b, memory_log(3, "b#c") as client:
        entry = await b.append("b")
        async with listen([a, b], "127.0.0.1:0") as hub:
            assert hub.urls == [f"ws://127.0.0.1:{hub.port}/a.example", f"ws://127.0.0.1:{hub.port}/b%23c"]
            async with client.connect(hub.urls[1]):
                await until_has(client, [entry])
            with pytest.raises(CannotConnect, match="404"):
                await open_websocket(parse_url(f"ws://127.0.0.1:{hub.port}/none"))
        with pytest.raises(LocalProtocolError, match="is served already"):
            async with listen([b, client], "127.0.0.1:0"):
                raise AssertionError


async def test_clients_of_a_log_that_was_removed_wait_for_it_and_do_not_stay_with_the_one_that_is_left() -> None:
    async with (
        memory_log(1, topic="a.example.com") as a,
        memory_log(2, topic="b.example.com") as b,
        memory_log(3, topic="a.example.com") as client,
        listen([b], "127.0.0.1:0") as hub,
        trio.open_nursery() as nursery,
    ):

        async def serve(task_status: trio.TaskStatus[trio.CancelScope]) -> None:
            with trio.CancelScope() as served:
                async with hub.logs.pinned(a):
                    task_status.started(served)
                    await trio.sleep_forever()

        served = await nursery.start(serve)
        async with client.connect(f"ws://127.0.0.1:{hub.port}/a.example.com") as link:
            await until_has(a, [await client.append("before")])
            served.cancel()
            await eventually(lambda: link.error and "404" in link.error)
            await nursery.start(serve)
            await until_has(a, [await client.append("after")])
        nursery.cancel_scope.cancel()


async def test_client_of_another_topic_gets_and_gives_nothing_and_both_say_so(caplog: pytest.LogCaptureFixture) -> None:
    async with memory_log(1) as hub_log, memory_log(2, "other.example") as other, hub_log.listen("127.0.0.1:0") as hub:
        await other.append(1)
        async with other.connect(hub.urls[0]) as link:
            with trio.fail_after(PATIENCE_S):
                await link.wait_connected()
            await eventually(lambda: hub.links() != [])
            assert not hub.links()[0].is_pushing
            await eventually(lambda: "protocol not served there" in caplog.text)
        assert await hub_log.count() == 0
        assert "asked for '/canvas/v1/other.example/push', which is not served here" in caplog.text


async def test_connection_is_made_again_after_the_hub_was_away() -> None:
    async with memory_log(1) as hub_log, memory_log(2) as client:
        async with hub_log.listen("127.0.0.1:0") as hub:
            port, url = hub.port, hub.urls[0]
        async with client.connect(url) as link:
            await eventually(lambda: link.error is not None)
            await client.append("while it was away")
            async with hub_log.listen(f"127.0.0.1:{port}"):
                await until_count(hub_log, 1)
                assert link.is_connected
                assert link.error is None
            with trio.fail_after(PATIENCE_S):
                await link.wait_disconnected()
            await client.append("away again")
            async with hub_log.listen(f"127.0.0.1:{port}"):
                await until_count(hub_log, 2)
            assert link.attempts >= 3


async def test_tls_is_spoken_and_the_certificate_checked(tmp_path: Path) -> None:
    paths = make_certificate(tmp_path)
    async with memory_log(1) as hub_log, memory_log(2) as client:
        entry = await hub_log.append("sealed")
        async with hub_log.listen("127.0.0.1:0", tls=server_tls(paths)) as hub:
            assert hub.urls[0].startswith("wss://")
            async with client.connect(f"wss://localhost:{hub.port}", tls=client_tls(paths)):
                await until_has(client, [entry])
            with pytest.raises(CannotConnect, match="TLS failed"):
                await open_websocket(parse_url(hub.urls[0]))
            with pytest.raises(CannotConnect):
                await open_websocket(parse_url(f"ws://127.0.0.1:{hub.port}"))


async def test_only_named_origins_connect_and_what_is_no_browser() -> None:
    limits = HubLimits(origins=frozenset({"https://app.example.com"}))
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=limits) as hub:
        for headers in ({}, {"Origin": "https://app.example.com"}):
            await (await open_websocket(parse_url(hub.urls[0], headers=headers))).aclose()
        with pytest.raises(CannotConnect, match="403"):
            await open_websocket(parse_url(hub.urls[0], headers={"Origin": "https://evil.example.com"}))


@pytest.mark.parametrize("name", ["a..b", "a" * 64 + ".example.com"])
async def test_a_name_that_no_host_can_have_is_a_hub_that_is_not_reached(name: str) -> None:
    async with memory_log(2) as log, connect(log, f"ws://{name}:9") as link:
        await eventually(lambda: "name" in (link.error or ""))


async def test_what_was_appended_offline_to_a_log_of_many_heads_arrives() -> None:
    """It is named although not all heads are."""
    roots = [sign_entry(signer(3), TOPIC, 1, [], pcf.encode(n)).value for n in range(HEADS_MAX + 300)]
    async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0") as hub:
        for each in (log, client):
            await each.insert_many(roots)
        entry = await client.append("offline")
        async with connect(client, hub.urls[0]):
            await until_count(log, len(roots) + 1)
        assert entry.id in await log.heads()


async def test_server_and_client_at_once_are_one_service() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as first, log.listen("127.0.0.1:0") as second:
        assert first.services[TOPIC] is second.services[TOPIC]
        with pytest.raises(CannotListen, match="in use"):
            async with log.listen(f"127.0.0.1:{first.port}"):
                raise AssertionError
        with pytest.raises(CannotListen, match="name"):
            async with log.listen("a..b:0"):
                raise AssertionError
    async with memory_log(2) as log, connect(log, "ws://127.0.0.1:9"):
        with pytest.raises(LocalProtocolError, match="already"):
            async with connect(log, "ws://127.0.0.1:9"):
                raise AssertionError


async def test_closing_the_hub_sends_out_what_waits() -> None:
    async with memory_log(1) as hub_log, memory_log(2) as client:
        async with hub_log.listen("127.0.0.1:0") as hub:
            port = hub.port
            async with client.connect(hub.urls[0]) as link:
                await eventually(lambda: link.state is not None and link.state.is_pushing)
                entries = await hub_log.append_many(range(200))
                with trio.fail_after(PATIENCE_S):
                    await until_has(client, entries[-1:])
        with pytest.raises(OSError, match="failed"):
            await trio.open_tcp_stream("127.0.0.1", port)


async def test_hub_that_is_away_is_said_to_be_once_and_to_be_there_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_client, "RETRY_FIRST_S", 0.01)
    place = f"127.0.0.1:{free_port()}"
    async with memory_log(1) as log, memory_log(2) as client, client.connect(f"ws://{place}") as link:
        await eventually(lambda: link.attempts > 3)
        async with log.listen(place):
            with trio.fail_after(PATIENCE_S):
                await link.wait_connected()
            await eventually(lambda: "hub reached after all" in caplog.text)
            # Once it is gone, it is said to be away anew.
            records = [record for record in caplog.records if "reached" in record.getMessage()]
            said = [(record.event, record.levelno) for record in records]
            # As any formatter shows it.
            assert f"ws://{place}" in records[0].getMessage() and "Connection refused" in records[0].getMessage()
    assert said[0] == ("hub not reached", logging.WARNING)
    assert set(said[1:-1]) == {("hub not reached", logging.DEBUG)}
    assert said[-1] == ("hub reached after all", logging.INFO)
