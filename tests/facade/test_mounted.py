"""`gossiplog.asgi` under real servers: uvicorn on asyncio, hypercorn on trio."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import Any

import httpx
import hypercorn.trio
import pytest
import trio
import uvicorn
from hypercorn.config import Config
from network_support import TOPIC, memory_log, signer, until_equal, until_has
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, RejectConnection, TextMessage
from wsproto.events import Request as Upgrade

import gossiplog
from gossiplog import aio
from gossiplog.archive import entry_to_line
from gossiplog.cli.posting import Poster
from gossiplog.codec import pcf
from gossiplog.entry import VALUE_BYTES_DEFAULT, sign_entry
from gossiplog.errors import LocalProtocolError
from gossiplog.net import HubLimits
from gossiplog.net.ground.access import Access

PATIENCE_S = 60.0


@asynccontextmanager
async def aio_log(number: int, topic: str = TOPIC) -> AsyncIterator[aio.GossipLog]:
    async with aio.open(":memory:", topic=topic, signer=signer(number)) as log:
        yield log


@asynccontextmanager
async def under_uvicorn(app: ASGIApp, **options: Any) -> AsyncIterator[int]:
    """Serve an application, and give the port."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="wsproto", timeout_graceful_shutdown=2, **options))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        assert not serving.done()
        await asyncio.sleep(0.005)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await serving


def mounted(*logs: Any, **options: Any) -> Starlette:
    """An application with a handler of its own beside the log."""

    async def append(request: Request) -> JSONResponse:
        entry = await logs[0].append(await request.json())
        return JSONResponse(entry.id)

    app = Starlette()
    app.add_route("/own", append, methods=["POST"])
    app.mount("/log", gossiplog.asgi(*logs, **options))
    return app


async def eventually(condition: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.01)


async def until_same(*logs: aio.GossipLog, count: int) -> None:
    async def is_same() -> bool:
        return {await log.count() for log in logs} == {count} and len({(await log.root()).hash for log in logs}) == 1

    await eventually(is_same)


def test_two_clients_and_the_application_itself_are_in_one_room() -> None:
    async def main() -> None:
        async with aio_log(1) as log, aio_log(2) as one, aio_log(3) as other, under_uvicorn(mounted(log)) as port:
            await log.append("there before")
            url = f"ws://127.0.0.1:{port}/log/{TOPIC}"
            async with one.connect(url) as link, other.connect(url), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
                await link.wait_connected()
                await asyncio.gather(*(one.append({"n": number, "text": "x" * 1_000 * number}) for number in range(30)))
                assert (await http.post("/own", json="by a handler")).status_code == 200
                posted = sign_entry(signer(4), TOPIC, 1, [], pcf.encode("posted"))
                answer = await http.post("/log/api/messages", content=entry_to_line(posted), headers={"content-type": "application/json"})
                assert answer.status_code == 201
                await until_same(log, one, other, count=33)
                assert (await http.get(f"/log/{TOPIC}/api/messages/{posted.id}")).status_code == 200
                assert (await http.get("/log/", headers={"accept": "text/html"})).json()["topics"] == [TOPIC]

    asyncio.run(main())


def test_the_command_line_appends_to_a_mounted_log() -> None:
    """The topic that it signs for is the last part of the URL, not all of its path."""

    async def main() -> None:
        async with aio_log(1) as log, under_uvicorn(mounted(log)) as port:
            poster = Poster(f"ws://127.0.0.1:{port}/log/{TOPIC}", signer(4), None, VALUE_BYTES_DEFAULT)
            entry = await asyncio.to_thread(poster.append, "from a shell")
            assert await log.has(entry.id)

    asyncio.run(main())


