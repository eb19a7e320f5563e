"""`gossiplog serve` as processes that tests ask over HTTP, and a link between two of them that can be cut."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import trio

import gossiplog
from gossiplog.cli.posting import Poster
from gossiplog.entry import Ed25519Signer
from gossiplog.entry.message import Entry
from gossiplog.entry.rules import VALUE_BYTES_LIMIT

__all__ = ["Relay", "Served", "relayed", "serving"]

REPOSITORY = Path(__file__).parents[2]
_END_S = 60


@dataclass
class Served:
    """One server.

    Attributes:
        process: Its process.
        url: Where HTTP and WebSockets are served.
        multiaddr: Where the mesh is; empty without `--p2p`.
        path: Of its log.
        signer: Of what is posted to it.
    """

    process: subprocess.Popen[str]
    url: str
    multiaddr: str
    path: Path
    signer: Ed25519Signer

    def get(self, what: str, **query: str) -> Any:
        """Ask its API."""
        url = f"{self.url.replace('ws://', 'http://')}/api/{what}" + (f"?{urlencode(query)}" if query else "")
        with urllib.request.urlopen(url, timeout=_END_S) as answer:
            return json.loads(answer.read())

    def post(self, payload: Any) -> Entry:
        """Append to it over HTTP."""
        return Poster(self.url, self.signer, None, VALUE_BYTES_LIMIT).append(payload)

    @cached_property
    def peer(self) -> str:
        """Its peer id."""
        return str(self.get("peers")["me"])

    def has(self, entry: Entry) -> bool:
        """Whether it has an entry."""
        with suppress(urllib.error.HTTPError):
            return bool(self.get(f"messages/{entry.id}"))
        return False


@contextmanager
def serving(folder: Path, name: str, topic: str, *options: str) -> Iterator[Served]:
    """Serve a new log, with facts, until the end of the block."""
    path = folder / f"{name}.db"

    async def make() -> None:
        async with gossiplog.open(path, topic=topic):
            pass

    # In a thread, for a test may have an event loop of its own here.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(trio.run, make).result()
    command = [sys.executable, "-m", "gossiplog", "serve", str(path), "--listen", "127.0.0.1:0", "--dashboard", "--json", *options]
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{folder}"}
    journal = folder / f"{name}.log"
    with journal.open("w") as err:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True, env=environment, cwd=folder)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, journal.read_text()
        urls = json.loads(line)["urls"]
        multiaddr = next((url for url in urls if url.startswith("/")), "")
        yield Served(process, next(url for url in urls if url.startswith("ws://")), multiaddr, path, Ed25519Signer.generate())
        assert process.poll() is None, journal.read_text()[-3000:]
        assert "fault in" not in journal.read_text()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


class Relay:
    """A port whose connections lead to another one, until they are cut."""

    def __init__(self, port: int, target: int, scope: trio.CancelScope) -> None:
        self.port = port
        self.target = target
        self._scope = scope

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self._scope.cancel()


@asynccontextmanager
async def relayed(target: int) -> AsyncIterator[Relay]:
    """Lead a port of 127.0.0.1 to another one, for the length of a block."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def copy(source: trio.SocketStream, sink: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                await sink.send_all(data)
            await sink.send_eof()

    async def serve(near: trio.SocketStream) -> None:
        async with near, await trio.open_tcp_stream("127.0.0.1", target) as far, trio.open_nursery() as both:
            both.start_soon(copy, near, far)
            both.start_soon(copy, far, near)

    async def run() -> None:
        with scope:
            await trio.serve_listeners(serve, [listener])

    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield Relay(listener.socket.getsockname()[1], target, scope)
        nursery.cancel_scope.cancel()
