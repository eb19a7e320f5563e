"""HTTP requests to the processes of a test network."""

from __future__ import annotations

from typing import Any

import trio

from ..codec import plain_json
from ..errors import CannotConnect, DecodeError, RemoteProtocolError
from ..net.transport.http_request import request

_ANSWER_S = 20.0
_ANSWER_BYTES_MAX = 64 * 2**20


async def ask(place: tuple[str, int], target: str, body: bytes | None = None) -> bytes:
    """Send GET, or POST if there is a body, and return the body of the answer.

    Raises:
        CannotConnect: There is no answer within 20 s, or its status is not 2xx.
    """
    try:
        with trio.fail_after(_ANSWER_S):
            stream = await trio.open_tcp_stream(*place)
            async with stream:
                answer = await request(stream, f"{place[0]}:{place[1]}", target, body, answer_bytes_max=_ANSWER_BYTES_MAX)
    except (OSError, trio.BrokenResourceError, RemoteProtocolError, trio.TooSlowError) as error:
        raise CannotConnect(f"no answer from {place[0]}:{place[1]}: {error or 'too slow'}") from None
    if not 200 <= answer.status < 300:
        raise CannotConnect(f"{place[0]}:{place[1]} answered {answer.status}: {answer.body[:300].decode('utf-8', 'replace').strip()}")
    return answer.body


async def ask_json(place: tuple[str, int], target: str, body: bytes | None = None) -> Any:
    """Do as `ask`, and decode the answer as JSON. Raises CannotConnect if it is none, too."""
    try:
        return plain_json.decode(await ask(place, target, body))
    except DecodeError:
        raise CannotConnect(f"{place[0]}:{place[1]} answered with something other than JSON") from None
