"""What we serve beside the reference's API, and how the server behaves as one of HTTP."""

from __future__ import annotations

import h11
import trio
from network_support import PATIENCE_S, eventually, fetch, memory_log, open_stream, read_answer

from gossiplog.archive import line_to_value
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.hub.server import Hub, listen
from gossiplog.web import make_http


async def test_root_is_the_logs() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        await log.append_many(range(50))
        root = await log.root()
        assert (await fetch(hub, "/api/root")).json == {"level": root.level, "hash": root.hash.hex()}


async def test_connections_show_who_is_there_and_what_they_did() -> None:
    async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0") as hub:
        assert (await fetch(hub, "/api/connections")).json == []
        async with client.connect(hub.urls[0]):
            await eventually(lambda: hub.links() and hub.links()[0].is_pushing)
            (link,) = (await fetch(hub, "/api/connections")).json
            assert link["peer"].startswith("ws://127.0.0.1:")
            assert (link["kind"], link["outbound"], link["address"], link["pushing"]) == ("client", False, "127.0.0.1", True)
        await eventually(lambda: hub.links() == [])


async def test_events_bring_each_new_entry() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        await log.append("before")
        stream = await open_stream(hub)
        await stream.send_all(b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        received = b""
        with trio.fail_after(PATIENCE_S):
            while b"as they come" not in received:
                received += await stream.receive_some()
            entries = [await log.append({"n": n}) for n in range(3)]
            while received.count(b"data: ") < 3:
                received += await stream.receive_some()
        assert received.count(b"id: ") == 3
        lines = [line.removeprefix(b"data: ") for line in received.splitlines() if line.startswith(b"data: ")]
        assert [line_to_value(line)[0] for line in lines] == [entry.value for entry in entries]
        await stream.aclose()
        await eventually(lambda: hub.admission.open == 0)
        assert (await fetch(hub, "/api/messages/count")).json == {"count": 4}


async def test_connection_serves_several_requests() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub, await open_stream(hub) as stream:
        client = h11.Connection(h11.CLIENT)
        for path in ("/api/clock", "/api/heads", "/none", "/api/clock"):
            await stream.send_all(
                client.send(h11.Request(method="GET", target=path, headers=[("host", "localhost")])) + client.send(h11.EndOfMessage())
            )
            with trio.fail_after(PATIENCE_S):
                answer = await read_answer(stream, client)
            assert answer.status == (404 if path == "/none" else 200)
            client.start_next_cycle()


async def test_websocket_on_a_connection_that_served_http_is_let_in_as_on_any_other() -> None:
    limits = HubLimits(origins=frozenset({"https://app.example.com"}))
    for origin, status in (("https://app.example.com", b"101"), ("https://evil.example.com", b"403")):
        async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=limits) as hub, await open_stream(hub) as stream:
            await stream.send_all(b"GET /api/clock HTTP/1.1\r\nhost: localhost\r\n\r\n")
            with trio.fail_after(PATIENCE_S):
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
                asked = ("host: localhost", "upgrade: websocket", "connection: upgrade", "sec-websocket-version: 13", f"origin: {origin}")
                lines = ["GET / HTTP/1.1", *asked, "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==", "", ""]
                await stream.send_all("\r\n".join(lines).encode())
                answer = b""
                while b"HTTP/1.1" not in answer:
                    answer += await stream.receive_some()
            assert answer.startswith(b"HTTP/1.1 " + status)


async def test_hub_without_api_says_what_it_speaks() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0", has_api=False) as hub:
        assert (await fetch(hub, "/api/clock")).status == 426


async def test_origins_hold_for_http_as_well() -> None:
    limits = HubLimits(origins=frozenset({"https://app.example.com"}))
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=limits) as hub:
        assert (await fetch(hub, "/api/clock", headers={"origin": "https://evil.example.com"})).status == 403
        answer = await fetch(hub, "/api/clock", headers={"origin": "https://app.example.com"})
        assert answer.headers["access-control-allow-origin"] == "https://app.example.com"
        # A browser asks first whether it may bring a token.
        asking = {"origin": "https://app.example.com", "access-control-request-headers": "authorization"}
        for method, status in (("GET", 200), ("HEAD", 200), ("POST", 200), ("DELETE", 400)):
            asked = {**asking, "access-control-request-method": method}
            assert (await fetch(hub, "/api/clock", method="OPTIONS", headers=asked)).status == status, method


async def follow(hub: Hub, count: int, last_id: str | None = None) -> list[bytes]:
    """Follow a log's events until so many came; return the ids."""
    resumed = "" if last_id is None else f"last-event-id: {last_id}\r\n"
    async with await open_stream(hub) as stream:
        await stream.send_all(f"GET /api/events HTTP/1.1\r\nhost: localhost\r\n{resumed}\r\n".encode())
        received = b""
        with trio.fail_after(PATIENCE_S):
            while received.count(b"\ndata: ") < count or not received.endswith(b"\n\n\r\n"):
                received += await stream.receive_some()
    return [line.partition(b" ")[2] for line in received.splitlines() if line.startswith((b"id: ", b"event: gap"))]


async def test_follower_who_comes_back_gets_what_came_meanwhile_in_the_order_of_arrival() -> None:
    async with memory_log(1) as log, memory_log(2) as other, log.listen("127.0.0.1:0") as hub:
        late = await other.append("late, with a low id")
        entries = await log.append_many(range(30))
        await log.insert(late.value)
        entries += [late, *await log.append_many(range(30))]
        assert await follow(hub, 52, entries[8].id) == [entry.id.encode() for entry in entries[9:]]


async def test_follower_whose_place_is_not_in_the_log_is_told_and_goes_on_from_now() -> None:
    async with memory_log(1) as log, memory_log(2) as other, log.listen("127.0.0.1:0") as hub:
        await log.append_many(range(3))
        elsewhere = await other.append("elsewhere")
        for id in (elsewhere.id, "nonsense"):
            assert await follow(hub, 1, id) == [b"gap"]


async def test_followers_at_different_places_do_not_wait_for_each_other() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub, await open_stream(hub) as live:
        entries = await log.append_many(range(20))
        await live.send_all(b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        with trio.fail_after(PATIENCE_S):
            assert b"200" in await live.receive_some()
        assert len(await follow(hub, 19, entries[0].id)) == 19
        async with trio.open_nursery() as nursery:
            for entry in entries[:-1]:
                nursery.start_soon(follow, hub, 19 - entries.index(entry), entry.id)


async def test_closing_the_hub_ends_streams_of_events() -> None:
    async with memory_log(1) as log:
        with trio.fail_after(PATIENCE_S):
            async with listen([log], "127.0.0.1:0", make_http=make_http) as hub:
                stream = await open_stream(hub)
                await stream.send_all(b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert await stream.receive_some()
        await stream.aclose()
