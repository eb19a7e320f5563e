"""A fact: one thing that happened in a process, or in a simulated network. A ring keeps the latest facts of one log.

As JSON a fact is an object with the columns in order, without nulls.

Source: docs/glass.md, "Facts".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ..codec import plain_json
from ..errors import DecodeError

Node: TypeAlias = int | str
"""A node's number in the simulator, a peer id in a live network."""

KINDS = frozenset(
    {"start", "stop", "dial", "connect", "disconnect", "publish", "deliver", "send", "lost", "drop", "fault"}
    | {"graft", "prune", "duplicate", "ihave", "verdict", "waiting", "aside", "sync-begin", "sync"}
    | {"dial-failed", "ban", "refused", "ignored", "slow", "root", "full"}
)
"""All kinds; the simulator uses those of the first line."""
WAYS = ("append", "gossip", "push", "sync", "reconcile", "http", "import")
"""The ways by which an entry can come."""

TEXT_CHARS_MAX = 4_096
"""The most characters of a text in a fact that `from_record` accepts."""

TRACE_SCHEMA: tuple[tuple[str, str], ...] = (
    ("scenario", "string"),
    ("router", "string"),
    ("seed", "int64"),
    ("seq", "int64"),
    ("time_s", "double"),
    ("kind", "string"),
    ("node", "int32"),
    ("peer", "int32"),
    ("type", "string"),
    ("message", "int64"),
    ("count", "int32"),
    ("bytes", "int32"),
    ("hops", "int32"),
    ("way", "string"),
    ("rule", "string"),
    ("reason", "string"),
)
"""The columns in order, and their types in the simulator's Parquet; in live networks `node`, `peer` and `message` are strings."""

_FITTING = (
    dict.fromkeys((name for name, _ in TRACE_SCHEMA), str)
    | dict.fromkeys(("seed", "seq", "count", "bytes", "hops"), int)
    | dict.fromkeys(("node", "peer", "message"), Node)
    | {"time_s": int | float}
)


@dataclass(slots=True)
class Fact:
    """One fact. It is not frozen, for speed; treat it as if it were. The attributes are the columns.

    Attributes:
        scenario: The simulator's scenario; in a live network the topic.
        seq: 0, 1, 2, … in the order of events in that process, for that log.
        time_s: Virtual seconds; in a live network Unix time.
        kind: One of `KINDS`.
        type: The part, protocol or outcome.
        message: The entry: its number in the simulator, its id in a live network; for a `root` the root's hash in hex.
        count: A number of entries or ids, or of peers for a fact about many at once.
        hops: Links crossed; only in the simulator.
        way: One of `WAYS`.
    """

    scenario: str
    router: str
    seq: int
    time_s: float
    kind: str
    node: Node
    peer: Node | None = None
    type: str | None = None
    message: Node | None = None
    count: int | None = None
    bytes: int | None = None
    hops: int | None = None
    way: str | None = None
    rule: str | None = None
    reason: str | None = None
    seed: int | None = None

    def record(self) -> dict[str, Any]:
        """Return the columns that have a value, in their order."""
        return {name: value for name, _ in TRACE_SCHEMA if (value := getattr(self, name)) is not None}

    def weight(self) -> int:
        """Return about how many bytes the fact takes in memory or as JSON, whichever is more."""
        texts = (self.scenario, self.kind, self.node, self.peer, self.type, self.message, self.way, self.rule, self.reason, self.router)
        return _PLAIN_BYTES + sum(
            len(text) if text.isascii() and text.isprintable() else _ESCAPED_BYTES * len(text) for text in texts if isinstance(text, str)
        )

    def to_json(self) -> str:
        """Return one line of JSON, without the newline."""
        return json.dumps(self.record(), separators=(",", ":"))

    @staticmethod
    def from_record(record: object) -> Fact:
        """Read the result of `record`. Unknown columns are ignored, because a later version may have more.

        Raises:
            DecodeError: `record` is not a fact.
        """
        if not isinstance(record, dict):
            raise DecodeError("a fact is an object")
        for name in _REQUIRED:
            if name not in record:
                raise DecodeError(f"a fact without {name}")
        columns = {name: record[name] for name in _FITTING.keys() & record.keys()}
        for name, value in columns.items():
            is_long = isinstance(value, str) and len(value) > TEXT_CHARS_MAX
            if is_long or isinstance(value, bool) or not isinstance(value, _FITTING[name]):
                raise DecodeError(f"a fact whose {name} is {type(value).__name__}, or too long")
        return Fact(**columns)

    @staticmethod
    def from_json(line: str) -> Fact:
        """Read one line of JSON.

        Raises:
            DecodeError: It is not a fact.
        """
        return Fact.from_record(plain_json.decode(line))


_PLAIN_BYTES, _ESCAPED_BYTES = 400, 12
"""Bytes of the names and numbers of a fact, and the most that one character of a text takes."""
_REQUIRED = ("scenario", "router", "seq", "time_s", "kind", "node")

FACTS_MAX = 50_000
BYTES_MAX = 32 * 2**20
"""The most bytes of a ring: 50,000 of our own facts, of 600 bytes each, just fit."""


class Since(NamedTuple):
    """Facts from a given number on.

    Attributes:
        lines: The facts as JSON.
        next: The number of the fact after the last of them.
        lost: How many of the wanted facts the ring no longer has.
    """

    lines: list[bytes]
    next: int
    lost: int


class Ring:
    """Keeps the latest facts, numbered from 0. Each is encoded once, for its first reader.

    Args:
        size: The most facts.
        bytes_max: The most bytes of all facts together, because those of other servers may have any length. One fact is always kept.

    Attributes:
        first: The number of the oldest fact in the ring.
        next: The number that the next fact will get.
    """

    def __init__(self, size: int = FACTS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._size = size
        self._bytes_max = bytes_max
        self._facts: dict[int, Fact] = {}
        self._weight = 0
        self._lines: dict[int, bytes] = {}
        self.first = 0
        self.next = 0

    def __len__(self) -> int:
        return len(self._facts)

    def add(self, fact: Fact) -> None:
        """Add a fact, which gets the number `next`; the oldest are dropped if there is no room."""
        self._facts[self.next] = fact
        self._weight += fact.weight()
        self.next += 1
        while len(self._facts) > self._size or (self._weight > self._bytes_max and len(self._facts) > 1):
            self._weight -= self._facts.pop(self.first).weight()
            self._lines.pop(self.first, None)
            self.first += 1

    def facts(self, first: int = 0, most: int | None = None) -> list[Fact]:
        """Return the facts from the number `first` on, the oldest first, at most `most` of them. O(facts returned)."""
        start = max(first, self.first)
        end = self.next if most is None else min(self.next, start + most)
        return [self._facts[number] for number in range(start, end)]

    def since(self, first: int, bytes_max: int = 65_536) -> Since:
        """Return the facts from the number `first` on as JSON: at most `bytes_max` bytes, but at least one fact if there is one."""
        start = max(first, self.first)
        lines: list[bytes] = []
        size, number = 0, start
        while number < self.next:
            line = self._line(number)
            size += len(line)
            if lines and size > bytes_max:
                break
            lines.append(line)
            number += 1
        return Since(lines, number, max(0, min(start, self.next) - first))

    def _line(self, number: int) -> bytes:
        line = self._lines.get(number)
        if line is None:
            line = self._lines[number] = self._facts[number].to_json().encode()
        return line
