"""The logs of the browser client that share a WebSocket with a server: who does, what ends one of them, and what ends all.

Source: docs/spec/sync.md, "Several logs on one connection".
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from interop_support import Reference, install_reference, run_reference
from mesh_support import eventually
from network_support import PATIENCE_S, memory_log, signer, slow_to_open, until_count
from ports import free_port
from test_client_and_hostile_hub import hostile_hub, pushed

from gossiplog import GossipLog
from gossiplog.codec import pcf
from gossiplog.codec.framing import encode_frame
from gossiplog.entry import sign_entry
from gossiplog.net.ground.access import Access
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.ground.protocol_ids import push_protocol, reconcile_protocol, refusals_protocol
from gossiplog.net.hub.client_connection import LOGS_MAX
from gossiplog.net.hub.server import Hub, listen
from gossiplog.net.transport.muxed import Connection, PromptHandler, Stream
from gossiplog.reconcile.messages import Result, encode
from gossiplog.tree.node import Node
from gossiplog.web import make_http

ROOMS = [f"room-{number}.example.com" for number in range(50)]


@asynccontextmanager
async def hub_of(
    *topics: str, limits: HubLimits | None = None, address: str = "127.0.0.1:0"
) -> AsyncIterator[tuple[Hub, dict[str, GossipLog]]]:
    """A server for logs in memory."""
    async with AsyncExitStack() as stack:
        logs = {topic: await stack.enter_async_context(memory_log(1, topic)) for topic in topics}
        yield await stack.enter_async_context(listen([*logs.values()], address, limits=limits, make_http=make_http)), logs


def at(hub: Hub, topic: str) -> str:
    return f"ws://127.0.0.1:{hub.port}/{topic}"


async def open_log(client: Reference, topic: str, name: str | None = None) -> None:
    await client.ask("open", name=name or topic, topic=topic, seed="07" * 32)


async def join(client: Reference, hub: Hub, *topics: str) -> None:
    """Open logs by the names of their topics, and connect all of them at once."""
    for topic in topics:
        await open_log(client, topic)
    for topic in topics:
        await client.ask("connect", name=topic, url=at(hub, topic))


async def settle(client: Reference, *names: str) -> None:
    with trio.fail_after(PATIENCE_S):
        for name in names:
            await client.ask("settled", name=name)


async def link_of(client: Reference, name: str) -> dict[str, Any]:
    found: dict[str, Any] = await client.ask("link", name=name)
    return found


async def until_link(client: Reference, name: str, holds: Callable[[dict[str, Any]], bool]) -> None:
    async def look() -> bool:
        return holds(await link_of(client, name))

    await eventually(look, PATIENCE_S)


async def until_error(client: Reference, name: str, text: str) -> None:
    await until_link(client, name, lambda link: text in (link["error"] or ""))


async def until_has(client: Reference, name: str, id: str) -> None:
    async def look() -> bool:
        return id in await client.ask("ids", name=name)

    await eventually(look, PATIENCE_S)


async def both_ways(client: Reference, log: GossipLog) -> None:
    """See that a log still gets what each side appends."""
    await until_has(client, log.topic, (await log.append("of the hub")).id)
    id = await client.ask("append", name=log.topic, payload="of the page")

    async def look() -> bool:
        return id in [entry.id async for entry in log.iterate()]

    await eventually(look, PATIENCE_S)


async def test_fifty_logs_have_one_connection_and_each_gets_what_it_lacks(client: Reference) -> None:
    async with hub_of(*ROOMS) as (hub, logs):
        for topic, log in logs.items():
            await log.append(f"of the hub in {topic}")
        await join(client, hub, *ROOMS)
        await settle(client, *ROOMS)
        for log in logs.values():
            await both_ways(client, log)
            assert await log.count() == 3
        assert hub.admission.open == 1
        assert len(hub.links()) == 50
        assert len({state.peer for state in hub.links()}) == 1
        for topic in ROOMS:
            await client.ask("disconnect", name=topic)
        await eventually(lambda: not hub.admission.open and not hub.links())


@pytest.mark.slow
async def test_logs_beyond_256_share_the_next_connection(client: Reference) -> None:
    topics = [f"room-{number}" for number in range(LOGS_MAX + 14)]
    async with hub_of(*topics) as (hub, logs):
        await join(client, hub, *topics)
        await settle(client, *topics)
        assert len(hub.links()) == len(topics) and hub.admission.open == 2
        await both_ways(client, logs[topics[-1]])


@pytest.mark.parametrize("refused_first", [True, False])
async def test_a_log_that_is_refused_hears_why_and_the_others_do_not_notice(refused_first: bool, client: Reference) -> None:
    rules = Access.parse({"logs": {"secret": {"anonymous": []}}})
    topics = ["none", "secret", "a", "b"] if refused_first else ["a", "none", "secret", "b"]
    async with hub_of("a", "b", "secret", limits=HubLimits(access=rules)) as (hub, logs):
        await join(client, hub, *topics)
        await settle(client, "a", "b")
        await until_error(client, "secret", "takes a token")
        await until_error(client, "none", "no log /none")
        for topic in ("a", "b"):
            await both_ways(client, logs[topic])
            assert (await link_of(client, topic))["error"] is None
        assert len(hub.links()) == 2 and hub.links()[0].peer == hub.links()[1].peer
        rules.replace(Access.parse({}))
        await settle(client, "secret")
        await both_ways(client, logs["secret"])
        assert len({state.peer for state in hub.links()}) == 1


@pytest.mark.parametrize("gone", ["a", "b"])
async def test_a_log_that_is_closed_leaves_the_connection_to_the_others(gone: str, client: Reference) -> None:
    async with hub_of("a", "b", "c") as (hub, logs):
        await join(client, hub, "a", "b", "c")
        await settle(client, "a", "b", "c")
        await client.ask("disconnect", name=gone)
        await eventually(lambda: not hub.services[gone].peers)
        await both_ways(client, logs["c"])
        assert hub.admission.open == 1
        await client.ask("connect", name=gone, url=at(hub, gone))
        await settle(client, gone)
        await both_ways(client, logs[gone])
        assert hub.admission.open == 1


@pytest.mark.parametrize("gone", [0, 1])
async def test_a_log_that_the_hub_gives_up_is_lost_alone_and_found_again(gone: int, client: Reference) -> None:
    async with (
        hub_of("c") as (hub, logs),
        memory_log(1, "a") as a,
        memory_log(1, "b") as b,
        hub.logs.pinned([b, a][gone]),
    ):
        async with hub.logs.pinned([a, b][gone]):
            await join(client, hub, "a", "b", "c")
            await settle(client, "a", "b", "c")
            assert hub.admission.open == 1
        topic = "ab"[gone]
        await until_error(client, topic, "no log")
        for log in (logs["c"], [b, a][gone]):
            await both_ways(client, log)
            assert (await link_of(client, log.topic))["isConnected"]
        async with hub.logs.pinned([a, b][gone]):
            await both_ways(client, [a, b][gone])
            assert len({state.peer for state in hub.links()}) == 1


async def test_a_hub_that_comes_back_has_one_connection_again(client: Reference) -> None:
    port, topics = free_port(), ROOMS[:10]
    async with hub_of(*topics, address=f"127.0.0.1:{port}") as (hub, _):
        await join(client, hub, *topics)
        await settle(client, *topics)
    for topic in topics:
        await until_link(client, topic, lambda link: not link["isConnected"])
        await client.ask("append", name=topic, payload="while it is away")
    async with hub_of(*topics, address=f"127.0.0.1:{port}") as (hub, logs):
        await settle(client, *topics)
        for topic in topics:
            assert await logs[topic].count() == 1
        assert hub.admission.open == 1


async def test_a_server_that_is_not_reached_is_dialled_once_and_all_are_told(client: Reference) -> None:
    dialled = 0

    async def hang_up(stream: trio.SocketStream) -> None:
        nonlocal dialled
        dialled += b"Upgrade" in await stream.receive_some(4_096)
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listener, *_ = await nursery.start(partial(trio.serve_tcp, hang_up, 0, host="127.0.0.1"))
        for topic in ROOMS:
            await open_log(client, topic)
        for topic in ROOMS:
            await client.ask("connect", name=topic, url=f"ws://127.0.0.1:{listener.socket.getsockname()[1]}/{topic}")
        for topic in ROOMS:
            await until_error(client, topic, "no hub answers")
        for topic in ROOMS:
            await client.ask("disconnect", name=topic)
        nursery.cancel_scope.cancel()
    # Each tries again after half a second and more, together with those that come meanwhile.
    assert dialled <= 25


async def test_another_token_and_another_log_of_the_same_topic_have_a_connection_of_their_own(client: Reference) -> None:
    async with hub_of("a", "b") as (hub, logs):
        for name, topic, token in (("a", "a", None), ("b", "b", "one"), ("again", "a", None)):
            await open_log(client, topic, name)
            await client.ask("connect", name=name, url=at(hub, topic), **({} if token is None else {"token": token}))
            await settle(client, name)
        assert hub.admission.open == 3
        id = (await logs["a"].append("for both")).id
        await until_has(client, "a", id)
        await until_has(client, "again", id)


async def test_a_colon_in_a_topic_may_be_escaped_or_not_and_a_hash_is(client: Reference) -> None:
    async with hub_of("a:1", "b:2", "c#3") as (hub, logs):
        await open_log(client, "c#3", "in vain")
        assert "no URL of a hub" in await client.ask_in_vain("connect", name="in vain", url=at(hub, "c#3"))
        for topic, path in (("a:1", "a:1"), ("b:2", "b%3A2"), ("c#3", "c%233")):
            await open_log(client, topic)
            await client.ask("connect", name=topic, url=at(hub, path))
            await settle(client, topic)
            await both_ways(client, logs[topic])
        assert hub.admission.open == 1


async def test_presence_and_refusals_of_each_log_go_over_the_one_connection(client: Reference) -> None:
    rules = Access.parse({"logs": {"b": {"anonymous": ["connect", "pull"]}}})
    async with hub_of("a", "b", limits=HubLimits(access=rules)) as (hub, logs):
        await join(client, hub, "a", "b")
        await settle(client, "a", "b")
        await client.ask("present", name="a", states={"cursor": 1}, ttl=60)
        await eventually(lambda: logs["a"].presence.states == {signer(7).did: {"cursor": 1}})
        id = await client.ask("append", name="b", payload="not welcome")
        await until_link(client, "b", lambda link: any(id in one["ids"] for one in link["refused"]))
        assert (await link_of(client, "a"))["refused"] == []
        assert logs["b"].presence.states == {} and hub.admission.open == 1
        await client.ask("disconnect", name="a")
        await eventually(lambda: logs["a"].presence.states == {})
        assert (await link_of(client, "b"))["isConnected"]


async def test_more_logs_than_a_connection_takes_have_connections_of_their_own(client: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    from gossiplog.net.hub import client_connection

    monkeypatch.setattr(client_connection, "LOGS_MAX", 4)
    async with hub_of(*ROOMS[:6]) as (hub, logs):
        await join(client, hub, *ROOMS[:6])
        await settle(client, *ROOMS[:6])
        for log in logs.values():
            await both_ways(client, log)
        assert hub.admission.open == 3


@pytest.mark.slow
async def test_two_hundred_logs_that_are_asked_for_at_once_have_one_connection(client: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each side may open 128 streams, and more only for the logs that are there. Here opening one takes the hub a while."""
    slow_to_open(monkeypatch)
    topics = [f"room-{number}" for number in range(200)]
    async with hub_of(*topics) as (hub, _):
        await join(client, hub, *topics)
        await settle(client, *topics)
        assert hub.admission.open == 1
        assert len(hub.links()) == 200


