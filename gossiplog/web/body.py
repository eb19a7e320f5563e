"""The body of a request, for the endpoint that wants it: of a length that it names, at a pace, and within what all may hold together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request

from ..errors import RemoteProtocolError
from .client_memory import GaveWay, Holder, Memory

__all__ = ["BODY_PIECE_BYTES", "BODY_PIECE_S", "memory_of", "reading"]

BODY_PIECE_BYTES, BODY_PIECE_S = 64 * 1024, 5.0
"""A body brings this many bytes in this many seconds, or ends within them."""


def memory_of(request: Request) -> Memory:
    """Return what the server's clients hold."""
    memory: Memory = request.scope["state"]["memory"]
    return memory


@asynccontextmanager
async def reading(request: Request, bytes_max: int) -> AsyncIterator[bytes]:
    """Read a body, which counts as held for the length of a block.

    Raises:
        HTTPException: 413, it is too long; 408, it comes too slowly; 400, it is malformed or not whole; 503, others needed the memory,
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
