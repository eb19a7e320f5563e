"""The query of a request, and its body.

An unknown or malformed parameter is refused by name, with its value. A body has a maximum length and a minimum rate, and counts towards the
memory that all clients may hold together.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request

from ...codec.digits import read_digits
from ...entry.message_id import ID_CHARS, decode_id, is_id
from ...errors import DecodeError, RemoteProtocolError
from ...tree.node import key_before
from .client_memory import GaveWay, Holder, Memory

BOUNDS = ("gt", "gte", "lt", "lte")
PAGE_MAX = 64
_SHOWN_MAX = 64
_NUMBER_MAX = 10**15 - 1


class Range(NamedTuple):
    """Keys between two bounds, exclusive; None where there is none."""

    after: bytes | None
    before: bytes | None


def shown(text: str) -> str:
    """Quote what a client sent, shortened."""
    return json.dumps(text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…")


def check_parameters(request: Request, *known: str) -> None:
    """Refuse a parameter that would have no effect."""
    for name in request.query_params:
        if name not in known:
            those = f"; there are {', '.join(known)}" if known else ""
            raise HTTPException(400, f"there is no parameter {shown(name)} here{those}")


def read_range(request: Request) -> Range:
    """Read `gt`, `gte`, `lt` and `lte`."""
    after: bytes | None = None
    before: bytes | None = None
    for name, bound in request.query_params.multi_items():
        if name not in BOUNDS:
            continue
        try:
            if not (0 < len(bound) <= ID_CHARS):
                raise DecodeError("too short or too long")
            key = decode_id(bound.ljust(ID_CHARS, "0"))
        except DecodeError:
            reason = f"{name} is an id, {ID_CHARS} characters of 0-9 and a-v, or the beginning of one, not {shown(bound)}"
            raise HTTPException(400, reason) from None
        # A prefix of an id stands for all ids that begin with it.
        is_whole = len(bound) == ID_CHARS
        if name in ("gt", "gte"):
            low = key if name == "gt" and is_whole else key_before(key)
            after = low if after is None else max(after, low or b"")
        else:
            high = key + b"\0" if name == "lte" and is_whole else key
            before = high if before is None else min(before, high)
    return Range(after, before)


def read_number(request: Request, name: str, default: int, least: int = 0, most: int = _NUMBER_MAX) -> int:
    """Read a parameter that is a number."""
    text = request.query_params.get(name, str(default))
    number = read_digits(text, least, most)
    if number is None:
        raise HTTPException(400, f"{name} is a number from {least} to {most}, not {shown(text)}")
    return number


def read_id(request: Request, name: str) -> str:
    """Read a parameter that is a whole id."""
    id = request.query_params.get(name, "")
    if not is_id(id):
        raise HTTPException(400, f"{name} is the id of an entry, {ID_CHARS} characters of 0-9 and a-v, not {shown(id)}")
    return id


BODY_PIECE_BYTES, BODY_PIECE_S = 64 * 1024, 5.0
"""A body must bring this many bytes in this many seconds, or end within them."""


def memory_of(request: Request) -> Memory:
    """Return the memory account of the server's clients."""
    memory: Memory = request.scope["state"]["memory"]
    return memory


@asynccontextmanager
async def reading(request: Request, bytes_max: int) -> AsyncIterator[bytes]:
    """Read a body; its memory counts as held for the length of a block.

    Raises:
        HTTPException: 413, it is too long; 408, it comes too slowly; 400, it is malformed or not complete; 503, others needed the memory,
            before or within the block.
    """
    too_large = HTTPException(413, f"a body has at most {bytes_max} bytes")
    if int(request.headers.get("content-length", "0")) > bytes_max:
        raise too_large
    try:
        with memory_of(request).bodies.hold() as holder:
            body = await _read(request, bytes_max, holder)
            if body is None:
                raise too_large
            yield body
    except GaveWay:
        raise HTTPException(503, "more bodies arrive than there is room for", headers={"Retry-After": "5"}) from None


async def _read(request: Request, bytes_max: int, holder: Holder) -> bytes | None:
    """Return it; None if it is too long."""
    body = bytearray()
    with trio.move_on_after(BODY_PIECE_S) as timing:
        wanted = BODY_PIECE_BYTES
        try:
            # Not by `request.stream`, a generator that nobody would close.
            while (message := await request.receive())["type"] == "http.request":
                body += message["body"]
                holder.take(len(body))
                if len(body) > bytes_max:
                    return None
                if not message["more_body"]:
                    return bytes(body)
                if len(body) >= wanted:
                    wanted = len(body) + BODY_PIECE_BYTES
                    timing.deadline = trio.current_time() + BODY_PIECE_S
        except RemoteProtocolError as error:
            raise HTTPException(400, f"the body is malformed: {error}") from None
    if timing.cancelled_caught:
        raise HTTPException(408, f"of the body less than {BODY_PIECE_BYTES // 1024} KiB arrived within {BODY_PIECE_S:g} s")
    raise HTTPException(400, "the body did not arrive whole")
