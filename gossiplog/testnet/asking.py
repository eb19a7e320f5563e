"""One request of HTTP to a process of the test network, and its answer."""

from __future__ import annotations

import json
from typing import Any

import h11
import trio

from ..errors import CannotConnect

__all__ = ["Refused", "ask", "ask_json"]

_ANSWER_S = 20.0
_RECEIVE_BYTES = 65_536


class Refused(CannotConnect):
    """It answered something other than yes."""


async def ask(place: tuple[str, int], target: str, body: bytes | None = None) -> bytes:
    """Ask: GET, or POST where there is a body.

    Args:
        place: Address and port.
        target: Path and query.
        body: JSON.

    Raises:
        Refused: The status says no.
        CannotConnect: There is no answer, or none within 20 s.
    """
    try:
        with trio.fail_after(_ANSWER_S):
            stream = await trio.open_tcp_stream(*place)
            async with stream:
                return await _exchange(stream, f"{place[0]}:{place[1]}", target, body)
    except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError, trio.TooSlowError) as error:
        raise CannotConnect(f"no answer from {place[0]}:{place[1]}: {error or 'too slow'}") from None


async def ask_json(place: tuple[str, int], target: str, body: bytes | None = None) -> Any:
    """Ask, and read the answer as JSON. Raises as `ask`."""
    try:
        return json.loads(await ask(place, target, body))
    except ValueError:
        raise CannotConnect(f"{place[0]}:{place[1]} answered something else") from None


async def _exchange(stream: trio.SocketStream, host: str, target: str, body: bytes | None) -> bytes:
    connection = h11.Connection(h11.CLIENT)
    headers = [("Host", host), ("Connection", "close")]
    if body is not None:
        headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    data = connection.send(h11.Request(method="GET" if body is None else "POST", target=target, headers=headers)) or b""
    data += (connection.send(h11.Data(data=body)) or b"") if body is not None else b""
    await stream.send_all(data + (connection.send(h11.EndOfMessage()) or b""))
    status, answer = 0, bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(_RECEIVE_BYTES))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            answer += event.data
        else:
            break
    if not 200 <= status < 300:
        raise Refused(f"{host} answered {status}: {answer[:300].decode('utf-8', 'replace').strip()}")
    return bytes(answer)
