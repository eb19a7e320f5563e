"""What stands after the `?` of a request. A parameter that is unknown or cannot be read is refused by its name, with what was sent."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..entry.message_id import ID_CHARS, decode_id
from ..errors import DecodeError

__all__ = ["BOUNDS", "PAGE_MAX", "Range", "check_parameters", "read_limit", "read_range", "shown", "without_parameters"]

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

BOUNDS = ("gt", "gte", "lt", "lte")
PAGE_MAX = 64
_SHOWN_MAX = 64


class Range(NamedTuple):
    """Keys between two bounds, exclusive; None where there is none."""

    after: bytes | None
    before: bytes | None


def shown(text: str) -> str:
    """Quote what a client sent, not at length."""
    return json.dumps(text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…")


def check_parameters(request: Request, *known: str) -> None:
    """Refuse a parameter that nothing would come of."""
    for name in request.query_params:
        if name not in known:
            those = f"; there are {', '.join(known)}" if known else ""
            raise HTTPException(400, f"there is no parameter {shown(name)} here{those}")


def without_parameters(endpoint: Endpoint) -> Endpoint:
    """Refuse all parameters of an endpoint that takes none."""

    async def checked(request: Request) -> Response:
        check_parameters(request)
        return await endpoint(request)

    return checked


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
        # All ids that begin with less than an id come after it.
        is_whole = len(bound) == ID_CHARS
        if name in ("gt", "gte"):
            low = key if name == "gt" and is_whole else _key_before(key)
            after = low if after is None else max(after, low or b"")
        else:
            high = key + b"\0" if name == "lte" and is_whole else key
            before = high if before is None else min(before, high)
    return Range(after, before)


def _key_before(key: bytes) -> bytes | None:
    return (int.from_bytes(key) - 1).to_bytes(len(key)) if any(key) else None


def read_limit(request: Request) -> int:
    """Read `limit`."""
    text = request.query_params.get("limit", str(PAGE_MAX))
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 0 < int(text) <= PAGE_MAX):
        raise HTTPException(400, f"limit is a number from 1 to {PAGE_MAX}, not {shown(text)}")
    return int(text)
