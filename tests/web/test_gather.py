"""One server shows the facts of several, gap-free whatever becomes of their connections, and an entry's way over all of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from glass_support import following, seen_log
from network_support import PATIENCE_S, eventually, fetch, free_port, until_equal

from gossiplog.glass import Fact, entry_way
from gossiplog.gossip_log import GossipLog
from gossiplog.net.hub.server import Hub, listen
from gossiplog.net.service.registry import open_service
from gossiplog.web import make_http
from gossiplog.web.glass import Gather, GlassSettings


@asynccontextmanager
async def watching(log: GossipLog, *urls: str) -> AsyncIterator[tuple[Hub, Gather]]:
    """Serve a log, and show these servers beside it."""
    gather = Gather(urls)
    make = partial(make_http, glass=GlassSettings(has_page=True, gather=gather))
    async with gather.running(), listen([log], "127.0.0.1:0", make_http=make) as hub:
        yield hub, gather


async def test_way_of_an_entry_over_three_servers_is_told_by_one() -> None:
    async with (
        seen_log(1) as first,
        seen_log(2) as middle,
        seen_log(3) as last,
        middle.listen("127.0.0.1:0") as hub,
        last.listen("127.0.0.1:0") as end,
        first.connect(hub.urls[0]),
        last.connect(hub.urls[0]),
        watching(first, hub.urls[0], end.urls[0]) as (page, gather),
    ):
        await eventually(lambda: all(one.is_alive for one in gather.followed) and len(hub.links()) == 2)
        async with following(page, path="/api/glass/facts") as seen:
            await seen.until(lambda: len({fact["node"] for fact in seen.all("start")}) == 3)
            entry = await first.append("from the first")
            await seen.until(lambda: len(seen.all("deliver", message=entry.id)) == 2)
        nodes = (await fetch(page, "/api/glass/nodes")).json
        assert [node["kind"] for node in nodes] == ["us", "server", "server"]
        assert all(node["alive"] for node in nodes)
        us, hub_node, end_node = (node["node"] for node in nodes)
        names = {hub.urls[0]: hub_node}
        way = entry_way(entry.id, map(Fact.from_record, seen.facts), names)
        assert [(had.node, had.way) for had in way] == [(us, "append"), (hub_node, "push"), (end_node, "push")]
        assert way[0].sent == [("push", hub_node)] and way[2].peer == hub_node
        assert way[0].at_s is not None and way[2].at_s is not None and way[0].at_s <= way[2].at_s
        await until_equal(first, last)
        roots = {node["node"]: node["root"] for node in (await fetch(page, "/api/glass/nodes")).json}
        assert roots[us] == (await first.root()).hash.hex()


async def test_server_whose_connection_is_lost_leaves_no_gap() -> None:
    port = free_port()
    async with seen_log(1) as log, seen_log(2) as other, open_service(other), watching(log, f"ws://127.0.0.1:{port}") as (page, gather):
        (followed,) = gather.followed
        async with following(page, path="/api/glass/facts") as seen:
            for _ in range(3):
                await other.append("while nobody listens")
                async with other.listen(f"127.0.0.1:{port}"):
                    entry = await other.append("while it does")
                    await seen.until_fact("publish", message=entry.id)
                await eventually(lambda: not followed.is_alive)
            assert followed.error
        assert not seen.all("fault")
        assert [fact["seq"] for fact in seen.facts if fact["node"] == followed.node] == list(
            range(sum(fact["node"] == followed.node for fact in seen.facts))
        )


async def test_server_that_was_started_anew_is_a_gap() -> None:
    port = free_port()
    async with (
        seen_log(1) as log,
        seen_log(2) as other,
        watching(log, f"http://127.0.0.1:{port}") as (page, _),
        following(page, path="/api/glass/facts") as seen,
    ):
        async with other.listen(f"127.0.0.1:{port}"):
            await seen.until(lambda: any(fact["node"] != seen.hello["node"] for fact in seen.facts))
        async with other.listen(f"127.0.0.1:{port}"):
            gap = await seen.until_fact("fault", type="gap")
        assert gap["node"] != seen.hello["node"]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nevent: hello\ndata: 7\n\n",
        b"HTTP/1.1 200 OK\r\n\r\nevent: facts\ndata: [" + b"[" * 10_000 + b"\n\n",
        b'HTTP/1.1 200 OK\r\n\r\nevent: facts\ndata: [{"kind": 1}]\n\n',
        b"HTTP/1.1 200 OK\r\n\r\n" + b"data: " + b"x" * 9_000_000,
    ],
)
async def test_liar_harms_nobody_and_is_named(answer: bytes) -> None:
    async def lie(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            try:
                await stream.send_all(answer)
            except trio.BrokenResourceError:
                return

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, lie, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        async with seen_log(1) as log, watching(log, f"ws://127.0.0.1:{port}/?token=secret") as (page, gather):
            await eventually(lambda: gather.followed[0].error)
            async with following(page, path="/api/glass/facts") as seen:
                entry = await log.append("ours")
                await seen.until_fact("publish", message=entry.id)
            node = (await fetch(page, "/api/glass/nodes")).json[1]
            assert node["error"] and "secret" not in json.dumps(node)
        nursery.cancel_scope.cancel()


async def test_alone_a_server_shows_itself() -> None:
    async with seen_log(1) as log, log.listen("127.0.0.1:0") as hub:
        with trio.fail_after(PATIENCE_S):
            (us,) = (await fetch(hub, "/api/glass/nodes")).json
        assert us["kind"] == "us" and us["entries"] == 0
        async with following(hub, path="/api/glass/facts") as seen:
            entry = await log.append("a")
            await seen.until_fact("publish", message=entry.id)
