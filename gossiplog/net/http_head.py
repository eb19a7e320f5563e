"""The head of the first request on a connection, which tells a WebSocket from plain HTTP. The parser is h11."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

import h11

from ..errors import ClosedError, RemoteProtocolError
from .stream import ByteStream

__all__ = ["Head", "read_head", "refuse"]


@dataclass(frozen=True, slots=True)
class Head:
    """A request up to its body.

    Attributes:
        raw: All that was received, which may be more.
        target: Path and query, as they were sent.
        headers: Names in lower case and values, as they were sent.
    """

    raw: bytes
    target: str
    headers: tuple[tuple[bytes, bytes], ...]

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def is_upgrade(self) -> bool:
        """Whether a WebSocket is asked for."""
        return b"websocket" in [value.strip().lower() for value in self.all(b"upgrade")]

    def all(self, name: bytes) -> list[bytes]:
        """Return all values of a header, whose name is given in lower case, in their order."""
        return [value for each, value in self.headers if each == name]

    def first(self, name: bytes) -> str | None:
        """Return the first value of a header as text; None if there is none."""
        values = self.all(name)
        return values[0].decode("latin-1") if values else None


async def read_head(stream: ByteStream, bytes_max: int) -> Head:
    """Read until the head of a request is complete. The caller sets a deadline.

    Args:
        stream: A fresh connection.
        bytes_max: A longer one is refused.

    Raises:
        RemoteProtocolError: It is too long, or no HTTP; the peer was told.
        ClosedError: The connection broke, or ended before.
    """
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=bytes_max)
    raw = bytearray()
    try:
        while (event := parser.next_event()) is h11.NEED_DATA:
            data = await stream.receive_some()
            if not data:
                raise ClosedError("closed before a request")
            raw += data
            parser.receive_data(data)
    except h11.RemoteProtocolError as error:
        await refuse(stream, error.error_status_hint, "this is no request that can be served")
        raise RemoteProtocolError(f"no request of HTTP: {error}") from None
    if not isinstance(event, h11.Request):
        raise ClosedError("closed before a request")
    return Head(bytes(raw), event.target.decode("latin-1"), tuple(event.headers))


async def refuse(stream: ByteStream, status: int, reason: str) -> None:
    """Answer with an error, after which the caller closes the connection.

    Raises:
        ClosedError: The connection broke.
    """
    body = reason.encode() + b"\n"
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
    fields = f"content-type: text/plain; charset=utf-8\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    await stream.send_all((head + fields).encode() + body)
