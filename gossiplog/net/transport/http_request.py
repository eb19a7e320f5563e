"""One request of HTTP/1.1 and its answer, as a client makes it on a connection of its own. Source: RFC 9112."""

from __future__ import annotations

from typing import Protocol

import h11

from ...errors import RemoteProtocolError

__all__ = ["request"]


class _Bytes(Protocol):
    async def send_all(self, data: bytes) -> None: ...

    async def receive_some(self) -> bytes | bytearray: ...


async def request(stream: _Bytes, host: str, target: str, body: bytes | None = None, *, answer_bytes_max: int) -> tuple[int, bytes]:
    """Ask: GET, or POST where there is a body of JSON. The caller dials, sets a deadline, and closes.

    Args:
        stream: Connected to the server.
        host: What it is called, port included.
        target: Path and query.
        body: JSON.
        answer_bytes_max: How long the answer may be.

    Returns:
        The status, and what was answered.

    Raises:
        RemoteProtocolError: What answers speaks no HTTP, or says more than it may.
    """
    connection = h11.Connection(h11.CLIENT)
    headers = [("Host", host), ("Connection", "close")]
    if body is not None:
        headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    parts = [connection.send(h11.Request(method="GET" if body is None else "POST", target=target, headers=headers))]
    parts += [] if body is None else [connection.send(h11.Data(data=body))]
    parts.append(connection.send(h11.EndOfMessage()))
    await stream.send_all(b"".join(part for part in parts if part))
    status, answer = 0, bytearray()
    try:
        while not isinstance(event := connection.next_event(), h11.EndOfMessage | h11.ConnectionClosed):
            if event is h11.NEED_DATA:
                connection.receive_data(bytes(await stream.receive_some()))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                answer += event.data
                if len(answer) > answer_bytes_max:
                    raise RemoteProtocolError(f"{host} answered more than {answer_bytes_max} bytes")
    except h11.RemoteProtocolError as error:
        raise RemoteProtocolError(f"{host} does not speak HTTP: {error}") from None
    return status, bytes(answer)
