"""Following a server's facts in tests, over a real socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio
from network_support import PATIENCE_S, memory_log, open_stream

from gossiplog.glass.fact import Fact, Node
from gossiplog.gossip_log import GossipLog
from gossiplog.net.hub.server import Hub
from gossiplog.net.service.service import observed

__all__ = ["Follower", "Had", "following", "seen_log", "way_of"]


@asynccontextmanager
async def seen_log(number: int, file: Path | None = None) -> AsyncIterator[GossipLog]:
    """A log in memory of which facts are made."""
    async with memory_log(number) as log:
        with observed(log, file):
            yield log


class Follower:
    """What a client of `GET facts` got so far."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.hello: dict[str, Any] = {}
        self.facts: list[dict[str, Any]] = []
        self.gaps: list[dict[str, Any]] = []
        self.last_id = ""
        self._buffer = b""

    async def until(self, condition: Callable[[], Any]) -> None:
        """Read on until something holds."""
        with trio.fail_after(PATIENCE_S):
            while not condition():
                data = await self.stream.receive_some()
                assert data, "the server ended the stream"
                self._feed(data)

    async def until_fact(self, kind: str, **columns: Any) -> dict[str, Any]:
        """Read on until there is a fact; return the first such."""
        await self.until(lambda: self.all(kind, **columns))
        return self.all(kind, **columns)[0]

    def all(self, kind: str, **columns: Any) -> list[dict[str, Any]]:
        """All facts of a kind with these columns so far."""
        return [fact for fact in self.facts if fact["kind"] == kind and all(fact.get(name) == value for name, value in columns.items())]

    def _feed(self, data: bytes) -> None:
        *events, self._buffer = (self._buffer + data).split(b"\n\n")
        for event in events:
            # Chunks of HTTP lie between the lines, which begin with other words.
            fields = dict(line.split(b": ", 1) for line in event.splitlines() if b": " in line and line[:2] in (b"ev", b"da", b"id"))
            value = json.loads(fields[b"data"]) if b"data" in fields else None
            match fields.get(b"event"):
                case b"hello":
                    self.hello = value
                case b"gap":
                    self.gaps.append(value)
                case b"facts":
                    self.facts += value
                    self.last_id = fields[b"id"].decode()


@asynccontextmanager
async def following(hub: Hub, query: str = "", last_id: str | None = None, path: str = "/api/facts") -> AsyncIterator[Follower]:
    """Follow the facts of a hub's log."""
    async with await open_stream(hub) as stream:
        resume = "" if last_id is None else f"last-event-id: {last_id}\r\n"
        await stream.send_all(f"GET {path}{query} HTTP/1.1\r\nhost: localhost\r\n{resume}\r\n".encode())
        follower = Follower(stream)
        await follower.until(lambda: follower.hello)
        yield follower


@dataclass
class Had:
    """One node and an entry: when and how it came, from whom, and to whom it was sent."""

    node: Node
    at_s: float | None = None
    way: str | None = None
    peer: Node | None = None
    sent: list[tuple[str | None, Node | None]] = field(default_factory=list)


def way_of(entry: Node, facts: Iterable[Fact]) -> list[Had]:
    """What facts say of one entry, by node: those that have it, in the order in which they got it, and then the others."""
    nodes: dict[Node, Had] = {}
    for fact in facts:
        if fact.message != entry:
            continue
        had = nodes.setdefault(fact.node, Had(fact.node))
        if fact.kind == "send":
            had.sent.append((fact.type, fact.peer))
        elif fact.kind in ("publish", "deliver") and had.at_s is None:
            had.at_s, had.peer, had.way = fact.time_s, fact.peer, fact.way or "append"
    return sorted(nodes.values(), key=lambda one: (one.at_s is None, one.at_s or 0.0))
