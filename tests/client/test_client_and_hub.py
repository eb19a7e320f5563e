"""The browser client in Node, in memory, with a hub of ours."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from client_support import node
from interop_support import Reference
from mesh_support import eventually
from network_support import PATIENCE_S, memory_log, signer

import gossiplog
from gossiplog import GossipLog
from gossiplog.net.ground.access import Access, hash_token, make_token
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.hub.server import listen
from gossiplog.web import make_http

TOPIC = "client.example.com"
CLIENT = Path(__file__).parents[2] / "gossiplog" / "web" / "client" / "client.js"


async def open_client(client: Reference, name: str, number: int = 7, topic: str = TOPIC) -> None:
    await client.ask("open", name=name, topic=topic, seed=bytes([number]).hex() * 32)


async def connect(client: Reference, name: str, url: str, **options: Any) -> None:
    await client.ask("connect", name=name, url=url, **options)
    await settle(client, name)


async def settle(client: Reference, name: str) -> None:
    with trio.fail_after(PATIENCE_S):
        await client.ask("settled", name=name)


async def ids_of(log: GossipLog) -> list[str]:
    return [entry.id async for entry in log.iterate()]


async def until_equal(client: Reference, name: str, log: GossipLog) -> None:
    async def is_equal() -> bool:
        ids: list[str] = await client.ask("ids", name=name)
        return ids == await ids_of(log)

    await eventually(is_equal, PATIENCE_S)


async def test_each_side_gets_what_it_lacks_and_then_what_the_other_appends(client: Reference) -> None:
    async with memory_log(1, TOPIC) as log, log.listen("127.0.0.1:0") as hub:
        await log.append_many({"n": n} for n in range(40))
        await open_client(client, "a")
        offline = await client.ask("appendMany", name="a", payloads=[{"offline": n} for n in range(3)])
        await connect(client, "a", hub.urls[0])
        assert await log.count() == 43
        assert [(await log.get(id)).message.payload for id in offline] == [{"offline": 0}, {"offline": 1}, {"offline": 2}]
        assert await client.ask("ids", name="a") == await ids_of(log)

        id = (await log.append({"text": "grüß dich 🌍", "b": b"\x01\x02"})).id
        await until_equal(client, "a", log)
        assert (await client.ask("get", name="a", id=id))["value"] == (await log.get(id)).value.hex()
        theirs = await client.ask("append", name="a", payload={"add": 5})
        await settle(client, "a")
        assert await log.heads() == [theirs]
        state = await client.ask("state", name="a")
        assert state["heads"] == [theirs]
        assert (state["count"], state["heard"], state["sum"]) == (45, 45, 5)


async def test_clients_see_each_other_and_go_on_where_the_hub_came_back(client: Reference) -> None:
    async with memory_log(1, TOPIC) as log:
        async with log.listen("127.0.0.1:0") as hub:
            port = hub.port
            for number, name in enumerate("abc"):
                await open_client(client, name, number + 7)
                await connect(client, name, hub.urls[0])
            for name in "abc":
                await client.ask("append", name=name, payload={"from": name})
            for name in "abc":
                await until_equal(client, name, log)
            assert await log.count() == 3
        await eventually(lambda: is_away(client, "a"))
        for name in "abc":
            await client.ask("append", name=name, payload={"while": "the hub is away"})
        async with log.listen(f"127.0.0.1:{port}"):
            for name in "abc":
                await settle(client, name)
            for name in "abc":
                await until_equal(client, name, log)
            assert await log.count() == 6
            assert len(await log.heads()) == 3


async def is_away(client: Reference, name: str) -> bool:
    return not (await client.ask("link", name=name))["isConnected"]


async def test_a_clock_that_is_set_back_keeps_nothing_from_coming(client: Reference) -> None:
    async with memory_log(1, TOPIC) as log, log.listen("127.0.0.1:0") as hub:
        await open_client(client, "a")
        await connect(client, "a", hub.urls[0])
        for _ in range(2):
            # So many are told by their heads.
            await log.append_many({"n": n} for n in range(300))
            await until_equal(client, "a", log)
            await client.ask("setClock", hours=-1)


async def test_logs_that_have_much_of_each_other_exchange_only_the_difference(client: Reference) -> None:
    async with memory_log(1, TOPIC) as log, log.listen("127.0.0.1:0") as hub:
        await log.append_many(range(1_500))
        await open_client(client, "a")
        await connect(client, "a", hub.urls[0])
        await client.ask("disconnect", name="a")
        await log.append_many({"hub": n} for n in range(300))
        await client.ask("appendMany", name="a", payloads=[{"client": n} for n in range(200)])
        await connect(client, "a", hub.urls[0])
        assert await log.count() == 2_000
        assert await client.ask("ids", name="a") == await ids_of(log)
        assert (await client.ask("state", name="a"))["heard"] == 2_000


async def test_what_apply_raises_about_is_set_aside_and_the_rest_is_applied(client: Reference) -> None:
    async with memory_log(1, TOPIC) as log, log.listen("127.0.0.1:0") as hub:
        await open_client(client, "a")
        await log.append_many([{"add": 1}, {"raise": True, "add": 10}, {"add": 100}])
        await connect(client, "a", hub.urls[0])
        state = await client.ask("state", name="a")
        assert (state["count"], state["sum"]) == (3, 101)
        assert [one["reason"] for one in state["aside"]] == ["an entry that is not liked"]


async def test_ranges_of_ids_are_those_that_were_asked_for(client: Reference) -> None:
    await open_client(client, "a")
    ids = await client.ask("appendMany", name="a", payloads=list(range(300)))
    assert await client.ask("ids", name="a", after=ids[9], limit=2) == ids[10:12]
    assert await client.ask("ids", name="a", before=ids[2], reverse=True) == ids[1::-1]
    assert await client.ask("ids", name="a", reverse=True, limit=280) == ids[:-281:-1]
    assert await client.ask("ids", name="a", after=ids[3], before=ids[5]) == [ids[4]]
    assert "is no id" in await client.ask_in_vain("get", name="a", id="no id")


async def test_presence_goes_both_ways_is_over_in_time_and_comes_back_with_the_connection(client: Reference) -> None:
    async def shows(name: str, states: dict[str, Any]) -> None:
        async def is_so() -> bool:
            return bool(await client.ask("presence", name=name) == states)

        await eventually(is_so, PATIENCE_S)

    async with memory_log(1, TOPIC) as log, log.listen("127.0.0.1:0") as hub, memory_log(2, TOPIC) as ours, ours.connect(hub.urls[0]):
        await open_client(client, "a", 7)
        await open_client(client, "b", 8)
        dids = {name: signer(number).did for name, number in (("a", 7), ("b", 8), ("ours", 2))}
        for name in ("a", "b"):
            await client.ask("connect", name=name, url=hub.urls[0])
        await client.ask("present", name="a", states={"cursor": {"line": 3}, "name": "Ann"}, ttl=60)
        await ours.presence.set({"cursor": [1.5, b"\x01".hex()]}, ttl_s=60)
        both = {dids["a"]: {"cursor": {"line": 3}, "name": "Ann"}, dids["ours"]: {"cursor": [1.5, "01"]}}
        for name in ("a", "b"):
            await shows(name, both)
        await eventually_shows(ours, both)
        change = await client.ask("change", name="b")
        assert both[change["author"]][change["name"]] == change["value"]
        await client.ask("present", name="b", states={"typing": True}, ttl=0.3)
        await eventually_shows(ours, {**both, dids["b"]: {"typing": True}})
        await eventually_shows(ours, both)
        await shows("a", both)
        await client.ask("disconnect", name="a")
        only = {dids["ours"]: both[dids["ours"]]}
        await eventually_shows(ours, only)
        await shows("a", {dids["a"]: both[dids["a"]]})
        await client.ask("connect", name="a", url=hub.urls[0])
        await eventually_shows(ours, both)
        await shows("a", both)
        for number in range(40):
            await client.ask("present", name="a", states={"cursor": number, "name": None}, ttl=60)
        await eventually_shows(ours, {**only, dids["a"]: {"cursor": 39}})
        await client.ask("absent", name="a")
        await eventually_shows(ours, only)
        await shows("b", only)


@pytest.mark.parametrize("path", ["", "/nobody.example.com"])
async def test_why_a_hub_lets_nobody_in_is_told_at_once(path: str, client: Reference) -> None:
    """Node sends no `Origin`, so it is told by a status of HTTP, of which its WebSocket says nothing."""
    rules = {"tokens": {"reader": hash_token(make_token())}, "default": {"tokens": {"reader": ["connect", "pull"]}}}
    limits = HubLimits(access=Access.parse(rules))
    async with memory_log(1, TOPIC) as log, listen([log], "127.0.0.1:0", limits=limits, make_http=make_http) as hub:
        url = hub.urls[0]
        await open_client(client, "a")
        for options, reason in (({}, "takes a token"), ({"token": "wrong"}, "not known")):
            await client.ask("connect", name="a", url=url + path, **options)

            async def is_told(reason: str = reason) -> bool:
                return reason in ((await client.ask("link", name="a"))["error"] or "")

            await eventually(is_told, 5)
            await client.ask("disconnect", name="a")
    began = trio.current_time()
    await client.ask("connect", name="a", url=url)

    async def is_down() -> bool:
        return "no hub answers" in ((await client.ask("link", name="a"))["error"] or "")

    await eventually(is_down, 5)
    assert trio.current_time() - began < 5


async def test_a_proxys_page_of_html_is_no_reason(client: Reference) -> None:
    page = b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n</html>\r\n"
    head = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nAccess-Control-Allow-Origin: *\r\n"

    async def proxy(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(head + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(page) + page)

    async with trio.open_nursery() as nursery, memory_log(1, TOPIC) as log:
        listeners = await nursery.start(partial(trio.serve_tcp, proxy, 0, host="127.0.0.1"))
        url = f"ws://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        await open_client(client, "a")
        await client.ask("connect", name="a", url=url)
        async with log.connect(url) as link:
            for error in (lambda: client.ask("link", name="a"), partial(later, link)):
                said: dict[str, str | None] = {}

                async def is_told(said: dict[str, str | None] = said, error: Any = error) -> bool:
                    said.update(await error())
                    return bool(said["error"])

                await eventually(is_told, 5)
                assert said["error"] is not None
                assert said["error"].endswith("the server refused with HTTP status 502")
        nursery.cancel_scope.cancel()


async def later(link: Any) -> dict[str, str | None]:
    return {"error": link.error}


async def test_what_a_removed_member_appends_is_refused_once_and_the_rest_goes_on(client: Reference) -> None:
    """A page does not know the members. Its hub does, and says by which rule it takes nothing."""
    member, removed = signer(7), signer(1)
    async with gossiplog.open(":memory:", topic=TOPIC, policy=gossiplog.Policy([removed.did]), signer=removed) as log:
        node = await log.grant(member.did)
        async with log.listen("127.0.0.1:0") as hub:
            await open_client(client, "a", 7, log.topic)
            await connect(client, "a", hub.urls[0])
            welcome = await client.ask("append", name="a", payload={"by": "a member"})
            await settle(client, "a")
            assert (await log.standing(welcome)).counts
            revocation = await log.revoke(node.id)
            await until_equal(client, "a", log)
            ids = await client.ask("appendMany", name="a", payloads=[{"by": "nobody"}] * 3)
            await settle(client, "a")

            async def is_told() -> bool:
                refused = (await client.ask("link", name="a"))["refused"]
                return {id for one in refused for id in one["ids"]} >= set(ids[:1])

            await eventually(is_told, PATIENCE_S)
            (first, *_) = (await client.ask("link", name="a"))["refused"]
            assert first["rule"] == "access"
            assert revocation.id in first["reason"]
            await log.append("and on")
            with trio.fail_after(PATIENCE_S):
                while len(await client.ask("ids", name="a")) != await log.count() + 3:
                    await trio.sleep(0.02)
            sessions = hub.links()[0].counts["syncs served"]
            await trio.sleep(0.5)
            assert hub.links()[0].counts["syncs served"] == sessions, "nothing is tried again"
            link = await client.ask("link", name="a")
            assert (link["isConnected"], link["error"]) == (True, None)
            assert not set(ids) & set(await ids_of(log))


async def eventually_shows(log: GossipLog, states: dict[str, Any]) -> None:
    await eventually(lambda: log.presence.states == states, PATIENCE_S)


@pytest.mark.parametrize("is_new_connection", [True, False])
async def test_what_was_over_a_limit_is_taken_once_the_limit_is_lifted(is_new_connection: bool, client: Reference) -> None:
    limited = Access.parse({"default": {"quota": {"entries_per_writer": 1}}})
    async with memory_log(1, TOPIC) as log:
        await open_client(client, "a")
        async with log.listen("127.0.0.1:0", limits=HubLimits(access=limited)) as hub:
            await client.ask("appendMany", name="a", payloads=[1, 2, 3])
            await connect(client, "a", hub.urls[0])
            assert await log.count() == 1
            if not is_new_connection:
                limited.replace(Access.parse({}))
                await client.ask("append", name="a", payload=4)
                await until_equal(client, "a", log)
        if is_new_connection:
            async with log.listen(f"127.0.0.1:{hub.port}"):
                await until_equal(client, "a", log)


async def test_what_nobody_looks_at_is_said_in_the_console() -> None:
    program = """
        const { open, signerFromSeed } = await import(process.argv[1])
        const apply = () => { throw new Error("a fault in apply") }
        const log = await open("t.example", { storage: "memory", signer: await signerFromSeed(new Uint8Array(32)), apply })
        await new Promise((over) => {
            setTimeout(over, 30_000)
            for (const level of ["warn", "error"]) {
                const say = console[level]
                console[level] = (...words) => {
                    say(...words)
                    if (words.join(" ").includes(process.argv[2])) over()
                }
            }
            log.connect(process.argv[2])
        })
        await log.append(1)
        await log.append(2)
        process.exit()
    """
    async with memory_log(1, "other.example") as log, log.listen("127.0.0.1:0") as hub:
        (url,) = hub.urls
        command = [node(), "--no-warnings", "--experimental-websocket", "--input-type=module", "-e", program, str(CLIENT), url]
        ran = await trio.run_process(command, capture_stdout=True, capture_stderr=True)
    lines = ran.stderr.decode().splitlines()
    assert [line.partition(": ")[2] for line in lines if "apply" in line] == ["apply raised, so entries are set aside: a fault in apply"], (
        "once"
    )
    assert any(url in line for line in lines), lines
