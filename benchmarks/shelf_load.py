"""Appends to the rooms of a hub, and floods of one: what `benchmarks.shelf` has run beside the hub.

    python -m benchmarks.shelf_load post URL ROOMS RATE COUNT     appends by POST, to one room after the other; then prints JSON
    python -m benchmarks.shelf_load sender URL                    signs and sends entries of a room as fast as the hub reads, and no more
    python -m benchmarks.shelf_load member URL                    a member with a log of its own, which appends without a pause
    python -m benchmarks.shelf_load connect URL ROOMS WAY         connects logs to a server, prints JSON, and waits for the end of its input

`{}` in URL is the number of a room. Each payload says when it was appended, as `benchmarks.hub_clients` looks for. Senders
and members run until they are ended, and only when nobody else would: a member takes more CPU for an entry than the hub, a sender a third.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import sys
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import trio

import gossiplog
from gossiplog.archive import entry_to_line
from gossiplog.codec import pcf
from gossiplog.codec.framing import encode_frame
from gossiplog.entry import next_clock, sign_entry
from gossiplog.net.ground.protocol_ids import push_protocol
from gossiplog.net.hub.client import at_topic, connect, open_hub_connections, open_websocket, parse_url
from gossiplog.net.transport.muxed import Stream, open_muxed
from gossiplog.pubsub.types import PeerId
from gossiplog.sync.rpc import Insert
from gossiplog.sync.wire import encode_event

__all__: list[str] = []

_THREADS = 16
_FLOOD_BATCH = 50


def _post(url: str, rooms: int, rate: float, count: int) -> None:
    parts = urlsplit(url.replace("ws://", "http://"))
    signer = gossiplog.Ed25519Signer.generate()
    parents: list[list[bytes]] = [[] for _ in range(rooms)]
    orders: queue.Queue[tuple[int, int, float] | None] = queue.Queue()
    took, refused = list[float](), list[int]()

    def work() -> None:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
        while (order := orders.get()) is not None:
            room, number, due = order
            before = parents[room]
            entry = sign_entry(signer, f"room-{room}", next_clock(before), before, pcf.encode(f"#@{number},{time.monotonic_ns()}@#"))
            if rooms >= _THREADS:
                # Else several post to one room at a time, each upon nothing.
                parents[room] = [entry.key]
            path = f"{parts.path.format(room).rstrip('/')}/api/messages"
            connection.request("POST", path, entry_to_line(entry), {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            took.append(time.monotonic() - due)
            if answer.status != 201:
                refused.append(answer.status)

    threads = [threading.Thread(target=work) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    for number in range(count):
        due = began + number / rate
        time.sleep(max(0.0, due - time.monotonic()))
        orders.put((number % rooms, number // rooms, due))
    for _ in threads:
        orders.put(None)
    for thread in threads:
        thread.join()
    took.sort()
    shown = {"acknowledged_p50_ms": 1e3 * took[len(took) // 2], "acknowledged_p99_ms": 1e3 * took[len(took) * 99 // 100]}
    print(json.dumps({**shown, "refused": len(refused)}), flush=True)


async def _member(url: str) -> None:
    topic, signer = urlsplit(url).path.strip("/"), gossiplog.Ed25519Signer.generate()
    async with gossiplog.open(":memory:", topic=topic, signer=signer) as log, log.connect(url) as link:
        await link.wait_connected()
        while True:
            await log.append_many(["x" * 100] * _FLOOD_BATCH)


async def _send(url: str) -> None:
    topic, signer = urlsplit(url).path.strip("/"), gossiplog.Ed25519Signer.generate()
    hub, before = parse_url(url), list[bytes]()
    async with open_muxed(await open_websocket(hub), is_client=True, peer=PeerId(url)) as connection, trio.open_nursery() as nursery:
        stream = await connection.open_stream([push_protocol(topic)])
        nursery.start_soon(_ignore, stream)
        while True:
            frames = b""
            for _ in range(_FLOOD_BATCH):
                entry = sign_entry(signer, topic, next_clock(before), before, pcf.encode("x" * 100))
                before = [entry.key]
                frames += encode_frame(encode_event(Insert(entry.key, entry.value)))
            await stream.send_all(frames)


async def _connect(url: str, rooms: int, way: str) -> None:
    """Connect so many logs, each by a connection of its own or all by one, and say what that took here."""
    async with open_hub_connections() as connections, AsyncExitStack() as stack:
        topics = [f"room-{each}" for each in range(rooms)]
        logs = [await stack.enter_async_context(gossiplog.open(":memory:", topic=topic)) for topic in topics]
        memory, used, began = _resident(), time.process_time(), time.perf_counter()
        for log in logs:
            shared = connections if way == "shared" else None
            await stack.enter_async_context(connect(log, at_topic(url, log.topic), connections=shared))
        while any([await log.count() < 10 for log in logs]):
            await trio.sleep(0.05)
        took = {"cpu_s": time.process_time() - used, "wall_s": time.perf_counter() - began, "bytes": _resident() - memory}
        print(json.dumps({f"client_{name}": value for name, value in took.items()}), flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _ignore(stream: Stream) -> None:
    while await stream.receive_some():
        pass


if __name__ == "__main__":
    if sys.argv[1] == "post":
        _post(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
    elif sys.argv[1] == "connect":
        trio.run(_connect, sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        with contextlib.suppress(PermissionError):
            # With `--real-time` the hub is ahead of all others anyway.
            is_plain = os.sched_getscheduler(0) == os.SCHED_OTHER
            os.sched_setscheduler(0, os.SCHED_IDLE if is_plain else os.SCHED_OTHER, os.sched_param(0))
            if not is_plain:
                os.setpriority(os.PRIO_PROCESS, 0, -20)
        trio.run({"sender": _send, "member": _member}[sys.argv[1]], sys.argv[2])