async def push_nothing(_: Connection, stream: Stream) -> None:
    await trio.sleep_forever()


async def reconcile_nothing(_: Connection, stream: Stream) -> None:
    await stream.receive_some()
    await stream.send_all(encode(Result(Node(0, None, bytes(16)))))


async def refuse_nothing(_: Connection, stream: Stream) -> None:
    await stream.send_all(b"")
    await trio.sleep_forever()


def served(topic: str, push: Callable[[Connection, Stream], Awaitable[None]] = push_nothing) -> dict[str, Any]:
    """What a hub of our own kind serves for a log, in which there is nothing."""
    return {push_protocol(topic): push, reconcile_protocol(topic): reconcile_nothing, refusals_protocol(topic): refuse_nothing}


async def test_a_log_in_which_the_hub_breaks_the_protocol_is_lost_alone(client: Reference) -> None:
    async def push_garbage(_: Connection, stream: Stream) -> None:
        other = sign_entry(signer(9), "a", 1, [], pcf.encode("of another log"))
        await stream.send_all(encode_frame(pushed(other)))
        await trio.sleep_forever()

    async with hostile_hub({**served("a"), **served("b", push_garbage)}) as url:
        for topic in "ab":
            await open_log(client, topic)
            await client.ask("connect", name=topic, url=f"{url}/{topic}")
        await until_error(client, "b", "is no entry of this log")
        link = await link_of(client, "a")
        assert link["isConnected"] and link["error"] is None


