"""One server shows the facts of several, gap-free whatever becomes of their connections, and an entry's way over all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from glass_support import following, seen_log, way_of
from hypothesis import given
from hypothesis import strategies as st
from loop_watch import watching_loop
from network_support import PATIENCE_S, TOPIC, eventually, fetch, until_equal
from ports import free_port

from gossiplog.glass import Fact
from gossiplog.glass.fact import BYTES_MAX
from gossiplog.gossip_log import GossipLog
from gossiplog.net.hub.server import Hub, listen
from gossiplog.net.service.service import open_service
from gossiplog.web import make_http
from gossiplog.web.glass import FactGatherer, GlassSettings
from gossiplog.web.glass.following import _Events


@asynccontextmanager
async def watching(log: GossipLog, *urls: str) -> AsyncIterator[tuple[Hub, FactGatherer]]:
    """Serve a log, and show these servers beside it."""
    gather = FactGatherer(urls)
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
        way = way_of(entry.id, map(Fact.from_record, seen.facts))
        assert [(had.node, had.way) for had in way] == [(us, "append"), (hub_node, "push"), (end_node, "push")]
        assert way[0].sent == [("push", hub.urls[0])] and way[2].peer == hub.urls[0]
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


OK = b"HTTP/1.1 200 OK\r\n\r\n"
HELLO = b'event: hello\ndata: {"node":"n","topic":"' + TOPIC.encode() + b'","now":1}\n\n'


def told(id: bytes = b"abc-1", **columns: str) -> bytes:
    """An answer with one fact, some of whose columns are this text."""
    record = {"scenario": f'"{TOPIC}"', "router": '"r"', "seq": "1", "time_s": "1.5", "kind": '"full"', "node": '"n"', **columns}
    text = ",".join(f'"{name}":{value}' for name, value in record.items())
    return OK + HELLO + b"id: " + id + b"\nevent: facts\ndata: [{" + text.encode() + b"}]\n\n"


HUGE = "9" * 400
LIES = {
    "404": b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
    "a redirect": b"HTTP/1.1 307 Elsewhere\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
    "no HTTP": b"SSH-2.0-OpenSSH\r\n",
    "a hello that is a number": OK + b"event: hello\ndata: 7\n\n",
    "a hello with a number of 400 digits": OK + HELLO.replace(b":1}", f":{HUGE}}}".encode()),
    "a hello with NaN": OK + HELLO.replace(b":1}", b":NaN}"),
    "a hello with half a surrogate": OK + HELLO.replace(b'"n"', b'"\\ud800"'),
    "a hello whose node is deep": OK + HELLO.replace(b'"n"', b"[" * 900 + b"]" * 900),
    "a hello whose node is long": OK + HELLO.replace(b'"n"', b'"' + b"x" * 10_000 + b'"'),
    "facts before a hello": OK + told().removeprefix(OK + HELLO),
    "a gap before a hello": OK + b"event: gap\ndata: {}\n\n",
    "deep facts": OK + HELLO + b"event: facts\ndata: [" + b"[" * 10_000 + b"\n\n",
    "a kind that is a number": told(kind="1"),
    "a time of 400 digits": told(time_s=HUGE),
    "a time that is NaN": told(time_s="NaN"),
    "a time that is infinite": told(time_s="1e999"),
    "a count of 400 digits": told(kind='"root"', count=HUGE),
    "half a surrogate": told(reason='"\\udc00"'),
    "not UTF-8": told().replace(b'"full"', b'"\xff"'),
    "an id with CR": told(b"abc\r-1"),
    "an id that is not ASCII": told("ü-1".encode()),
    "a long id": told(b"1" * 10_000),
    "a fact of another server": told(node='"somebody"'),
    "a fact of another topic": told(scenario='"other"'),
    "a fact of 100 kB": told(reason='"' + "x" * 100_000 + '"'),
    "an event of 9 MB": OK + b"data: " + b"x" * 9_000_000,
    "a whole event of 9 MB": OK + HELLO + b"event: facts\ndata: [" + b" " * 9_000_000 + b"]\n\n",
}


@asynccontextmanager
async def lying(*pieces: bytes) -> AsyncIterator[int]:
    """Serve everybody the same bytes, piece by piece; give the port."""

    async def lie(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            try:
                for piece in pieces:
                    await stream.send_all(piece)
            except trio.BrokenResourceError:
                return

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, lie, 0, host="127.0.0.1"))
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("form", LIES)
async def test_liar_harms_nobody_and_is_named(form: str) -> None:
    async with (
        lying(LIES[form]) as port,
        seen_log(1) as log,
        watching(log, f"ws://127.0.0.1:{port}/?token=secret") as (page, gather),
    ):
        await eventually(lambda: gather.followed[0].error)
        async with following(page, path="/api/glass/facts") as seen:
            entry = await log.append("ours")
            await seen.until_fact("publish", message=entry.id)
            assert not [fact for fact in seen.facts if fact["node"] != seen.hello["node"]]
        for path in ("nodes", "links"):
            answer = await fetch(page, f"/api/glass/{path}")
            assert answer.status == 200 and b"secret" not in answer.body
        error = (await fetch(page, "/api/glass/nodes")).json[1]["error"]
        assert error and len(error) <= 300


@given(st.lists(st.binary(max_size=20), max_size=8), st.integers(1, 30))
def test_events_are_the_same_however_they_are_cut(parts: list[bytes], step: int) -> None:
    data = b"\n\n".join([b"data: " + part for part in parts])
    whole, cut = _Events(), _Events()
    expected = list(whole.feed(data))
    found = [event for at in range(0, len(data), step) for event in cut.feed(data[at : at + step])]
    assert found == expected


async def test_what_a_watched_server_says_is_read_in_turns_and_in_linear_time() -> None:
    """Single bytes behind much of an event, chunks of one byte, and starts after as many connections as are remembered."""
    pairs = [told(kind=f'"{kind}"', peer=f'"{n}"').removeprefix(OK + HELLO) for kind in ("connect", "start") for n in range(5_000)]
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(HELLO), HELLO) + b"1\r\n:\r\n" * 40_000
    answers = ([OK + HELLO + b"".join(pairs)], [chunked], [OK + HELLO + b"data: " + b"x" * 250_000, *[b"y"] * 1_500])
    for pieces in answers:
        async with seen_log(1) as log, lying(*pieces) as port:
            with watching_loop() as held:
                async with watching(log, f"ws://127.0.0.1:{port}") as (_, gather):
                    await eventually(lambda: gather.followed[0].error)
            assert held == []


async def test_what_a_watched_server_says_takes_bounded_memory() -> None:
    fact = told(reason='"' + "\\u2028" * 4_000 + '"').removeprefix(OK + HELLO)
    async with (
        seen_log(1) as log,
        lying(OK + HELLO, *[fact * 20] * 100) as port,
        watching(log, f"ws://127.0.0.1:{port}") as (_, gather),
    ):
        await eventually(lambda: gather.followed[0].error)
        ring = gather.board(TOPIC)
        assert 600 < len(ring) < 1_000 and sum(fact.weight() for fact in ring.facts()) <= BYTES_MAX


async def test_alone_a_server_shows_itself() -> None:
    async with seen_log(1) as log, log.listen("127.0.0.1:0") as hub:
        with trio.fail_after(PATIENCE_S):
            (us,) = (await fetch(hub, "/api/glass/nodes")).json
        assert us["kind"] == "us" and us["entries"] == 0
        async with following(hub, path="/api/glass/facts") as seen:
            entry = await log.append("a")
            await seen.until_fact("publish", message=entry.id)
