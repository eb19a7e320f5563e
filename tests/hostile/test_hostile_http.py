"""Attacks over plain HTTP, from as many addresses as they like: on where a request ends, on memory, on descriptors, and by forgeries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
import trio
from hostile_support import SERVED_S, TOPIC, Server, honest_peers, running_server

import gossiplog
from gossiplog import Ed25519Signer
from gossiplog.archive import entry_to_line
from gossiplog.codec import pcf
from gossiplog.entry import Entry, sign_entry

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
HEAD = "POST /api/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One hub for all tests here, which other attacks have not made grow."""
    folder: Path = tmp_path_factory.mktemp("hostile-http")
    with running_server(folder) as running:
        yield running


def descriptors(server: Server) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


async def post(server: Server, entry: Entry, address: str) -> int:
    body = entry_to_line(entry)
    fields = f"x-forwarded-for: {address}\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    with trio.fail_after(SERVED_S):
        return (await server.http((HEAD + fields).encode() + body))[0]


def entry_of(number: int) -> Entry:
    return sign_entry(Ed25519Signer.from_seed(b"\x44" * 32), TOPIC, 1, [], pcf.encode({"posted": number}))


async def test_bytes_behind_a_request_of_two_lengths_are_no_request(server: Server) -> None:
    smuggled = f"{HEAD}content-length: {len(entry_to_line(entry_of(0)))}\r\n\r\n"
    async with honest_peers(server):
        request = HEAD + "content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled
        with trio.fail_after(SERVED_S):
            status, answer = await server.http(request.encode() + entry_to_line(entry_of(0)))
        assert status == 400
        assert b"HTTP/1.1" not in answer
        assert (await server.get(f"/api/messages/{entry_of(0).id}"))[0] == 404
        assert await post(server, entry_of(0), "10.9.0.1") == 201


async def test_bodies_that_never_end_take_a_bounded_share_of_memory(server: Server) -> None:
    async with honest_peers(server, memory_mib=80), AsyncExitStack() as stack:
        for n in range(300):
            stream = await stack.enter_async_context(await server.tcp())
            await stream.send_all(f"{HEAD}x-forwarded-for: 10.1.{n >> 8}.{n & 255}\r\ncontent-length: {2**20}\r\n\r\n".encode())
            with trio.move_on_after(1.0):
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(b"[" * (2**20 - 1))
            if n % 50 == 49:
                assert await post(server, entry_of(1_000 + n), "10.9.0.2") == 201


async def test_followers_who_never_read_cost_no_queue_and_give_their_places_back(server: Server) -> None:
    before = descriptors(server)
    bulk = "x" * 60_000
    async with (
        honest_peers(server, memory_mib=80),
        gossiplog.open(":memory:", topic=TOPIC, signer=Ed25519Signer.from_seed(b"\x55" * 32)) as author,
        author.connect(server.url),
        AsyncExitStack() as stack,
        await server.tcp() as reader,
    ):
        await reader.send_all(b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        streams = []
        for n in range(200):
            stream = await stack.enter_async_context(await server.tcp())
            await stream.send_all(f"GET /api/events HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: 10.2.0.{n}\r\n\r\n".encode())
            streams.append(stream)
        received = bytearray()
        with trio.fail_after(PATIENCE_S):
            # Each follows before the first entry comes; from then on the others read nothing.
            for stream in streams:
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
            while b"as they come" not in received:
                received += await reader.receive_some()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(append_all, author, [{"n": n, "bulk": bulk} for n in range(60)])
                while received.count(b'"bulk":"') < 60:
                    data = await reader.receive_some()
                    assert data, "the reader was dropped"
                    received += data
        # Dropped when nothing was read for 20 s, though not one of them has closed.
        with trio.fail_after(PATIENCE_S):
            while descriptors(server) > before + 20:
                await trio.sleep(0.5)


async def append_all(log: gossiplog.GossipLog, payloads: list[object]) -> None:
    for payload in payloads:
        await log.append(payload)


async def test_large_bodies_that_are_no_entry_hold_up_nobody_for_long(server: Server) -> None:
    async with honest_peers(server):
        body = b"[" + b"[]," * 300_000 + b"[]]"
        fields = f"x-forwarded-for: 10.4.0.1\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        statuses = [(await server.http((HEAD + fields).encode() + body))[0] for _ in range(6)]
        assert statuses == [400] * 5 + [429]
        assert await post(server, entry_of(8), "10.4.0.2") == 201


async def test_forger_by_post_has_to_wait_and_nobody_else(server: Server) -> None:
    async with honest_peers(server):
        record = json.loads(entry_to_line(entry_of(7)))
        forged = json.dumps({**record, "message": {**record["message"], "payload": {"posted": "by somebody else"}}}).encode()
        fields = f"x-forwarded-for: 10.3.0.1\r\nconnection: close\r\ncontent-length: {len(forged)}\r\n\r\n"
        statuses = [(await server.http((HEAD + fields).encode() + forged))[0] for _ in range(8)]
        assert statuses == [400] * 5 + [429] * 3
        assert await post(server, entry_of(7), "10.3.0.1") == 429
        assert await post(server, entry_of(7), "10.3.0.2") == 201


READERS = 100
UNREAD = ("/api/graph?text=1", "/api/messages?limit=64", "/api/facts?past=50000")


def test_answers_that_nobody_reads_take_a_bounded_share_of_memory(tmp_path: Path) -> None:
    with running_server(tmp_path, "--dashboard", entries=3_000, bulk="x" * 4_000) as server:
        trio.run(leave_unread, server)


async def leave_unread(server: Server) -> None:
    async with honest_peers(server, memory_mib=120), AsyncExitStack() as stack:
        for path in UNREAD:
            streams = []
            for n in range(READERS):
                stream = await stack.enter_async_context(await server.tcp())
                # What the sockets hold is the system's, and not the server's.
                stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 4_096)
                await stream.send_all(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: 10.5.{n}.1\r\n\r\n".encode())
                streams.append(stream)
            # Large ones are made one by one, and what a page that follows the log asks for does not wait for them.
            with trio.fail_after(SERVED_S):
                assert (await server.get("/api/graph?text=1&after=2900"))[0] == 200
            with trio.fail_after(PATIENCE_S):
                for stream in streams:
                    # Each was answered, and then left unread, or dropped by now.
                    with suppress(trio.BrokenResourceError):
                        await stream.receive_some(1)


def test_large_bodies_that_are_no_entry_are_not_kept(tmp_path: Path) -> None:
    """What one of them becomes takes 60 MB, of which Python keeps some to be used again; eight take no more than one."""
    body = b"[" + b'"ab",' * 780_000 + b"1]"

    async def attack(server: Server) -> None:
        before = server.memory_mib()
        for n in range(8):
            fields = f"x-forwarded-for: 10.6.{n}.1\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
            assert (await server.http((HEAD + fields).encode() + body))[0] == 400
        assert server.memory_mib("VmHWM") - before < 110

    with running_server(tmp_path) as server:
        trio.run(attack, server)