async def test_a_hub_that_declines_has_a_connection_for_each_log(client: Reference) -> None:
    dials: set[Connection] = set()

    async def push(connection: Connection, stream: Stream) -> None:
        dials.add(connection)
        await trio.sleep_forever()

    handlers = {protocol: handler for topic in "abc" for protocol, handler in served(topic, push).items() if "refusals" not in protocol}
    async with hostile_hub(handlers) as url:
        for topic in "abc":
            await open_log(client, topic)
            await client.ask("connect", name=topic, url=f"{url}/{topic}")
        for topic in "abc":
            await until_link(client, topic, lambda link: link["isConnected"] and link["isLevel"])
        await eventually(lambda: len(dials) == 3)


@pytest.mark.slow
async def test_a_hub_that_does_not_answer_for_a_log_is_asked_on_a_connection_of_its_own(client: Reference) -> None:
    asked: list[Connection] = []

    async def say_nothing(connection: Connection, stream: Stream) -> None:
        asked.append(connection)
        await trio.sleep_forever()

    handlers: dict[str, Any] = {**served("a"), **served("b")}
    async with hostile_hub(handlers) as url:
        await open_log(client, "a")
        await client.ask("connect", name="a", url=f"{url}/a")
        await until_link(client, "a", lambda link: link["isLevel"])
        handlers[refusals_protocol("b")] = PromptHandler(say_nothing, is_deliberate=True)
        await open_log(client, "b")
        await client.ask("connect", name="b", url=f"{url}/b")
        await until_link(client, "b", lambda link: link["isConnected"] and link["isLevel"])
        await eventually(lambda: len(asked) == 2)
        assert asked[0] is not asked[1]
        assert (await link_of(client, "a"))["isConnected"]


