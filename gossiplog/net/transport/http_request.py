"""One HTTP/1.1 request of a client, on a connection of its own, and the answer. Source: RFC 9112."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import h11

from ...errors import LocalProtocolError, RemoteProtocolError

_SAID_CHARS_MAX = 200


class _Bytes(Protocol):
    async def send_all(self, data: bytes) -> None: ...

    async def receive_some(self) -> bytes | bytearray: ...


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer.

    Attributes:
        headers: Names in lower case, and values.
    """

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes

    def first(self, name: bytes) -> str | None:
        """Return the first value of a header as text; None if there is none. The name is in lower case."""
        return next((value.decode("latin-1") for each, value in self.headers if each == name), None)


async def request(
    stream: _Bytes,
    host: str,
    target: str,
    body: bytes | None = None,
    *,
    headers: Sequence[tuple[str, str]] = (),
    answer_bytes_max: int,
) -> HttpAnswer:
    """Send a GET, or a POST with a body of JSON, and return the answer. The caller dials, sets a deadline, and closes.

    Args:
        body: A JSON text to POST; None for a GET.

    Raises:
        RemoteProtocolError: The server does not speak HTTP, or its answer is too long.
        LocalProtocolError: The target or a header cannot be sent.
    """
    connection = h11.Connection(h11.CLIENT)
    sent = [("Host", host), ("Connection", "close"), *headers]
    if body is not None:
        sent += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    try:
        parts = [connection.send(h11.Request(method="GET" if body is None else "POST", target=target, headers=sent))]
    except (h11.LocalProtocolError, UnicodeError) as error:
        raise LocalProtocolError(f"cannot send this request to {host}: {error}") from None
    parts += [] if body is None else [connection.send(h11.Data(data=body))]
    parts.append(connection.send(h11.EndOfMessage()))
    await stream.send_all(b"".join(part for part in parts if part))
    response: h11.Response | None = None
    answer = bytearray()
    try:
        while not isinstance(event := connection.next_event(), h11.EndOfMessage | h11.ConnectionClosed):
            if event is h11.NEED_DATA:
                data = bytes(await stream.receive_some())
                if not data and response is None:
                    raise RemoteProtocolError(f"{host} closed the connection without an answer")
                connection.receive_data(data)
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                answer += event.data
                if len(answer) > answer_bytes_max:
                    raise RemoteProtocolError(f"{host} answered more than {answer_bytes_max} bytes")
            elif event is h11.PAUSED:
                break
    except h11.RemoteProtocolError as error:
        raise RemoteProtocolError(f"{host} does not speak HTTP: {str(error)[:_SAID_CHARS_MAX]}") from None
    if response is None:
        raise RemoteProtocolError(f"{host} closed the connection without an answer")
    return HttpAnswer(response.status_code, tuple(response.headers), bytes(answer))
