"""Under which names a server answers, and what web pages get from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import trio
from network_support import PATIENCE_S, client_tls, fetch, make_certificate, memory_log, open_stream, server_tls

from gossiplog.net import HubLimits
from gossiplog.net.hub.client import open_websocket, parse_url
from gossiplog.net.hub.server import Hub

ORIGIN = "https://app.example.com"
ORIGINS = HubLimits(origins=frozenset({ORIGIN}))


@pytest.mark.parametrize("limits", [HubLimits(), ORIGINS])
async def test_page_that_has_its_own_name_point_here_reads_nothing(limits: HubLimits) -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=limits) as hub:
        for host in ("evil.example", f"evil.example:{hub.port}", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example."):
            for path in ("/api/messages", "/api/connections", "/metrics"):
                answer = await fetch(hub, path, headers={"host": host})
                assert answer.status == 421
                assert b"--host" in answer.body
        assert (await fetch(hub, "/api/messages")).status == 200


async def test_server_goes_by_its_addresses_and_by_the_names_it_was_given() -> None:
    limits = HubLimits(origins=frozenset({"https://app.example.com:8443"}), hosts=frozenset({"Hub.Example.com"}))
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=limits) as hub:
        names = ("localhost", "x.localhost:80", "192.168.1.5:8080", "[::1]:8080", "[fe80::1]", "hub.example.com:1", "APP.example.com")
        for host in names:
            assert (await fetch(hub, "/api/clock", headers={"host": host})).status == 200, host
        target = "http://evil.example/api/clock"
        assert (await fetch(hub, target)).status == 421


async def test_any_name_will_do_where_the_operator_says_so_or_a_certificate_answers_for_it(tmp_path: Path) -> None:
    paths = make_certificate(tmp_path)
    async with memory_log(1) as log:
        async with log.listen("127.0.0.1:0", limits=HubLimits(hosts=frozenset({"*"}))) as hub:
            assert (await fetch(hub, "/api/clock", headers={"host": "any.example"})).status == 200
        async with log.listen("127.0.0.1:0", tls=server_tls(paths)) as hub:
            assert (await fetch(hub, "/api/clock", headers={"host": "any.example"}, tls=client_tls(paths))).status == 200
        async with log.listen("127.0.0.1:0", tls=server_tls(paths), limits=HubLimits(hosts=frozenset({"hub.example"}))) as hub:
            assert (await fetch(hub, "/api/clock", headers={"host": "any.example"}, tls=client_tls(paths))).status == 421


async def test_each_request_on_a_connection_is_looked_at() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=ORIGINS) as hub:
        for field, status in ((f"Host: evil.example:{hub.port}", b"421"), ("Host: localhost\r\nOrigin: https://evil.example", b"403")):
            async with await open_stream(hub) as stream:
                with trio.fail_after(PATIENCE_S):
                    await stream.send_all(b"GET /api/clock HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
                    await stream.send_all(f"GET /api/messages HTTP/1.1\r\n{field}\r\n\r\n".encode())
                    assert (await stream.receive_some()).startswith(b"HTTP/1.1 " + status)
                    assert await stream.receive_some() == b""


async def test_each_request_on_a_proxys_connection_counts_for_its_own_client() -> None:
    limits = HubLimits(connections_per_address=1, proxies=frozenset({"127.0.0.1"}))
    async with (
        memory_log(1) as log,
        log.listen("127.0.0.1:0", limits=limits) as hub,
        await open_stream(hub) as squatter,
        await open_stream(hub) as stream,
    ):
        with trio.fail_after(PATIENCE_S):
            await squatter.send_all(b"GET /api/events HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: 203.0.113.7\r\n\r\n")
            assert (await squatter.receive_some()).startswith(b"HTTP/1.1 200")
            for address, status in (("203.0.113.8", b"200"), ("203.0.113.9", b"200"), ("203.0.113.7", b"503")):
                await stream.send_all(f"GET /api/clock HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: {address}\r\n\r\n".encode())
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 " + status)


async def test_pages_read_nothing_unless_their_origin_is_named() -> None:
    preflight = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        for path in ("/", "/api/messages", "/api/connections", "/api/events?", "/metrics"):
            for method, more in (("HEAD", {}), ("OPTIONS", preflight)):
                answer = await fetch(hub, path, method=method, headers={"origin": "https://evil.example", **more})
                assert not [name for name in answer.headers if name.startswith("access-control")], path
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=ORIGINS) as hub:
        for method, more in (("GET", {}), ("OPTIONS", preflight)):
            answer = await fetch(hub, "/api/messages", method=method, headers={"origin": ORIGIN, **more})
            assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, ORIGIN)
            assert (await fetch(hub, "/api/messages", method=method, headers={"origin": "https://evil.example", **more})).status == 403
        assert (await fetch(hub, "/api/messages", headers={"origin": "null"})).status == 403
        own = f"127.0.0.1:{hub.port}"
        assert (await fetch(hub, "/api/messages", headers={"origin": f"http://{own}", "host": own})).status == 200


HERE = (
    "http://localhost",
    "http://localhost:5173",
    "https://app.localhost:8443",
    "http://127.0.0.1:3000",
    "http://127.8.8.8",
    "http://[::1]:9",
)
ELSEWHERE = (
    *(
        "https://evil.example",
        "https://localhost.evil.example",
        "https://127.0.0.1.evil.example",
        "null",
        "",
        "file://",
        "http://192.168.1.5",
    ),
    *("http://localhost@evil.example", "https://evil.example/#localhost", "http://evil.localhost.example", "localhost"),
)
NAMED = HubLimits(hosts=frozenset({"hub.example.com"}))
PROXIED = HubLimits(proxies=frozenset({"127.0.0.1"}))
FORWARDED = {"x-forwarded-for": "203.0.113.7"}
UPGRADE = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}


async def status(hub: Hub, path: str = "/", **fields: str) -> int:
    """Ask with these fields; return the status of what is answered first."""
    async with await open_stream(hub) as stream:
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
        with trio.fail_after(PATIENCE_S):
            await stream.send_all(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
            return int((await stream.receive_some()).split()[1])


async def test_pages_of_this_machine_alone_are_let_in_on_loopback_where_none_is_named() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        for host in (f"localhost:{hub.port}", f"127.0.0.1:{hub.port}"):
            for origin in HERE:
                assert await status(hub, host=host, origin=origin, **UPGRADE) == 101, origin
                assert await status(hub, "/api/clock", host=host, origin=origin) == 200, origin
            for origin in ELSEWHERE:
                assert await status(hub, host=host, origin=origin, **UPGRADE) == 403, origin
                assert await status(hub, "/api/clock", host=host, origin=origin) == 403, origin
        # A page whose name points here is of the origin that it asks for.
        assert await status(hub, host=f"evil.example:{hub.port}", origin=f"http://evil.example:{hub.port}", **UPGRADE) == 403
        assert await status(hub, host="localhost", **UPGRADE) == 101


@pytest.mark.parametrize(
    ("limits", "host", "more", "is_let_in"),
    [
        (NAMED, "hub.example.com", {}, True),
        (NAMED, "localhost", {}, False),
        (PROXIED, "hub.example.com", FORWARDED, True),
        (PROXIED, "hub.example.com", {}, False),
        (HubLimits(), "hub.example.com", FORWARDED, False),
        (HubLimits(hosts=frozenset({"*"})), "hub.example.com", {}, True),
        (HubLimits(hosts=frozenset({"*"})), "localhost", {}, False),
        (HubLimits(origins=frozenset({"*"})), "localhost", {}, True),
        (ORIGINS, "localhost", {}, True),
        (NAMED, "hub.example.com", {"origin": "null"}, True),
    ],
)
async def test_pages_from_elsewhere_are_let_in_on_loopback_where_it_is_reached_from_elsewhere(
    limits: HubLimits, host: str, more: dict[str, str], is_let_in: bool
) -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=limits) as hub:
        assert (await status(hub, **{"host": host, "origin": ORIGIN, **more}, **UPGRADE) == 101) == is_let_in


async def test_websockets_are_open_to_what_is_no_browser_under_any_name() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=ORIGINS) as hub:
        for host in ("localhost", "hub.behind.proxy.example"):
            for headers in ({}, {"Origin": ORIGIN}):
                url = parse_url(f"ws://localhost:{hub.port}", headers=headers)
                await (await open_websocket(replace(url, host_header=host))).aclose()
