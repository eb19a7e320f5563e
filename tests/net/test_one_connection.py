"""Several logs on one WebSocket between our peers: who shares it, what ends one of them, and what ends all.

Source: docs/spec/sync.md, "Several logs on one connection".
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from broadcast_support import forged
from hostile_client import muxed, push
from network_support import eventually, memory_log, signer, slow_to_open, until, until_count, until_equal
from ports import free_port

import gossiplog
from gossiplog.errors import ProtocolNotSupported, StreamReset
from gossiplog.net import HubLimits
from gossiplog.net.ground import admission
from gossiplog.net.ground.access import Access
from gossiplog.net.ground.admission import Admission
from gossiplog.net.ground.protocol_ids import push_protocol, refusals_protocol
from gossiplog.net.hub import client as hub_client
from gossiplog.net.hub import client_connection
from gossiplog.net.hub.client import HubLink, at_topic, connect, fetch_token, open_hub_connections, parse_url
from gossiplog.net.hub.client_connection import LOGS_MAX
from gossiplog.net.hub.exchange import exchange
from gossiplog.net.hub.server import Hub, listen
from gossiplog.net.service import push_stream
from gossiplog.net.service import service as served
from gossiplog.net.transport.muxed import Connection
from gossiplog.web import make_http

ROOMS = [f"room-{number}.example.com" for number in range(50)]


@asynccontextmanager
async def hub_of(*topics: str, limits: HubLimits | None = None) -> AsyncIterator[tuple[Hub, list[gossiplog.GossipLog]]]:
    """A server for logs in memory."""
    async with AsyncExitStack() as stack:
        logs = [await stack.enter_async_context(memory_log(1, topic)) for topic in topics]
        yield await stack.enter_async_context(listen(logs, "127.0.0.1:0", limits=limits)), logs


@asynccontextmanager
async def clients_of(hub: Hub, *topics: str) -> AsyncIterator[tuple[list[gossiplog.GossipLog], list[HubLink]]]:
    """Logs in memory that share their connections, each connected before the next one comes."""
    async with open_hub_connections() as connections, AsyncExitStack() as stack:
        logs, links = [], []
        for topic in topics:
            logs.append(await stack.enter_async_context(memory_log(2, topic)))
            url = at_topic(f"ws://127.0.0.1:{hub.port}", topic)
            links.append(await stack.enter_async_context(connect(logs[-1], url, connections=connections)))
            await eventually(lambda: links[-1].is_connected or links[-1].error)
        yield logs, links


def raw(hub: Hub, topic: str) -> AbstractAsyncContextManager[Connection]:
    return muxed(f"ws://127.0.0.1:{hub.port}/{topic}")


async def test_fifty_logs_of_a_shelf_have_one_connection_and_each_gets_what_it_lacks(tmp_path: Path) -> None:
    async with (
        gossiplog.shelf(tmp_path / "hub", signer=signer(1)) as theirs,
        theirs.listen("127.0.0.1:0") as hub,
        gossiplog.shelf(tmp_path / "own", signer=signer(2)) as ours,
    ):
        for topic in ROOMS:
            async with theirs.open(topic, create=True) as log:
                await log.append(f"of the hub in {topic}")
        async with ours.connect(f"ws://127.0.0.1:{hub.port}", topics=ROOMS):
            for topic in ROOMS:
                async with ours.open(topic) as log, theirs.open(topic) as other:
                    await log.append(f"ours in {topic}")
                    await until_count(other, 2)
                    await until_equal(other, log)
            assert hub.admission.open == 1
            assert len(hub.links()) == 50
            assert {state.peer for state in hub.links()} == {hub.links()[0].peer}
        await eventually(lambda: not hub.admission.open and not hub.links())


async def test_a_colon_in_a_topic_may_be_escaped_or_not_and_a_hash_is() -> None:
    paths = {"a:1": "a:1", "b:2": "b%3A2", "c#3": "c%233"}
    async with hub_of(*paths) as (hub, _), open_hub_connections() as connections, AsyncExitStack() as stack:
        for topic, path in paths.items():
            log = await stack.enter_async_context(memory_log(2, topic))
            link = await stack.enter_async_context(connect(log, f"ws://127.0.0.1:{hub.port}/{path}", connections=connections))
            await link.wait_connected()
        assert hub.admission.open == 1


async def test_what_a_hub_says_of_one_log_is_not_told_of_others_that_dial_at_the_same_time() -> None:
    async with hub_of("there", "other") as (hub, _), open_hub_connections() as connections, AsyncExitStack() as stack:
        links = {}
        for topic in ("gone", "there"):
            log = await stack.enter_async_context(memory_log(2, topic))
            url = at_topic(f"ws://127.0.0.1:{hub.port}", topic)
            links[topic] = await stack.enter_async_context(connect(log, url, connections=connections))
        await eventually(lambda: links["there"].is_connected)
        await eventually(lambda: "404" in (links["gone"].error or ""))
        assert links["there"].attempts == 1


@pytest.mark.slow
async def test_two_hundred_logs_that_are_asked_for_at_once_have_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each side may open 128 streams, and more only for the logs that are there. Here opening one takes the hub a while."""
    slow_to_open(monkeypatch)
    topics = [f"room-{number}" for number in range(200)]
    async with hub_of(*topics) as (hub, _), open_hub_connections() as connections, AsyncExitStack() as stack:
        logs = [await stack.enter_async_context(memory_log(2, topic)) for topic in topics]
        end = trio.Event()

        async def keep(log: gossiplog.GossipLog) -> None:
            async with connect(log, at_topic(f"ws://127.0.0.1:{hub.port}", log.topic), connections=connections) as link:
                await link.wait_connected()
                assert link.attempts == 1
                await end.wait()

        async with trio.open_nursery() as nursery:
            for log in logs:
                nursery.start_soon(keep, log)
            await eventually(lambda: len(hub.links()) == 200)
            assert hub.admission.open == 1
            end.set()


