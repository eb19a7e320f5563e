"""The HTTP API of the reference for one log: its clock, its entries one by one and page by page, and a way to post signed ones.

    GET  clock              {"clock": …, "parents": […]}: what the next append will have
    GET  messages           [{"id", "branch", "signature", "message"}, …]   ?gt= gte= lt= lte= order=asc|desc limit=1…64
    GET  messages/count     {"count": …}                                    ?gt= gte= lt= lte=
    GET  messages/<id>      {"id", "signature", "message"}
    GET  ancestors/<id>     [{"clock": …, "links": […]}, …]: the latest ancestors with at most this clock
    POST messages           {"signature", "message"} in dag-json or dag-cbor: 201 and Location, however often; 400 with a reason

Entries are dag-json, which says what JSON cannot: bytes and links. A range's ends are ids or the beginnings of ids.

Source: docs/spec/sync.md, "Mode A"; `@canvas-js/gossiplog` 0.13.14, `api.ts`, and of 0.16.1 for ancestors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..archive.jsonl import DEPTH_MAX, cbor_to_value, entry_to_line, record_to_value
from ..broadcast.allowance import Allowance, Bringer, Wait
from ..codec import dag_json
from ..entry.message import Entry
from ..entry.message_id import encode_id, is_id
from ..entry.rules import Rule, next_clock
from ..entry.validation import Outcome, Verdict
from ..errors import DecodeError, NotFound
from ..limits import address_group
from ..log.ancestry import AncestorWalk
from ..log.page import is_last_page
from ..log.requests import ReadHeads, ReadLeaves, ReadPage
from ..net.ground.admission import Admission
from ..net.service.intake import CLOSING
from ..net.service.service import Service
from ..plan import ask
from .http.requests import BOUNDS, PAGE_MAX, Range, check_parameters, memory_of, read_number, read_range, reading, shown
from .http.streamed import Streamed, Write

BODY_BYTES_MAX = 6 * 2**20
"""Room for an entry of 4 MiB, the most that goes over the network, as dag-json, where bytes take a third more."""
_INLINE_BYTES_MAX = 16 * 1024
"""A larger body is decoded in a thread, so that the event loop does not stand still."""
COUNTED_MAX = 100_000
"""Entries of a range that are counted; a count of all entries has no limit."""
WALKED_MAX = 100_000
"""The most ancestors that are read and named for one answer. The reference has an index of them; we walk."""
_WALKED = 256
_NOT_TAKEN = frozenset({Rule.UNWELCOME, Rule.QUOTA})
_CHUNK = 8
_CHUNK_BYTES = 512 * 1024
"""Entries read and written at a time; one by one if the last ones were large."""


class ReferenceApi:
    """Serves one log."""

    def __init__(self, service: Service, allowance: Allowance, admission: Admission) -> None:
        self._service = service
        self._log = service.log
        self._allowance = allowance
        self._admission = admission
        self._forgeries = admission.forgeries

    async def clock(self, request: Request) -> Response:
        """GET clock."""
        heads = await self._log.run(ask(ReadHeads()))
        return JSONResponse({"clock": next_clock(heads), "parents": [encode_id(key) for key in heads]})

    async def count(self, request: Request) -> Response:
        """GET messages/count."""
        wanted = read_range(request)
        return JSONResponse({"count": await self._log.count() if wanted == Range(None, None) else await self._count(wanted)})

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

    async def ancestors(self, request: Request) -> Response:
        """GET ancestors/<id>: empty for an entry that is not here, and for one with clock 1 or 0.

        For an entry with clock c, the answer has the clocks c − 1, c − 2, c − 4, … above 0, in ascending order. The links of each are the
        ancestors with at most this clock that have a child above it among the ancestors and the entry: every path from the entry to
        something as old passes through one.
        """
        id = request.path_params["id"]
        if not is_id(id):
            raise HTTPException(404, "no such entry")
        try:
            entry = await self._log.get(id)
        except NotFound:
            return JSONResponse([])
        walk = AncestorWalk(entry)
        found: list[dict[str, object]] = []
        left = WALKED_MAX
        for clock in (entry.clock - 2**n for n in range(max(0, entry.clock - 1).bit_length())):
            while left >= 0 and (page := await self._log.run(walk.page(_WALKED, clock))):
                left -= len(page)
            links = walk.frontier()
            left -= len(links)
            if left < 0:
                raise HTTPException(400, f"more than {WALKED_MAX} ancestors would have to be read and named")
            found.append({"clock": clock, "links": list(map(encode_id, links))})
        return JSONResponse(found[::-1])

    async def messages(self, request: Request) -> Response:
        """GET and POST messages."""
        return await (self.post(request) if request.method == "POST" else self.page(request))

    async def page(self, request: Request) -> Response:
        """GET messages."""
        check_parameters(request, *BOUNDS, "order", "limit")
        wanted, limit = read_range(request), read_number(request, "limit", PAGE_MAX, 1, PAGE_MAX)
        order = request.query_params.get("order", "asc")
        if order not in ("asc", "desc"):
            raise HTTPException(400, f"order is asc or desc, not {shown(order)}")
        return Streamed(partial(self._write_page, wanted, order == "desc", limit), media_type="application/json")

    async def post(self, request: Request) -> Response:
        """POST messages."""
        address = request.scope["client"][0]
        wait_s = self._forgeries.wait_s(address)
        if wait_s:
            raise HTTPException(429, "too many forged entries came from this address", headers={"Retry-After": str(wait_s)})
        value = await self._read_value(request)
        group = self._group(address)
        (verdict,) = await self._service.intake.take_in("post", [(b"", value)], Bringer(self._allowance, group))
        if verdict.rule in _NOT_TAKEN and verdict.entry is not None and await self._log.has(verdict.entry.id):
            # A client that did not get our answer asks again, and would take a refusal for a refusal of the entry.
            verdict = Verdict(Outcome.ACCEPT, entry=verdict.entry)
        self._note(verdict, address)
        if verdict.rule == Rule.STORAGE:
            is_closing = verdict.reason == CLOSING
            raise HTTPException(503, CLOSING if is_closing else "the entry could not be stored, through no fault of yours")
        if verdict.rule == Rule.UNWELCOME:
            raise HTTPException(403, f"{verdict.reason}")
        if verdict.rule == Rule.QUOTA and verdict.entry is not None:
            # None if it might be accepted by now.
            wait = self._allowance.find_wait(verdict.entry, group, trio.current_time()) or Wait(verdict, 1)
            raise HTTPException(429, f"{wait.verdict.reason}", headers={"Retry-After": str(wait.seconds or 1)})
        if verdict.rule == Rule.SIGNATURE:
            self._forgeries.count(address)
        if not verdict.accepted or verdict.entry is None:
            raise HTTPException(400, f"{verdict.rule}: {verdict.reason}")
        return Response(status_code=201, headers={"Location": f"messages/{verdict.entry.id}"})

    def _note(self, verdict: Verdict, address: str) -> None:
        self._service.figures.count("post", verdict)
        if self._service.observer is not None:
            self._service.observer.on_post(verdict, address)

    def _group(self, address: str) -> str | None:
        return None if self._admission.is_exempt(address) else address_group(address)

    async def _write_page(self, wanted: Range, is_reverse: bool, limit: int, write: Write) -> None:
        separator = b"["
        chunk = 1
        while limit > 0:
            wanted_rows = min(limit, chunk)
            rows = await self._log.run(ask(ReadPage(*wanted, is_reverse, wanted_rows)))
            is_last, size, limit = is_last_page(rows, wanted_rows), sum(len(value) for _, value in rows), limit - len(rows)
            if rows:
                wanted = wanted._replace(**{"before" if is_reverse else "after": rows[-1][0]})
                body = await self._to_lines(rows, separator)
                # Only the answer waits to be sent.
                del rows
                await write(body)
                separator = b","
            if is_last:
                break
            chunk = _CHUNK if size <= _CHUNK_BYTES else 1
        await write(b"[]" if separator == b"[" else b"]")

    async def _to_lines(self, rows: Sequence[tuple[bytes, bytes]], separator: bytes) -> bytes:
        leaves = await self._log.run(ask(ReadLeaves([key for key, _ in rows])))
        parts = []
        for key, value in rows:
            parts += [separator, _with_branch(Entry(key, value), leaves[key].branch)]
            separator = b","
            if len(value) > _INLINE_BYTES_MAX:
                await trio.lowlevel.checkpoint()
        return b"".join(parts)

    async def _read_value(self, request: Request) -> bytes:
        """Read a body and build the VALUE that it describes. The body's memory is released at once."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in _DECODERS:
            raise HTTPException(400, "the content type is application/json for dag-json, or application/cbor for dag-cbor")
        is_large = False
        async with reading(request, BODY_BYTES_MAX) as body:
            is_large = len(body) > _INLINE_BYTES_MAX
            found = (
                await trio.to_thread.run_sync(_decode_body, kind, body, limiter=memory_of(request).decoding)
                if is_large
                else _decode_body(kind, body)
            )
            del body
        if isinstance(found, bytes):
            return found
        if is_large:
            # Seconds of work for nothing cost as much as a forgery.
            self._forgeries.count(request.scope["client"][0])
        raise HTTPException(400, f"the body is no entry: {found}")

    async def _count(self, wanted: Range) -> int:
        after, before = wanted
        count = 0
        while rows := await self._log.run(ask(ReadPage(after, before, False, 256))):
            count += len(rows)
            after = rows[-1][0]
            if count > COUNTED_MAX:
                raise HTTPException(400, f"more than {COUNTED_MAX} entries in the range: count a part of it")
        return count


def _with_branch(entry: Entry, branch: int) -> bytes:
    """Return a line of dag-json with the branch, which is the first of the sorted keys."""
    return b'{"branch":%d,' % branch + entry_to_line(entry)[1:]


def _decode_body(kind: str, body: bytes) -> bytes | str:
    """Return the VALUE, or why there is none. No error leaves this frame: its traceback would keep everything built from the body until
    the next full garbage collection, which nothing but many small objects brings about."""
    try:
        return _DECODERS[kind](body)
    except DecodeError as error:
        return str(error)


_DECODERS: Mapping[str, Callable[[bytes], bytes]] = {
    "application/json": lambda body: record_to_value(dag_json.decode(body, depth_max=DEPTH_MAX)),
    "application/cbor": cbor_to_value,
}
