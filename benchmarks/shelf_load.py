"""Appends to the rooms of a hub, and floods of one: what `benchmarks.shelf` has run beside the hub.

    python -m benchmarks.shelf_load post URL ROOMS RATE COUNT     appends by POST, to one room after the other; then prints JSON
    python -m benchmarks.shelf_load flood URL                     a member that appends to a room without a pause, until it is ended

`{}` in URL is the number of a room. Each payload says when it was appended, as `benchmarks.hub_clients` looks for.
"""

from __future__ import annotations

import http.client
import json
import queue
import sys
import threading
import time
from urllib.parse import urlsplit

import trio

import gossiplog
from gossiplog.archive import entry_to_line
from gossiplog.codec import pcf
from gossiplog.entry import next_clock, sign_entry

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


async def _flood(url: str) -> None:
    topic, signer = urlsplit(url).path.strip("/"), gossiplog.Ed25519Signer.generate()
    async with gossiplog.open(":memory:", topic=topic, signer=signer) as log, log.connect(url) as link:
        await link.wait_connected()
        while True:
            await log.append_many(["x" * 100] * _FLOOD_BATCH)


if __name__ == "__main__":
    if sys.argv[1] == "post":
        _post(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
    else:
        trio.run(_flood, sys.argv[2])