async def test_a_server_that_is_not_reached_is_dialled_once_and_told_by_the_name_of_each_log() -> None:
    nowhere = f"ws://127.0.0.1:{free_port()}"
    async with open_hub_connections() as connections, AsyncExitStack() as stack:
        links = {}
        for topic in ("a", "b"):
            log = await stack.enter_async_context(memory_log(2, topic))
            links[topic] = await stack.enter_async_context(connect(log, at_topic(nowhere, topic), connections=connections))
        for topic, link in links.items():
            await eventually(lambda link=link: link.error)
            assert f"{nowhere}/{topic}: " in (link.error or "")


async def test_presence_of_each_room_goes_over_the_one_connection() -> None:
    async with hub_of("a", "b") as (hub, logs), clients_of(hub, "a", "b") as (own, _):
        for number, log in enumerate(own):
            await log.presence.set({"cursor": number}, ttl_s=60)
        for number, log in enumerate(logs):
            await eventually(lambda log=log, number=number: log.presence.states == {signer(2).did: {"cursor": number}})
        assert hub.admission.open == 1


async def hold(block: AbstractAsyncContextManager[Any], end: trio.Event, *, task_status: trio.TaskStatus[Any]) -> None:
    """Enter a block in a task of its own, and leave it when that is asked for."""
    async with block as value:
        task_status.started(value)
        await end.wait()


async def test_what_a_connection_carries_is_counted_with_the_log_that_it_is_for() -> None:
    async with hub_of("a", "b") as (hub, logs), clients_of(hub, "a", "b") as (own, _):
        await logs[1].append_many(["x" * 1_000] * 20)
        await until_count(own[1], 20)
        for topic, other in ("ab", "ba"):
            service = hub.services[topic]
            (peer,) = service.peers.values()
            counted = service.traffic()
            assert push_protocol(topic) in counted
            assert not any(other in protocol.split("/") for protocol in counted)
            connection = peer.links[0].connection
            # Of refusals and pushes, once all syncs are over.
            await eventually(lambda connection=connection, service=service: service.figures.streams(connection) == 2)
            assert len(connection.streams) >= 4


@pytest.mark.parametrize("gone", [0, 1])
async def test_a_log_that_is_closed_leaves_the_connection_to_the_others(gone: int) -> None:
    topics = ["a", "b", "c"]
    async with hub_of(*topics) as (hub, logs), open_hub_connections() as connections, trio.open_nursery() as nursery:

        @asynccontextmanager
        async def connected(topic: str) -> AsyncIterator[gossiplog.GossipLog]:
            async with memory_log(2, topic) as log, connect(log, f"ws://127.0.0.1:{hub.port}/{topic}", connections=connections) as link:
                await link.wait_connected()
                yield log

        ends = [trio.Event() for _ in topics]
        own = [await nursery.start(hold, connected(topic), end) for topic, end in zip(topics, ends, strict=True)]
        assert hub.admission.open == 1
        ends[gone].set()
        await eventually(lambda: not hub.services[topics[gone]].peers)
        await logs[2].append("still there")
        await until_count(own[2], 1)
        assert hub.admission.open == 1
        async with connected(topics[gone]) as log:
            await logs[gone].append("back")
            await until_count(log, 1)
            assert hub.admission.open == 1
        for end in ends:
            end.set()


