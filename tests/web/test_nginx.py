"""The hub behind a real nginx, with the settings that nginx has by itself: HTTP/1.0, and `Connection: close`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trio
from broadcast_support import forged
from hostile_client import hostile_push, muxed, push, push_stream
from network_support import PATIENCE_S, TOPIC, memory_log, until_count, until_has
from ports import free_port

import gossiplog
from gossiplog.errors import CannotConnect
from gossiplog.net import HubLimits
from gossiplog.net.hub.client import open_websocket, parse_url
from gossiplog.net.hub.server import Hub

pytestmark = pytest.mark.slow

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
ANSWERED_S = 5.0
"""nginx waits for 60 s where the end of an answer does not come."""
PLAIN = "location / { proxy_pass http://127.0.0.1:%d; }"
DOCUMENTED = """
location / {
    proxy_pass http://127.0.0.1:%d;
    proxy_http_version 1.1;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection $connection_upgrade;
    proxy_set_header Host $host;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
}"""
FORGER, HONEST = "203.0.113.5", "198.51.100.7"
SERVED_S = 5.0
"""Within which an honest peer is served, whatever others do."""


@contextmanager
def nginx(folder: Path, location: str) -> Iterator[int]:
    """Run nginx with one location, or what else is to stand in its server; return its port."""
    if NGINX is None:
        pytest.fail("nginx is missing: .ci/run installs it")
    port = free_port()
    paths = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    upgrade = "map $http_upgrade $connection_upgrade { default upgrade; '' close; }"
    server = f"server {{ listen 127.0.0.1:{port}; {location} }}"
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log; events {{}}"
        f"http {{ access_log off; {paths} {upgrade} {server} }}"
    )
    process = subprocess.Popen([NGINX, "-c", config, "-e", folder / "error.log"])
    try:
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


async def curl(*arguments: str) -> str:
    """Ask as people do; nginx may still be starting."""
    command = ["curl", "-sS", "--fail", "--max-time", str(ANSWERED_S), "--retry", "20", "--retry-connrefused", "--retry-delay", "0"]
    done = await trio.run_process([*command, *arguments], capture_stdout=True)
    return done.stdout.decode()


async def test_whole_api_is_served_behind_nginx_as_it_comes(tmp_path: Path) -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        await log.append_many({"n": n, "bulk": "x" * 5_000} for n in range(64))
        with nginx(tmp_path, PLAIN % hub.port) as port:
            for path, length in (("messages", 64), ("messages?limit=3", 3), ("clock", 2)):
                assert len(json.loads(await curl(f"http://127.0.0.1:{port}/api/{path}"))) == length


async def test_old_clients_get_whole_answers() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        await log.append_many({"n": n, "bulk": "x" * 5_000} for n in range(64))
        for version in ("--http1.0", "--http1.1", "--http2"):
            assert len(json.loads(await curl(version, f"http://127.0.0.1:{hub.port}/api/messages"))) == 64


async def test_clients_connect_and_follow_through_nginx_as_it_is_documented(tmp_path: Path) -> None:
    limits = HubLimits(proxies=frozenset({"127.0.0.1"}), hosts=frozenset({"hub.example.com"}))
    async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0", limits=limits) as hub:
        entry = await log.append("through nginx")
        with nginx(tmp_path, DOCUMENTED % hub.port) as port:
            url = f"http://127.0.0.1:{port}/api/messages"
            assert len(json.loads(await curl("-H", "Host: hub.example.com", url))) == 1
            assert "421" in await curl("-o", "/dev/null", "-w", "%{http_code}", "--no-fail", "-H", "Host: evil.example", url)
            async with client.connect(f"ws://127.0.0.1:{port}"):
                await until_has(client, [entry])
            await follow(log, port)


async def test_events_come_at_once_through_nginx_as_it_is(tmp_path: Path) -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        with nginx(tmp_path, PLAIN % hub.port) as port:
            assert await curl(f"http://127.0.0.1:{port}/livez") == "alive\n"
            await follow(log, port)


async def follow(log: gossiplog.GossipLog, port: int) -> None:
    """Get an event when it is there."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(b"GET /api/events HTTP/1.1\r\nHost: hub.example.com\r\n\r\n")
        received = b""
        with trio.fail_after(PATIENCE_S):
            while b"as they come" not in received:
                received += await stream.receive_some()
            await log.append("an event")
            while b"an event" not in received:
                received += await stream.receive_some()