@pytest.mark.slow
async def test_the_references_server_has_a_connection_for_each_log(client: Reference) -> None:
    """It knows neither refusals nor reconciliations: each log is told so, and it goes on serving its own client."""
    install_reference()
    async with run_reference("hub.mjs") as reference, run_reference("hub.mjs") as other:
        port = free_port()
        await reference.ask("open", log="theirs", topic="a", seed="08" * 32)
        await reference.ask("listen", log="theirs", port=port)
        await other.ask("open", log="client", topic="a", seed="09" * 32)
        for topic in ("a", "b"):
            await open_log(client, topic)
            await client.ask("connect", name=topic, url=f"ws://127.0.0.1:{port}/{topic}")
        for topic in ("a", "b"):
            await until_error(client, topic, "does not speak")
        assert (await reference.ask("state", log="theirs"))["faults"] == []
        await other.ask("connect", log="client", url=f"ws://127.0.0.1:{port}")
        await other.ask("append", log="client", payloads=[pcf.encode("still served").hex()])

        async def is_there() -> bool:
            return (await reference.ask("state", log="theirs"))["received"] != {}

        await eventually(is_there, PATIENCE_S)


@pytest.mark.slow
async def test_a_hub_that_is_killed_again_and_again_loses_nothing_of_any_log(client: Reference, tmp_path: Path) -> None:
    topics, port = ROOMS[:8], free_port()
    command = [sys.executable, "-m", "gossiplog", "serve", "--dir", str(tmp_path), "--listen", f"127.0.0.1:{port}"]
    import gossiplog

    async with gossiplog.shelf(tmp_path, signer=signer(1)) as shelf:
        for topic in topics:
            async with shelf.open(topic, create=True):
                await open_log(client, topic)
                await client.ask("connect", name=topic, url=f"ws://127.0.0.1:{port}/{topic}")
    written: dict[str, list[str]] = {topic: [] for topic in topics}
    for round_ in range(3):
        async with trio.open_nursery() as nursery:
            process = await nursery.start(partial(trio.run_process, command, capture_stdout=True, capture_stderr=True, check=False))
            for topic in topics:
                await until_link(client, topic, lambda link: link["isConnected"])
                written[topic].append(await client.ask("append", name=topic, payload={"add": round_}))
            if round_ == 2:
                await settle(client, *topics)
            process.kill()
        for topic in topics:
            await until_link(client, topic, lambda link: not link["isConnected"])
    async with gossiplog.shelf(tmp_path) as shelf:
        for topic in topics:
            async with shelf.open(topic) as log:
                assert [entry.id async for entry in log.iterate()] == written[topic]
                await until_count(log, 3)