@pytest.mark.parametrize("gone", [0, 1])
async def test_a_log_that_the_hub_gives_up_is_lost_alone_and_found_again(gone: int) -> None:
    async with hub_of("c") as (hub, (other,)), memory_log(1, "a") as a, memory_log(1, "b") as b, trio.open_nursery() as nursery:
        ends, served = [trio.Event(), trio.Event()], [a, b]
        for log, end in zip(served, ends, strict=True):
            await nursery.start(hold, hub.logs.pinned(log), end)
        async with clients_of(hub, "a", "b", "c") as (own, links):
            assert hub.admission.open == 1
            ends[gone].set()
            with trio.fail_after(20):
                await links[gone].wait_disconnected()
            await eventually(lambda: "404" in (links[gone].error or ""))
            await other.append("still there")
            await until_count(own[2], 1)
            assert links[1 - gone].attempts == links[2].attempts == 1
            async with hub.logs.pinned(served[gone]):
                await served[gone].append("again")
                await until_count(own[gone], 1)
                assert hub.admission.open == 1
        ends[1 - gone].set()


async def test_a_log_that_is_refused_hears_why_and_the_others_do_not_notice() -> None:
    rules = Access.parse({"logs": {"b": {"anonymous": []}}})
    async with hub_of("a", "b", "c", limits=HubLimits(access=rules)) as (hub, logs), clients_of(hub, "a", "b", "c") as (own, links):
        assert [link.is_connected for link in links] == [True, False, True]
        assert "401" in (links[1].error or "")
        await logs[1].append("secret")
        for number in (0, 2):
            await logs[number].append("open")
            await until_count(own[number], 1)
        assert hub.admission.open == 1 and not hub.services["b"].peers and await own[1].count() == 0
        rules.replace(Access.parse({}))
        await until_count(own[1], 1)
        assert hub.admission.open == 1
        assert links[0].attempts == links[2].attempts == 1


async def test_logs_beyond_what_an_address_may_use_have_connections_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admission, "is_exempt", lambda self, address: False)
    monkeypatch.setattr(admission, "_FURTHER_LOGS", 1)
    topics = list("abcd")
    limits = HubLimits(connections_per_address=2)
    async with hub_of(*topics, limits=limits) as (hub, logs), clients_of(hub, *topics) as (own, _):
        for number, log in enumerate(logs):
            await log.append(number)
            await until_count(own[number], 1)
        assert hub.admission.open == 2


async def test_a_token_of_another_is_another_connection() -> None:
    async with hub_of("a", "b") as (hub, _), open_hub_connections() as connections, AsyncExitStack() as stack:
        for topic, token in (("a", "one"), ("b", "two")):
            log = await stack.enter_async_context(memory_log(2, topic))
            url = f"ws://127.0.0.1:{hub.port}/{topic}"
            link = await stack.enter_async_context(connect(log, url, token=token, connections=connections))
            await eventually(lambda link=link: link.is_connected)
        assert hub.admission.open == 2


async def test_a_ban_in_one_log_is_the_connection_s() -> None:
    async with hub_of("a", "b") as (hub, logs), raw(hub, "a") as connection:
        await connection.open_stream([refusals_protocol("b")])
        assert [len(hub.services[topic].peers) for topic in "ab"] == [1, 1]
        async with memory_log(3, "b") as other:
            stream = await connection.open_stream([push_protocol("b")])
            await push(stream, [forged(await other.append(number)) for number in range(5)])
            with trio.fail_after(20):
                await connection.wait_ended()
        await eventually(lambda: not hub.links())
        assert [await log.count() for log in logs] == [0, 0]


