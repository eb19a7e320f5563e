"""A mesh of peers as processes on loopback, found through one bootstrap peer; driven by tests and by the benchmark."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import trio

__all__ = ["Cluster", "ClusterPeer", "States", "is_converged", "open_cluster"]

_SCRIPT = Path(__file__).with_name("mesh_peer.py")
_ANSWER_S = 60.0
States: TypeAlias = list[Mapping[str, Any]]
"""What each peer says of itself; see `mesh_peer.py`."""


class Nest:
    """The process that peers are forked from; see `mesh_peer.py`. With `tree`, it runs the package that is there."""

    def __init__(self, tree: Path | None = None) -> None:
        self._requests, theirs = socket.socketpair()
        environment = None if tree is None else {**os.environ, "PYTHONPATH": str(tree)}
        command = [sys.executable, str(_SCRIPT), "--nest", str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        theirs.close()

    def fork(self, arguments: list[str]) -> tuple[int, socket.socket]:
        """Start a peer; return its process id and a socket to its stdin and stdout."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._requests, [json.dumps(arguments).encode()], [theirs.fileno()])
            answer = self._requests.recv(64)
        assert answer, "the nest has ended"
        return int(answer), ours

    def close(self) -> None:
        self._requests.close()
        self._process.wait()


class ClusterPeer:
    """One process. Its log and its key outlive it."""

    def __init__(self, path: Path, options: tuple[str, ...]) -> None:
        self.path = path
        self.options = options
        self.peer = ""
        self.addresses: list[str] = []
        self.pid = 0
        self._stream: trio.SocketStream | None = None
        self._buffer = bytearray()
        self._asking = trio.Lock()

    @property
    def is_running(self) -> bool:
        return self._stream is not None

    async def start(self, nest: Nest, bootstrap: list[str]) -> None:
        assert self._stream is None
        arguments = [str(self.path), *self.options]
        if bootstrap:
            arguments += ["--bootstrap", *bootstrap]
        self.pid, ours = await trio.to_thread.run_sync(nest.fork, arguments)
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        self._buffer.clear()
        hello = await self._read()
        self.peer, self.addresses = hello["peer"], hello["addresses"]

    async def ask(self, op: str, **request: Any) -> Any:
        async with self._asking:
            assert self._stream is not None
            await self._stream.send_all(json.dumps({"op": op, **request}).encode() + b"\n")
            return await self._read()

    async def kill(self) -> None:
        """End it as a crash would, and wait until it has ended."""
        assert self._stream is not None
        os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(trio.BrokenResourceError):
            while await self._stream.receive_some():
                pass
        await self._stream.aclose()
        self._stream = None

    async def _read(self) -> Any:
        assert self._stream is not None
        with trio.fail_after(_ANSWER_S):
            while (end := self._buffer.find(b"\n")) < 0:
                chunk = await self._stream.receive_some()
                assert chunk, "a peer has ended"
                self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return json.loads(line)


class Cluster:
    """Several peers; the first one is the others' only bootstrap."""

    def __init__(self, peers: list[ClusterPeer], nest: Nest) -> None:
        self.peers = peers
        self._nest = nest

    async def start(self, peer: ClusterPeer) -> None:
        first = self.peers[0]
        await peer.start(self._nest, [] if peer is first else first.addresses)

    async def states(self) -> States:
        """Ask all that run."""
        return [await peer.ask("state") for peer in self.peers if peer.is_running]

    async def until(
        self, holds: Callable[[list[Mapping[str, Any]]], bool], *, wait_s: float, pause_s: float = 0.2
    ) -> list[Mapping[str, Any]]:
        """Ask again and again until their states are as wanted."""
        states: list[Mapping[str, Any]] = []
        with trio.move_on_after(wait_s):
            while True:
                states = await self.states()
                if holds(states):
                    return states
                await trio.sleep(pause_s)
        short = [{name: state[name] for name in ("count", "peers", "degree", "appending")} for state in states]
        raise AssertionError(f"not so within {wait_s} s: {short}")


@asynccontextmanager
async def open_cluster(folder: Path, count: int, *options: str, tree: Path | None = None) -> AsyncIterator[Cluster]:
    """Start so many peers, the first one alone, and end them at the end.

    Args:
        folder: For logs and keys.
        count: Peers.
        options: Of `mesh_peer.py`.
        tree: Where the package is that the peers run; this one by default.
    """
    nest = Nest(tree)
    cluster = Cluster([ClusterPeer(folder / f"peer-{index}.db", options) for index in range(count)], nest)
    try:
        for peer in cluster.peers:
            await cluster.start(peer)
        yield cluster
    finally:
        with trio.CancelScope(shield=True):
            for peer in cluster.peers:
                if peer.is_running:
                    await peer.kill()
        nest.close()


def is_converged(states: States, count: int | None = None) -> bool:
    """Nobody is appending, and all have the same entries; as many as this, if it is given."""
    is_complete = count is None or states[0]["count"] == count
    return is_complete and not any(state["appending"] for state in states) and len({state["root"] for state in states}) == 1
