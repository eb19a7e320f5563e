"""The graph for the page: entries of a range of insertion numbers, in columns, so that 100,000 of them are a few megabytes.

GET graph?after=&until=&limit=&text=   {"last": …, "more": …, "seq": […], "id": […], "clock": […], "branch": […], "author": […],
                                        "authors": […], "parents": [[seq, …], …], "text": […], "void": [id, …]}

`text` and, in a log with members, `void` are there with `text=1`.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import trio
from starlette.requests import Request
from starlette.responses import Response

from ...codec import dag_json
from ...entry.message import Entry
from ...errors import DecodeError
from ...log.requests import Leaf, ReadCount, ReadLeaves, ReadTail
from ...plan import Plan, ask
from ...replica.log import Replica
from ..http.requests import read_number

LIMIT_MAX = 2_048
_HOP = 256
"""Entries decoded in one hop: about 4 ms of the database's thread."""
_EXCERPT_CHARACTERS = 160
_EXCERPT_BYTES_MAX = 16 * 1024
_KEPT_MAX = 4
"""Large answers kept for others who wait with the same request, as when many people open one page: 0.3 MB each."""
_TELLING = ("text", "title", "name", "message", "body", "op", "type", "kind", "value")
"""Fields that tell a reader what an entry is about, in order of preference."""


@dataclass(slots=True)
class _Columns:
    """The answer: a list for each column."""

    seq: list[int] = field(default_factory=list)
    id: list[str] = field(default_factory=list)
    clock: list[int] = field(default_factory=list)
    branch: list[int] = field(default_factory=list)
    author: list[int] = field(default_factory=list)
    authors: dict[str, int] = field(default_factory=dict)
    parents: list[list[int]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    void: list[str] | None = None

    def add(self, seq: int, entry: Entry, leaves: dict[bytes, Leaf], *, has_text: bool) -> None:
        self.seq.append(seq)
        self.id.append(entry.id)
        self.clock.append(entry.clock)
        self.branch.append(leaves[entry.key].branch if entry.key in leaves else 0)
        self.author.append(self.authors.setdefault(entry.author, len(self.authors)))
        self.parents.append([leaves[key].seq for key in dict.fromkeys(entry.parent_keys) if key in leaves])
        if has_text:
            self.text.append(excerpt(entry))

    def to_json(self, last: int, *, is_more: bool) -> bytes:
        """Takes about 3 ms for the largest answer."""
        record = {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) or name not in ("text", "void")}
        record |= {"last": last, "more": is_more, "authors": list(self.authors)}
        return json.dumps(record, separators=(",", ":")).encode()


class LogGraph:
    """Serves the graph of one log."""

    def __init__(self, log: Replica) -> None:
        self._log = log
        # One large answer at a time: until it is written, its memory is not accounted for anywhere else.
        self._making = trio.Lock()
        self._kept: OrderedDict[tuple[int, int, int, int, bool], bytes] = OrderedDict()
        self._threads = trio.CapacityLimiter(1)

    async def show(self, request: Request) -> Response:
        """GET graph."""
        after = read_number(request, "after", 0)
        limit = min(LIMIT_MAX, read_number(request, "limit", LIMIT_MAX, 1))
        _, last = await self._log.run(ask(ReadCount(counted=False)))
        until = min(last, read_number(request, "until", last))
        has_text = read_number(request, "text", 0, most=1) == 1
        # The small answers for a page that follows the log are made at once, however many large ones wait.
        if min(limit, until - after) <= _HOP:
            body = await self._make(after, until, last, limit, has_text=has_text)
        else:
            async with self._making:
                body = await self._make_or_find(after, until, last, limit, has_text=has_text)
        return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})

    async def _make_or_find(self, after: int, until: int, last: int, limit: int, *, has_text: bool) -> bytes:
        """Return the answer to the same request that was made while we waited for our turn."""
        asked = (after, until, last, limit, has_text)
        body = self._kept.get(asked)
        if body is None:
            body = self._kept[asked] = await self._make(after, until, last, limit, has_text=has_text)
            if len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)
        if not self._making.statistics().tasks_waiting:
            self._kept.clear()
        return body

    async def _make(self, after: int, until: int, last: int, limit: int, *, has_text: bool) -> bytes:
        columns = _Columns()
        place = after
        while place < until and len(columns.seq) < limit:
            reached, rows, leaves = await self._log.run(_read(place, min(_HOP, limit - len(columns.seq))))
            if reached == place:
                break
            await trio.to_thread.run_sync(_add, columns, rows, leaves, until, has_text, limiter=self._threads)
            place = reached
        is_more = bool(columns.seq) and place < until
        if has_text and columns.id and self._log.has_members:
            columns.void = sorted(await self._log.find_void(columns.id))
        return await trio.to_thread.run_sync(lambda: columns.to_json(last, is_more=is_more), limiter=self._threads)


def _read(after: int, limit: int) -> Plan[tuple[int, list[tuple[int, Entry]], dict[bytes, Leaf]]]:
    """Read a few entries, and the places of these and their parents; the first value returned is the insertion number that they reach."""
    rows = yield from ask(ReadTail(after, limit))
    entries: list[tuple[int, Entry]] = []
    for seq, value in rows:
        try:
            entries.append((seq, Entry.stored(value)))
        except DecodeError:
            # `fsck` reports it.
            continue
    keys = dict.fromkeys(key for _, entry in entries for key in (entry.key, *entry.parent_keys))
    leaves = yield from ask(ReadLeaves(list(keys)))
    return rows[-1][0] if rows else after, entries, leaves


def _add(columns: _Columns, rows: Sequence[tuple[int, Entry]], leaves: dict[bytes, Leaf], until: int, has_text: bool) -> None:
    for seq, entry in rows:
        if seq <= until:
            columns.add(seq, entry, leaves, has_text=has_text)


def excerpt(entry: Entry) -> str:
    """Return the beginning of the payload as dag-json, with its most telling field first. Of a large payload return the size, because
    decoding it would take long."""
    size = len(entry.value) - entry.envelope.payload_at
    if size > _EXCERPT_BYTES_MAX:
        return f"({size:,} bytes)"
    try:
        return _telling_first(entry.payload)[:_EXCERPT_CHARACTERS]
    except DecodeError as error:
        return f"(damaged: {error})"


def _telling_first(payload: Any) -> str:
    """Write an object with the first of its `_TELLING` fields in front; the others keep dag-json's order."""
    telling = next((name for name in _TELLING if payload.get(name) is not None), None) if isinstance(payload, dict) else None
    if telling is None:
        return dag_json.encode(payload).decode()
    names = [telling, *sorted(name for name in payload if name != telling)]
    return "{" + ",".join(f"{dag_json.encode(name).decode()}:{dag_json.encode(payload[name]).decode()}" for name in names) + "}"