async def test_a_client_whose_push_stream_ended_is_given_up_unless_it_opens_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of the reference does whose entry was too large, or whose application raised."""
    monkeypatch.setattr(served, "STALLED_S", 0.5)
    async with hub_of("a") as (hub, _), raw(hub, "a") as fickle, raw(hub, "a") as too_large, raw(hub, "a") as done:
        for connection, data in ((fickle, b""), (too_large, b"\xff\xff\xff\x7f"), (done, b"")):
            stream = await connection.open_stream([push_protocol("a")])
            await stream.send_all(data)
            stream.close_sending()
        await fickle.open_stream([push_protocol("a")])
        with trio.fail_after(20):
            await too_large.wait_ended()
            await done.wait_ended()
        await eventually(lambda: hub.admission.open == 1)
        assert fickle.end is None


async def test_exchanges_at_the_same_time_share_a_connection_and_each_counts_its_own() -> None:
    topics = [f"room-{number}" for number in range(12)]
    async with (
        hub_of(*topics) as (hub, logs),
        clients_of(hub, *topics[:1]),
        open_hub_connections() as connections,
        AsyncExitStack() as stack,
    ):
        own = [await stack.enter_async_context(memory_log(2, topic)) for topic in topics[1:]]
        for log, other in zip(logs[1:], own, strict=True):
            await log.append_many(["theirs"] * 20)
            await other.append_many(["ours"] * 10)
        found = {}
        most = 0

        async def sync(log: gossiplog.GossipLog) -> None:
            nonlocal most
            url = at_topic(f"ws://127.0.0.1:{hub.port}", log.topic)
            found[log.topic] = await exchange(log, parse_url(url), connections=connections)
            most = max(most, hub.admission.open)

        async with trio.open_nursery() as nursery:
            for log in own:
                nursery.start_soon(sync, log)
        for log, other in zip(logs[1:], own, strict=True):
            done = found[log.topic]
            assert done.is_equal and done.moved == 30 and await log.count() == await other.count() == 30
            assert 3_000 < done.bytes_sent + done.bytes_received < 30_000
        assert most == 2


async def test_what_is_asked_twice_or_is_no_log_or_is_one_too_many_is_refused_and_the_rest_goes_on() -> None:
    async with hub_of("a", "b") as (hub, _), raw(hub, "a") as connection:
        for topic in ("none", "", "x" * 129, "../a", "\x7f", "b/c"):
            with pytest.raises(StreamReset):
                await connection.open_stream([refusals_protocol(topic)])
        with pytest.raises(ProtocolNotSupported):
            await connection.open_stream([push_protocol("b")])
        first = await connection.open_stream([refusals_protocol("b")])
        # The newest one counts, as on the log of the URL.
        await connection.open_stream([refusals_protocol("b")])
        with trio.fail_after(20):
            assert await first.receive_some() == b""
        assert len(hub.services["b"].peers) == 1
        answered = []

        async def ask(number: int) -> None:
            with pytest.raises(StreamReset):
                await connection.open_stream([refusals_protocol(f"none-{number}")])
            answered.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(LOGS_MAX + 20):
                nursery.start_soon(ask, number)
        assert len(answered) == LOGS_MAX + 20
        await connection.open_stream([push_protocol("b")])
        assert not connection.is_over and len(hub.links()) == 2


async def test_no_more_than_so_many_logs_are_used_on_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "LOGS_MAX", 3)
    async with hub_of("a", "b", "c", "d") as (hub, _), raw(hub, "a") as connection:
        for topic in "bc":
            await connection.open_stream([refusals_protocol(topic)])
        with pytest.raises(StreamReset):
            await connection.open_stream([refusals_protocol("d")])
        assert len(hub.links()) == 3


async def test_logs_beyond_a_connection_s_share_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (client_connection, hub_client):
        monkeypatch.setattr(module, "LOGS_MAX", 3)
    topics = list("abcdefg")
    async with hub_of(*topics) as (hub, logs), clients_of(hub, *topics) as (own, links):
        for number, log in enumerate(logs):
            await log.append(number)
            await until_count(own[number], 1)
        connections = [hub.services[topic].links()[0].peer for topic in topics]
        assert [connections.index(each) for each in connections] == [0, 0, 0, 3, 3, 3, 6]
        assert all(link.attempts == 1 for link in links)


async def test_a_client_that_reads_nothing_of_one_log_loses_that_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_stream, "STALLED_S", 0.0)
    async with hub_of("a", "b") as (hub, logs), raw(hub, "a") as connection:
        streams = [await connection.open_stream([refusals_protocol(topic)]) for topic in "ab"]
        pushes = [await connection.open_stream([push_protocol(topic)]) for topic in "ab"]
        peers = hub.services["a"].peers
        await eventually(lambda: all(peer.push is not None for peer in peers.values()))
        while peers:
            await logs[0].append(b"x" * 60_000)
        with trio.fail_after(20):
            assert await streams[0].receive_some() == b""
        await logs[1].append("still there")
        heard = b""
        with trio.fail_after(20):
            while b"still there" not in heard:
                heard += await pushes[1].receive_some()
        assert not connection.is_over


async def test_a_member_that_is_removed_from_one_log_keeps_the_others() -> None:
    member, policy = signer(2), gossiplog.Policy([signer(1).did])
    rules = {"default": {"anonymous": []}, "logs": {"b": {"anonymous": ["connect", "pull", "push"]}}}
    limits = HubLimits(access=Access.parse(rules))
    async with gossiplog.open(":memory:", topic="team.example.com", policy=policy, signer=signer(1)) as log:
        node = (await log.grant(member.did, "write")).id
        async with memory_log(1, "b") as other, listen([log, other], "127.0.0.1:0", limits=limits, make_http=make_http) as hub:
            url = at_topic(f"ws://127.0.0.1:{hub.port}", log.topic)
            token = await fetch_token(parse_url(url, identity=member))
            assert token is not None
            async with muxed(f"{url}?token={token}") as connection:
                streams = [await connection.open_stream([refusals_protocol(topic)]) for topic in (log.topic, "b")]
                await log.revoke(node)
                with trio.fail_after(20):
                    assert await streams[0].receive_some() == b""
                await eventually(lambda: not hub.services[log.topic].peers)
                await connection.open_stream([push_protocol("b")])
                assert not connection.is_over


async def test_a_connection_ends_with_its_last_log() -> None:
    async with hub_of("a", "b") as (hub, _), raw(hub, "a") as connection:
        streams = [await connection.open_stream([refusals_protocol(topic)]) for topic in "ab"]
        streams[0].reset()
        await eventually(lambda: not hub.services["a"].peers)
        with pytest.raises(ProtocolNotSupported):
            await connection.open_stream([push_protocol("a")])
        assert not connection.is_over
        streams[1].close_sending()
        with trio.fail_after(20):
            await connection.wait_ended()
        assert not hub.links()


@contextmanager
def serving(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "gossiplog", "serve", "--dir", str(folder), "--listen", f"127.0.0.1:{port}", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None and json.loads(server.stdout.readline())
            yield server
        finally:
            server.kill()


@pytest.mark.slow
async def test_a_hub_that_is_killed_comes_back_and_all_logs_go_on(tmp_path: Path) -> None:
    port = free_port()
    async with gossiplog.shelf(tmp_path / "hub", signer=signer(1)) as theirs:
        for topic in ROOMS:
            async with theirs.open(topic, create=True):
                pass
    url = f"ws://127.0.0.1:{port}"
    async with gossiplog.shelf(tmp_path / "own", signer=signer(2)) as ours, AsyncExitStack() as stack:
        logs = [await stack.enter_async_context(ours.open(topic, create=True)) for topic in ROOMS]
        async with (
            ours.connect(url),
            memory_log(3, ROOMS[-1]) as reader,
            reader.connect(at_topic(url, ROOMS[-1])),
            trio.open_nursery() as nursery,
        ):

            async def write(log: gossiplog.GossipLog) -> None:
                for number in range(10_000):
                    await log.append(number)
                    await trio.sleep(0.1)

            with serving(tmp_path / "hub", port) as server:
                for log in logs:
                    nursery.start_soon(write, log)
                await until(reader, is_beyond(reader, 5))
                server.kill()
                server.wait()
            with serving(tmp_path / "hub", port):
                await until(reader, is_beyond(reader, 5 + await logs[-1].count()))
                nursery.cancel_scope.cancel()
        with serving(tmp_path / "hub", port):
            async with ours.connect(url):
                for log in logs:
                    async with memory_log(3, log.topic) as reader, reader.connect(at_topic(url, log.topic)):
                        await until_equal(log, reader)


def is_beyond(log: gossiplog.GossipLog, count: int) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return await log.count() >= count

    return look
