"""Search in a log, newest entries first: by text, author, id, or a place in the payload.

GET search?text=&author=&id=&path=&value=&before=&limit=   {"found": [{"id", "seq", "clock", "author", "text"}, …], "next": id or null}

Each answer covers a bounded part of the log; `next` is where to continue, and null at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...codec import dag_json, plain_json
from ...codec.digits import read_digits
from ...entry.message import Entry
from ...entry.message_id import ID_CHARS, decode_id
from ...errors import DecodeError
from ...log.page import is_last_page
from ...log.requests import ReadLeaves, ReadPage
from ...plan import ask
from ...replica.log import Replica
from ...tree.node import key_before
from ..http.requests import read_id, read_number, shown
from .log_graph import excerpt

LIMIT_MAX = 200
_PAGE = 256
_ANSWER_S = 0.25
"""Seconds of searching, after which the answer is sent with what was found."""
_TERM_CHARACTERS_MAX = 200
_ABSENT = object()
_Found: TypeAlias = tuple[bytes, dict[str, Any]]
"""The key of an entry, and what is reported of it."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What an entry must have; None where anything will do."""

    text: str | None
    author: str | None
    path: tuple[str, ...] | None
    value: Any

    def matches(self, entry: Entry) -> bool:
        """Takes about 1 µs if the author decides, otherwise up to 5 ms per megabyte of payload."""
        if self.author is not None and self.author not in entry.author:
            return False
        if self.text is not None and not self._has_text(entry):
            return False
        return self.path is None or self._has_value(entry.payload)

    def _has_text(self, entry: Entry) -> bool:
        assert self.text is not None
        word = self.text.lower()
        # The payload's bytes contain strings unchanged, and letters occur nowhere else but in these three.
        if word.isascii() and word.isalpha() and word not in "true false null" and word.encode() not in entry.payload_bytes.lower():
            return False
        return self.text.casefold() in dag_json.encode(entry.payload).decode().casefold()

    def _has_value(self, payload: Any) -> bool:
        assert self.path is not None
        for step in self.path:
            if isinstance(payload, dict):
                payload = payload.get(step, _ABSENT)
            elif isinstance(payload, list) and (place := read_digits(step, 0, len(payload) - 1)) is not None:
                payload = payload[place]
            else:
                return False
        if payload is _ABSENT:
            return False
        return self.value is _ABSENT or (payload == self.value and isinstance(payload, bool) == isinstance(self.value, bool))


class Search:
    """Serves the search in one log."""

    def __init__(self, log: Replica) -> None:
        self._log = log
        self._threads = trio.CapacityLimiter(1)

    async def show(self, request: Request) -> Response:
        """GET search."""
        query = request.query_params
        for name, term in query.items():
            if len(term) > _TERM_CHARACTERS_MAX:
                raise HTTPException(400, f"{name} has at most {_TERM_CHARACTERS_MAX} characters, not {shown(term)}")
        limit = min(LIMIT_MAX, read_number(request, "limit", LIMIT_MAX, 1))
        path = tuple(query["path"].split(".")) if query.get("path") else None
        wanted = _Wanted(query.get("text") or None, query.get("author") or None, path, _read_value(query.get("value")))
        if wanted.value is not _ABSENT and path is None:
            raise HTTPException(400, "a value is looked for at a path, as in path=order.total&value=12")
        low, high = _prefix_bounds(query.get("id") or "")
        if "before" in query:
            high = min(high, decode_id(read_id(request, "before")))
        found, place = await self._look(wanted, low, high, limit)
        return JSONResponse({"found": found, "next": place}, headers={"Cache-Control": "no-store"})

    async def _look(self, wanted: _Wanted, low: bytes | None, high: bytes, limit: int) -> tuple[list[dict[str, Any]], str | None]:
        until = time.monotonic() + _ANSWER_S
        found: list[_Found] = []
        place: str | None = None
        while True:
            page = await self._log.run(ask(ReadPage(low, high, True, _PAGE)))
            looking = partial(_look_through, page, wanted.matches, limit - len(found), until)
            last, matching = await trio.to_thread.run_sync(looking, limiter=self._threads)
            found += matching
            if last is None or (is_last_page(page, _PAGE) and last == page[-1][0]):
                break
            high = last
            if len(found) >= limit or time.monotonic() > until:
                place = Entry(last, b"").id
                break
        leaves = await self._log.run(ask(ReadLeaves([key for key, _ in found]))) if found else {}
        return [{**record, "seq": leaves[key].seq} for key, record in found if key in leaves], place


def _look_through(
    page: Sequence[tuple[bytes, bytes]], matches: Callable[[Entry], bool], limit: int, until: float
) -> tuple[bytes | None, list[_Found]]:
    """Return the key of the last entry examined, and what is reported of the matches; the entries themselves are not kept."""
    last: bytes | None = None
    found: list[_Found] = []
    for key, value in page:
        if last is not None and (len(found) >= limit or time.monotonic() > until):
            break
        last = key
        entry = Entry(key, value)
        try:
            if matches(entry):
                found.append((key, {"id": entry.id, "clock": entry.clock, "author": entry.author, "text": excerpt(entry)}))
        except DecodeError:
            continue
    return last, found


def _read_value(text: str | None) -> Any:
    """Read a value as JSON, or else as text."""
    if text is None or text == "":
        return _ABSENT
    try:
        return plain_json.decode(text)
    except DecodeError:
        return text


def _prefix_bounds(prefix: str) -> tuple[bytes | None, bytes]:
    try:
        low, high = (decode_id(prefix.ljust(ID_CHARS, fill)) for fill in "0v")
    except DecodeError:
        raise HTTPException(400, f"id is the beginning of an id, characters of 0-9 and a-v, not {shown(prefix)}") from None
    return key_before(low), high + b"\0"
