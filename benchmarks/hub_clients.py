"""Clients of a hub that cost next to nothing, so that hundreds of them fit beside the hub that is measured.

    python -m benchmarks.hub_clients URL TOPIC COUNT DEAF EXPECTED SECONDS

`{}` in URL and TOPIC is the number of a client.
Each opens a WebSocket and a push stream with a window that lasts for the whole run, and looks for marks in what it is sent:
`#@<sequence number>,<nanoseconds of the monotonic clock>@#`, which is where a payload says when it was appended. Nothing is decoded or
verified. DEAF of them read nothing. Prints `ready`, and when each has EXPECTED marks, or after so many seconds, a line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import socket
import struct
import sys
import time
from array import array
from urllib.parse import urlsplit

__all__ = ["MARK", "connect", "message", "muxed"]

MARK = re.compile(rb"#@(\d+),(\d+)@#")
_WINDOW_BYTES = 15 * 2**20
_PING_S = 10.0
_TAIL_BYTES = 64
_DATA, _WINDOW, _PING = 0, 1, 2
_SYN = 1


def muxed(kind: int, flags: int, stream: int, length: int) -> bytes:
    return struct.pack(">BBHII", 0, kind, flags, stream, length)


def message(data: bytes) -> bytes:
    """A binary WebSocket message from a client, under a mask of zeros."""
    size = len(data)
    head = bytes((0x82, 0x80 | size)) if size < 126 else struct.pack(">BBH", 0x82, 0x80 | 126, size)
    return head + bytes(4) + data


def _line(text: str) -> bytes:
    return bytes((len(text) + 1,)) + text.encode() + b"\n"


def connect(host: str, port: int, path: str, protocol: str) -> socket.socket:
    sock = socket.create_connection((host, port))
    request = f"GET {path or '/'} HTTP/1.1\r\nhost: {host}\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    sock.sendall(request.encode() + b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += sock.recv(4096)
    if b" 101 " not in answer.split(b"\r\n")[0]:
        raise SystemExit(f"the hub said {answer!r}")
    proposal = _line("/multistream/1.0.0") + _line(protocol)
    sock.sendall(message(muxed(_WINDOW, _SYN, 1, _WINDOW_BYTES) + muxed(_DATA, 0, 1, len(proposal)) + proposal))
    while protocol.encode() + b"\n" not in answer:
        answer += sock.recv(4096)
    sock.setblocking(False)
    return sock


def _main() -> None:
    url, topic, count, deaf, expected, seconds = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7])
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    socks = [connect(parts.hostname, parts.port, parts.path.format(n), f"/canvas/v1/{topic.format(n)}/push") for n in range(count + deaf)]
    poll = select.epoll()
    for sock in socks[:count]:
        poll.register(sock.fileno(), select.EPOLLIN)
    by_fd = {sock.fileno(): index for index, sock in enumerate(socks[:count])}
    tails = [b""] * count
    received = [0] * count
    orders = [0] * count
    latencies = array("d")
    lost = 0
    print("ready", flush=True)
    end, next_ping, pings = time.monotonic() + seconds, 0.0, 0
    while sum(map(int, (number >= expected for number in received))) + lost < count and time.monotonic() < end:
        now = time.monotonic()
        if now >= next_ping:
            next_ping, pings = now + _PING_S, pings + 1
            for sock in socks:
                with contextlib.suppress(OSError):
                    sock.send(message(muxed(_PING, _SYN, 0, pings)))
        for fd, _ in poll.poll(0.2):
            index = by_fd[fd]
            try:
                data = socks[index].recv(262_144)
            except OSError:
                data = b""
            if not data:
                poll.unregister(fd)
                lost += 1
                continue
            at = time.monotonic_ns()
            data = tails[index] + data
            last = 0
            for mark in MARK.finditer(data):
                number, sent = mark.groups()
                latencies.append((at - int(sent)) / 1e6)
                orders[index] += int(number) < received[index]
                received[index] += 1
                last = mark.end()
            tails[index] = data[max(last, len(data) - _TAIL_BYTES) :]
    latencies_ms = sorted(latencies)

    def quantile(share: float) -> float:
        return latencies_ms[min(len(latencies_ms) - 1, int(share * len(latencies_ms)))] if latencies_ms else float("nan")

    result = {
        "clients": count,
        "whole": sum(number == expected for number in received),
        "delivered": sum(received),
        "lost": lost,
        "late": sum(orders),
        "p50_ms": quantile(0.5),
        "p90_ms": quantile(0.9),
        "p99_ms": quantile(0.99),
        "max_ms": quantile(1.0),
        "cpu_s": sum(os.times()[:2]),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    _main()
