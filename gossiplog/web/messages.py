"""The HTTP API of the reference for one log: its clock, its entries one by one and page by page, and a way to post signed ones.

    GET  clock              {"clock": …, "parents": […]}: what the next append will have
    GET  messages           [{"id", "branch", "signature", "message"}, …]   ?gt= gte= lt= lte= order=asc|desc limit=1…64
    GET  messages/count     {"count": …}                                    ?gt= gte= lt= lte=
    GET  messages/<id>      {"id", "signature", "message"}
    POST messages           {"signature", "message"} in dag-json or dag-cbor: 201 and Location, however often; 400 with a reason

Entries are dag-json, which says what JSON cannot: bytes and links. A range's ends are ids or the beginnings of ids.

Source: spec/sync.md, "Mode A"; `@canvas-js/gossiplog` 0.13.14, `api.ts`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import NamedTuple

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..archive.jsonl import DEPTH_MAX, entry_to_line, record_to_value
from ..codec import dag_json, pcf
from ..errors import DecodeError, NotFound, StoreError
from ..gossip_log import GossipLog
from ..log.envelope import next_clock
from ..log.message import Entry
from ..log.message_id import ID_CHARS, decode_id, encode_id, is_id
from ..log.reads import ReadHeads, ReadLeaves, ReadPage
from ..net.journal import note
from ..plan import ask
from .streamed import Streamed, Write

__all__ = ["PAGE_MAX", "MessagesApi"]

PAGE_MAX = 64
BODY_BYTES_MAX = 6 * 2**20
"""Room for the largest VALUE in dag-cbor, and in dag-json with its bytes in base64."""
BODY_S = 30.0
"""How long a body may take to arrive."""
COUNTED_MAX = 100_000
"""Entries of a range that are counted; a count of all entries has no limit."""
_CHUNK = 8
"""Entries read and written at a time, so that a page of large ones does not lie in memory whole."""


class _Range(NamedTuple):
    """Keys between two bounds, exclusive; None where there is none."""

    after: bytes | None
    before: bytes | None


class MessagesApi:
    """Serves one log.

    Args:
        log: Open.
    """

    def __init__(self, log: GossipLog) -> None:
        self._log = log

    async def clock(self, request: Request) -> Response:
        """GET clock."""
        heads = await self._log.run(ask(ReadHeads()))
        return JSONResponse({"clock": next_clock(heads), "parents": [encode_id(key) for key in heads]})

    async def count(self, request: Request) -> Response:
        """GET messages/count."""
        wanted = _range(request)
        return JSONResponse({"count": await self._log.count() if wanted == _Range(None, None) else await self._count(wanted)})

    async def get(self, request: Request) -> Response:
        """GET messages/<id>."""
        id = request.path_params["id"]
        if not is_id(id):
            raise HTTPException(404, "no such entry")
        try:
            entry = await self._log.get(id)
        except NotFound:
            raise HTTPException(404, "no such entry") from None
        return Response(entry_to_line(entry), media_type="application/json")

    async def page(self, request: Request) -> Response:
        """GET messages."""
        wanted, limit = _range(request), _limit(request)
        order = request.query_params.get("order", "asc")
        if order not in ("asc", "desc"):
            raise HTTPException(400, "order is asc or desc")
        return Streamed(partial(self._write_page, wanted, order == "desc", limit), media_type="application/json")

    async def post(self, request: Request) -> Response:
        """POST messages."""
        value = _decode_body(request.headers.get("content-type", ""), await _read_body(request))
        try:
            verdict = await self._log.insert(value)
        except StoreError as error:
            note("posted entry not stored", level=logging.ERROR, reason=str(error))
            raise HTTPException(503, "the entry could not be stored, through no fault of yours") from None
        if not verdict.accepted or verdict.entry is None:
            raise HTTPException(400, f"{verdict.rule}: {verdict.reason}")
        return Response(status_code=201, headers={"Location": f"messages/{verdict.entry.id}"})

    async def _write_page(self, wanted: _Range, is_reverse: bool, limit: int, write: Write) -> None:
        after, before = wanted
        separator = b"["
        while limit > 0:
            rows = await self._log.run(ask(ReadPage(after, before, is_reverse, min(limit, _CHUNK))))
            leaves = await self._log.run(ask(ReadLeaves([key for key, _ in rows]))) if rows else {}
            for key, value in rows:
                await write(separator + _with_branch(Entry(key, value), leaves[key].branch))
                separator = b","
            limit -= len(rows)
            if len(rows) < _CHUNK:
                break
            if is_reverse:
                before = rows[-1][0]
            else:
                after = rows[-1][0]
        await write(b"[]" if separator == b"[" else b"]")

    async def _count(self, wanted: _Range) -> int:
        after, before = wanted
        count = 0
        while rows := await self._log.run(ask(ReadPage(after, before, False, 256))):
            count += len(rows)
            after = rows[-1][0]
            if count > COUNTED_MAX:
                raise HTTPException(400, f"more than {COUNTED_MAX} entries in the range: count a part of it")
        return count


def _with_branch(entry: Entry, branch: int) -> bytes:
    """A line of dag-json with the branch, whose place among the sorted keys is the first."""
    return b'{"branch":%d,' % branch + entry_to_line(entry)[1:]


def _range(request: Request) -> _Range:
    after: bytes | None = None
    before: bytes | None = None
    for name, bound in request.query_params.multi_items():
        if name not in ("gt", "gte", "lt", "lte"):
            continue
        if not (0 < len(bound) <= ID_CHARS):
            raise HTTPException(400, f"{name} is an id, or the beginning of one")
        try:
            key = decode_id(bound.ljust(ID_CHARS, "0"))
        except DecodeError:
            raise HTTPException(400, f"{name} is an id, or the beginning of one") from None
        # All ids that begin with less than an id come after it.
        is_whole = len(bound) == ID_CHARS
        if name in ("gt", "gte"):
            low = key if name == "gt" and is_whole else _key_before(key)
            after = low if after is None else max(after, low or b"")
        else:
            high = key + b"\0" if name == "lte" and is_whole else key
            before = high if before is None else min(before, high)
    return _Range(after, before)


def _key_before(key: bytes) -> bytes | None:
    return (int.from_bytes(key) - 1).to_bytes(len(key)) if any(key) else None


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", str(PAGE_MAX))
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 0 < int(text) <= PAGE_MAX):
        raise HTTPException(400, f"limit is a number from 1 to {PAGE_MAX}")
    return int(text)


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    with trio.move_on_after(BODY_S) as timing:
        # Not by `request.stream`, a generator that nobody would close.
        while (message := await request.receive())["type"] == "http.request":
            body += message.get("body", b"")
            if len(body) > BODY_BYTES_MAX:
                raise HTTPException(413, f"a body has at most {BODY_BYTES_MAX} bytes")
            if not message.get("more_body", False):
                return bytes(body)
    if timing.cancelled_caught:
        raise HTTPException(408, f"the body did not arrive within {BODY_S:g} s")
    raise HTTPException(400, "the body did not arrive whole")


def _decode_body(content_type: str, body: bytes) -> bytes:
    """Build the VALUE that a body describes."""
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == "application/json":
            return record_to_value(dag_json.decode(body, depth_max=DEPTH_MAX))
        if kind == "application/cbor":
            return record_to_value(pcf.decode(body, depth_max=DEPTH_MAX))
    except DecodeError as error:
        raise HTTPException(400, f"the body is no entry: {error}") from None
    raise HTTPException(400, "the content type is application/json for dag-json, or application/cbor for dag-cbor")