def test_several_logs_are_each_below_their_topic() -> None:
    async def main() -> None:
        async with (
            aio_log(1, "a.example") as a,
            aio_log(1, "b.example") as b,
            aio_log(2, "b.example") as client,
            under_uvicorn(mounted(a, b)) as port,
        ):
            entry = await b.append(1)
            async with client.connect(f"ws://127.0.0.1:{port}/log/b.example"), httpx.AsyncClient() as http:
                await until_same(b, client, count=1)
                assert await a.count() == 0
                assert (await http.get(f"http://127.0.0.1:{port}/log/b.example/api/messages/{entry.id}")).status_code == 200
                assert (await http.get(f"http://127.0.0.1:{port}/log/api/heads")).status_code == 404
            code, said = await knock(port, "/log/c.example")
            assert (code, said) == (404, "no log /c.example; there are /a.example, /b.example\n")

    asyncio.run(main())


async def knock(port: int, path: str, *headers: tuple[str, str], then: list[Any] | None = None) -> tuple[int, str]:
    """Ask for a WebSocket; return the status or close code that it ends with, and the reason. `then` is sent once it is open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = WSConnection(ConnectionType.CLIENT)
    extra = [(name.encode(), value.encode()) for name, value in headers]
    writer.write(client.send(Upgrade(host=f"127.0.0.1:{port}", target=path, extra_headers=extra)))
    status, said = 0, b""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            data = await reader.read(65_536)
            client.receive_data(data or None)
            for event in client.events():
                if isinstance(event, RejectConnection):
                    status = event.status_code
                elif isinstance(event, AcceptConnection):
                    for message in then or ():
                        writer.write(client.send(message))
                elif isinstance(event, CloseConnection):
                    writer.close()
                    return event.code, event.reason or ""
                elif hasattr(event, "data") and status:
                    said += event.data
            if not data or (status and said):
                writer.close()
                return status, said.decode()


@pytest.mark.parametrize(
    ("cookie", "may"), [("owner", {"pull", "push", "post"}), ("reader", {"pull"}), ("known", {"pull", "post"}), ("", set())]
)
def test_the_application_decides_who_may_do_what_by_its_own_cookies(cookie: str, may: set[str]) -> None:
    async def who(scope: Any) -> Collection[str] | None:
        await asyncio.sleep(0)
        name = dict(scope["headers"]).get(b"cookie", b"").decode().partition("=")[2]
        rights = {"owner": {"connect", "pull", "push", "post"}, "reader": {"connect", "pull"}, "known": signer(9).did}
        return rights.get(name)

    async def main() -> None:
        access = Access.parse({"default": {"anonymous": ["connect"], "dids": {signer(9).did: ["pull", "post"]}}})
        app = mounted(log := await stack.enter_async_context(aio_log(1)), who=who, limits=HubLimits(access=access))
        port = await stack.enter_async_context(under_uvicorn(app))
        client = await stack.enter_async_context(aio_log(2))
        here, there = await log.append("here"), await client.append("there")
        headers = {"cookie": f"session={cookie}"} if cookie else {}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/log/api", headers=headers) as http:
            assert (await http.get("heads")).status_code == (200 if "pull" in may else 403 if cookie else 401)
            body = entry_to_line(sign_entry(signer(4), TOPIC, 1, [], pcf.encode("posted")))
            answer = await http.post("messages", content=body, headers={"content-type": "application/json"})
            assert answer.status_code == (201 if "post" in may else 403 if cookie else 401), answer.text
            assert (await http.get("connections")).status_code == (403 if cookie else 401)
        async with client.connect(f"ws://127.0.0.1:{port}/log/{TOPIC}", headers=headers) as link:
            if not cookie:
                await eventually(lambda: asyncio.sleep(0, link.error))
                assert "this application does not let you in" in str(link.error)
                return
            if "pull" in may:
                await eventually(lambda: client.has(here.id))
            if "push" in may:
                await eventually(lambda: log.has(there.id))
            else:
                await link.wait_refused()
                assert not await log.has(there.id)

    async def run() -> None:
        nonlocal stack
        async with AsyncExitStack() as stack:
            await main()

    stack = AsyncExitStack()
    asyncio.run(run())


def test_an_application_that_names_no_right_is_told_so() -> None:
    async def main() -> None:
        for wrong in ("admin", {"connect", "rule"}, {"push": False}, True):
            async with aio_log(1) as log:
                app = gossiplog.asgi(log, who=lambda scope, wrong=wrong: wrong)
                with pytest.raises(LocalProtocolError, match="right"):
                    await app(a_scope(), asyncio.sleep, asyncio.sleep)  # type: ignore[arg-type]

    asyncio.run(main())


def a_scope(**more: Any) -> dict[str, Any]:
    return {"type": "http", "method": "GET", "path": "/api/heads", "query_string": b"", "headers": [], **more}


@pytest.mark.parametrize(
    ("origin", "limits", "is_let_in"),
    [
        ("http://evil.example", HubLimits(), False),
        ("null", HubLimits(), False),
        ("http://localhost:5173", HubLimits(), True),
        ("http://127.0.0.1:{port}", HubLimits(), True),
        ("https://app.example", HubLimits(origins=frozenset({"https://app.example"})), True),
        ("https://evil.example", HubLimits(origins=frozenset({"https://app.example"})), False),
        ("http://127.0.0.1:{port}", HubLimits(origins=frozenset({"https://app.example"})), True),
    ],
)
def test_pages_of_other_origins_may_not_use_a_persons_cookies(origin: str, limits: HubLimits, is_let_in: bool) -> None:
    async def main() -> None:
        async with aio_log(1) as log, under_uvicorn(mounted(log, limits=limits)) as port:
            name = origin.format(port=port)
            if is_let_in:
                code, _ = await knock(port, f"/log/{TOPIC}", ("origin", name), then=[TextMessage("text")])
                assert code == 1003
            else:
                code, reason = await knock(port, f"/log/{TOPIC}", ("origin", name))
                assert code == 4403
                assert "may not connect" in reason
            async with httpx.AsyncClient() as http:
                answer = await http.get(f"http://127.0.0.1:{port}/log/api/heads", headers={"origin": name})
                assert answer.status_code == (200 if is_let_in else 403)

    asyncio.run(main())


def test_what_a_client_sends_is_bounded_and_nobody_else_notices() -> None:
    async def main() -> None:
        async with aio_log(1) as log, aio_log(2) as client, under_uvicorn(mounted(log)) as port:
            url = f"ws://127.0.0.1:{port}/log/{TOPIC}"
            async with client.connect(url) as link:
                await link.wait_connected()
                largest = b"\0" * (4 * 2**20)
                assert (await knock(port, f"/log/{TOPIC}", then=[BytesMessage(largest + b"\0")]))[0] == 1009
                assert (await knock(port, f"/log/{TOPIC}", then=[BytesMessage(largest)]))[0] != 1009
                assert (await knock(port, f"/log/{TOPIC}", then=[TextMessage("a")]))[0] == 1003
                async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
                    answer = await http.post(
                        "/log/api/messages", content=b"x" * (6 * 2**20 + 1), headers={"content-type": "application/json"}
                    )
                    assert answer.status_code == 413, answer.text
                await log.append("still here")
                await until_same(log, client, count=1)

    asyncio.run(main())


def test_a_client_that_does_not_read_is_dropped_and_holds_nobody_up() -> None:
    async def main() -> None:
        async with aio_log(1) as log, aio_log(2) as client, under_uvicorn(mounted(log)) as port:
            with closing(socket.create_connection(("127.0.0.1", port))) as deaf:
                async with client.connect(f"ws://127.0.0.1:{port}/log/{TOPIC}") as link:
                    await link.wait_connected()
                    asks = WSConnection(ConnectionType.CLIENT)
                    deaf.sendall(asks.send(Upgrade(host="127.0.0.1", target=f"/log/{TOPIC}")))

                    async def is_counted() -> bool:
                        async with httpx.AsyncClient() as http:
                            found = (await http.get(f"http://127.0.0.1:{port}/log/api/connections")).json()
                        return len(found) >= 2

                    await eventually(is_counted)
                    for _ in range(20):
                        await log.append("x" * 60_000)
                    await until_same(log, client, count=20)

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_connection_that_nobody_reads_is_given_up(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossiplog.mounting.SEND_S", 0.05)
    monkeypatch.setattr("gossiplog.web.http.asgi.SEND_S", 0.05)

    async def main() -> None:
        async with aio_log(1) as log:
            received = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": "no log's"}]

            async def receive() -> Any:
                return received.pop(0) if kind == "websocket" and received else await asyncio.Event().wait()

            async def send(message: Any) -> None:
                if message["type"] != "http.response.start":
                    await asyncio.Event().wait()

            events = asyncio.create_task(gossiplog.asgi(log)(a_scope(type=kind, path="/api/events"), receive, send))
            while not events.done():
                await asyncio.wait_for(log.append("x" * 60_000), PATIENCE_S)
            await events

    async def in_time() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await main()

    asyncio.run(in_time())


def test_the_end_of_the_log_ends_its_connections_and_leaves_the_application() -> None:
    async def main() -> None:
        async with aio_log(2) as client:
            async with AsyncExitStack() as stack:
                log = await stack.enter_async_context(aio_log(1))
                port = await stack.enter_async_context(under_uvicorn(app := mounted(log)))
                link = await stack.enter_async_context(client.connect(f"ws://127.0.0.1:{port}/log/{TOPIC}"))
                await link.wait_connected()
                entry = await log.append("the last")
                await eventually(lambda: client.has(entry.id))
            async with under_uvicorn(app) as port, httpx.AsyncClient() as http:
                answer = await http.get(f"http://127.0.0.1:{port}/log/api/heads")
                assert (answer.status_code, answer.text) == (503, "the log is closed\n")
                assert (await knock(port, f"/log/{TOPIC}"))[0] == 503

    asyncio.run(main())


def test_a_log_that_closes_first_says_goodbye() -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            log = await stack.enter_async_context(opened := aio_log(1))
            port = await stack.enter_async_context(under_uvicorn(mounted(log)))
            leaving = asyncio.create_task(knock(port, f"/log/{TOPIC}", then=[BytesMessage(b"")]))

            async def is_connected() -> bool:
                async with httpx.AsyncClient() as http:
                    return bool((await http.get(f"http://127.0.0.1:{port}/log/api/connections")).json())

            await eventually(is_connected)
            await opened.__aexit__(None, None, None)
            assert (await leaving)[0] == 1000

    asyncio.run(main())


async def test_a_server_on_trio_serves_a_log_of_trio() -> None:
    config = Config()
    config.bind, config.graceful_timeout = ["127.0.0.1:0"], 1
    over = trio.Event()
    async with memory_log(1) as log, memory_log(2) as one, memory_log(3) as other, trio.open_nursery() as nursery:
        bound: list[str] = await nursery.start(_serve_in_trio, mounted(log), config, over)
        url = bound[0].replace("http://", "ws://") + f"/log/{TOPIC}"
        async with one.connect(url) as link, other.connect(url):
            await link.wait_connected()
            entries = [await one.append({"n": number}) for number in range(5)]
            await until_has(other, entries)
            await log.append("x" * 60_000)
            await until_equal(log, one, other)
        over.set()


async def test_a_log_is_served_over_http_2() -> None:
    config = Config()
    config.bind, config.graceful_timeout = ["127.0.0.1:0"], 1
    over = trio.Event()
    with trio.fail_after(PATIENCE_S):
        async with memory_log(1) as log, trio.open_nursery() as nursery:
            await log.append("x" * 60_000)
            bound: list[str] = await nursery.start(_serve_in_trio, mounted(log), config, over)
            async with httpx.AsyncClient(http1=False, http2=True, base_url=bound[0]) as http:
                answer = await http.get("/log/api/messages")
                assert (answer.http_version, answer.status_code) == ("HTTP/2", 200)
                assert len(answer.content) > 60_000
                body = entry_to_line(sign_entry(signer(4), TOPIC, 1, [], pcf.encode("posted")))
                answer = await http.post("/log/api/messages", content=body, headers={"content-type": "application/json"})
                assert answer.status_code == 201
            over.set()


async def _serve_in_trio(app: ASGIApp, config: Config, over: trio.Event, task_status: Any) -> None:
    await hypercorn.trio.serve(app, config, shutdown_trigger=over.wait, task_status=task_status)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("{}", {}),
        ("/log{}", {"root_path": "/log"}),
        ("/log{}", {"root_path": "/log/"}),
        ("/test.example{}", {"root_path": "/test.example"}),
        ("{}", {"root_path": "/test.example"}),
        ("/proxy/log{}", {"root_path": "/proxy/log", "app_root_path": "/proxy"}),
        ("/log{}", {"root_path": "/proxy/log", "app_root_path": "/proxy"}),
        ("/log{}", {"root_path": "/log/log", "app_root_path": "/log"}),
        ("/log/log{}", {"root_path": "/log/log", "app_root_path": "/log"}),
        ("{}", {"root_path": "/proxy"}),
        ("/log{}", {"path_remaining": True}),
        ("/proxy/log{}", {"root_path": "/proxy", "path_remaining": True}),
    ],
)
def test_where_it_is_mounted_is_found_by_each_convention(path: str, more: dict[str, Any]) -> None:
    async def main() -> None:
        async with aio_log(1, "test.example.com") as log, aio_log(1, "b.example") as other:
            app = gossiplog.asgi(log, other)
            for below in ("/", "/test.example.com/api/heads"):
                scope = a_scope(**{**more, "path": path.format(below)})
                if "path_remaining" in more:
                    scope["path_remaining"] = below[1:]
                sent: list[Any] = []

                async def send(message: Any, sent: list[Any] = sent) -> None:
                    sent.append(message)

                await app(scope, asyncio.Event().wait, send)
                assert sent[0]["status"] == 200, (scope, sent)

    asyncio.run(main())


async def test_a_log_below_two_prefixes_of_hypercorns_is_found() -> None:
    config = Config()
    config.bind, config.graceful_timeout, config.root_path = ["127.0.0.1:0"], 1, "/proxy"
    over = trio.Event()
    with trio.fail_after(PATIENCE_S):
        async with memory_log(1) as log, memory_log(1, topic="b.example") as other, memory_log(2) as client, trio.open_nursery() as nursery:
            bound: list[str] = await nursery.start(_serve_in_trio, mounted(log, other), config, over)
            async with client.connect(bound[0].replace("http://", "ws://") + f"/log/{TOPIC}") as link, httpx.AsyncClient() as http:
                await link.wait_connected()
                await until_has(log, [await client.append(1)])
                assert (await http.get(f"{bound[0]}/log/{TOPIC}/api/heads")).status_code == 200
                # As a browser is told, which knows the proxy only.
                assert (await http.get(f"{bound[0]}/log/readyz/")).headers["location"].endswith("/proxy/log/readyz")
            over.set()


def test_a_log_of_the_other_world_is_refused_by_name() -> None:
    async def in_trio() -> Any:
        async with memory_log(1) as log:
            return gossiplog.asgi(log)

    app = trio.run(in_trio)

    async def main() -> None:
        with pytest.raises(LocalProtocolError, match="runs on asyncio") as caught:
            await app(a_scope(), asyncio.sleep, asyncio.sleep)
        assert caught.value.hint == "open it with gossiplog.aio.open"
        async with aio_log(1) as log, aio_log(2) as again:
            with pytest.raises(LocalProtocolError, match="one topic"):
                gossiplog.asgi(log, again)
            with pytest.raises(LocalProtocolError, match="no open log"):
                gossiplog.asgi(aio.open(":memory:", topic=TOPIC))  # type: ignore[arg-type]

    asyncio.run(main())