async def test_strangers_are_slowed_by_the_address_that_the_proxy_names_where_somebody_honest_shares_it(tmp_path: Path) -> None:
    async with (
        memory_log(1) as log,
        memory_log(2) as author,
        memory_log(3) as neighbour,
        behind_nginx(log, tmp_path) as (hub, shared, other),
    ):
        service = hub.services[TOPIC]

        def slowed() -> set[str | None]:
            return {peer.origin for peer in service.peers.values() if "slowed" in peer.told}

        async with neighbour.connect(f"ws://{shared}"):
            await until_has(log, [await neighbour.append("before")])
            for first in (0, 4):
                # Fewer than a connection may bring; gone before they are judged.
                async with muxed(f"ws://{shared}") as connection:
                    await push(await push_stream(connection), [forged(await author.append(first + n)) for n in range(4)])
                    with trio.fail_after(PATIENCE_S):
                        while service.counts.get("entries rejected", 0) < first + 4:
                            await trio.sleep(0.01)
            for number, place, expected in ((4, other, set()), (5, shared, {FORGER})):
                async with memory_log(number) as newcomer, newcomer.connect(f"ws://{place}"):
                    # What is there when the two reconcile is cheap, so that it could all come without a wait.
                    await until_has(log, [await newcomer.append("first")])
                    await until_has(log, [await newcomer.append(n) for n in range(25)])
                    assert slowed() == expected
            await until_has(log, [await neighbour.append("after")])
            assert await status(shared) == "200"


async def test_forger_behind_a_proxy_is_shut_out_by_the_address_that_the_proxy_names_and_nobody_else(tmp_path: Path) -> None:
    async with memory_log(1) as log, memory_log(2) as author, memory_log(3) as honest, behind_nginx(log, tmp_path) as (_, forger, other):
        assert [await status(place) for place in (forger, other)] == ["200", "200"]
        async with honest.connect(f"ws://{other}"):
            await until_has(log, [await honest.append("before")])
            await hostile_push(f"ws://{forger}", [forged(await author.append(n)) for n in range(5)])
            assert await status(forger) == "503"
            assert await status(forger, "-H", f"X-Forwarded-For: {HONEST}") == "503"
            with pytest.raises(CannotConnect, match="503"):
                await open_websocket(parse_url(f"ws://{forger}"))
            with trio.fail_after(SERVED_S):
                await until_has(log, [await honest.append("after")])
        assert await status(other) == "200"
        async with memory_log(4) as newcomer, newcomer.connect(f"ws://{other}"):
            with trio.fail_after(SERVED_S):
                await until_count(newcomer, 2)


@asynccontextmanager
async def behind_nginx(log: gossiplog.GossipLog, folder: Path) -> AsyncIterator[tuple[Hub, str, str]]:
    """Serve a log behind nginx; return the hub and two places: whoever uses the first comes from FORGER, the second from HONEST."""
    limits = HubLimits(proxies=frozenset({"127.0.0.1"}))
    async with log.listen("127.0.0.1:0", limits=limits) as hub:
        second_port = free_port()
        # All come from loopback here.
        address = f"if ($server_port = {second_port}) {{ set $client {HONEST}; }}"
        appended = DOCUMENTED.replace("$proxy_add_x_forwarded_for", '"$http_x_forwarded_for, $client"') % hub.port
        with nginx(folder, f"listen 127.0.0.1:{second_port}; set $client {FORGER}; {address} {appended}") as first_port:
            first, second = (f"127.0.0.1:{port}" for port in (first_port, second_port))
            await curl(f"http://{first}/api/clock")
            yield hub, first, second


async def status(place: str, *arguments: str) -> str:
    """The HTTP status that a client gets, who may claim to come from elsewhere."""
    return await curl("-o", "/dev/null", "-w", "%{http_code}", "--no-fail", "--retry", "0", *arguments, f"http://{place}/api/clock")
