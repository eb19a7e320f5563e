"""Serves an ASGI application over HTTP/1.1, one request after the other, on a connection that a hub accepted.

The hub listens, because WebSockets and plain HTTP share a port. It has already checked each request's client, host and origin. Nothing is
queued: a body is received while the application reads it, and an answer is produced while the client reads it.

Source: RFC 9112 (6 and 7.1 for bodies); the ASGI specification, "HTTP & WebSocket".
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote

import h11
import trio
from starlette.types import ASGIApp

from ...errors import ClosedError, RemoteProtocolError
from ...net.ground.access import Caller
from ...net.ground.journal import note
from ...net.hub.server import Hub, ServeHttp
from ...net.transport.http_head import Head, read_head
from ...net.transport.tcp import TcpStream
from .client_memory import Memory

SEND_S = 20.0
"""How long a client may take to read a piece of an answer."""
PIECE_BYTES = 65_536
"""The size of such a piece."""
OWN_BYTES = 4_096
"""A piece of at most this size does not count towards the clients' memory: a connection costs as much anyway."""
_ALWAYS = [(b"x-content-type-options", b"nosniff")]
_FAULT = (500, b"a fault of this server\n")


class HttpExchange:
    """Serves one request.

    Args:
        caller: The client's rights.
        memory: The memory that all clients share.
    """

    def __init__(self, stream: TcpStream, head: Head, client: str, caller: Caller, memory: Memory) -> None:
        self._stream = stream
        self._head = head
        self._body = RequestBody(stream, head.length)
        self._answers = memory.answers
        self._is_told_complete = False
        self._answer: h11.Response | None = None
        self._is_bodyless = False
        self._is_whole = False
        path, _, query = head.target.partition("?")
        self._scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": head.method,
            "scheme": "https" if stream.is_tls else "http",
            "path": unquote(path),
            "raw_path": path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "root_path": "",
            "headers": list(head.headers),
            "client": (client, 0),
            "server": stream.local_address(),
            "state": {"caller": caller, "memory": memory},
            "extensions": {},
        }

    @property
    def is_over(self) -> bool:
        """Whether no further request may follow on the connection."""
        return not (self._is_whole and self._body.is_complete and self._head.parser.our_state is h11.DONE)

    async def run(self, app: ASGIApp) -> None:
        """Have the application answer.

        Raises:
            ClosedError: The client has gone, or does not read.
        """
        try:
            await app(self._scope, self._receive, self._send)
        except ClosedError:
            raise
        except Exception as error:
            note("fault in a request", level=logging.ERROR, error=error, path=self._head.path)
            if self._answer is None and self._head.parser.our_state is h11.SEND_RESPONSE:
                status, body = _FAULT
                await self._send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"%d" % len(body))]})
                await self._send({"type": "http.response.body", "body": body})

    async def _receive(self) -> dict[str, Any]:
        if not self._is_told_complete:
            if not self._body.is_begun and not self._body.is_complete and not self._stream.beginning:
                await self._continue()
            try:
                data = await self._body.read()
            except ClosedError:
                return {"type": "http.disconnect"}
            self._is_told_complete = self._body.is_complete
            return {"type": "http.request", "body": data, "more_body": not self._body.is_complete}
        await self._wait_gone()
        return {"type": "http.disconnect"}

    async def _continue(self) -> None:
        if self._head.parser.they_are_waiting_for_100_continue:
            await self._write([self._head.parser.send(h11.InformationalResponse(status_code=100, headers=[])) or b""])

    async def _wait_gone(self) -> None:
        """Wait until the client closes the connection. Once it has sent another request instead, nobody looks any further."""
        if not self._stream.beginning:
            try:
                data = await self._stream.receive_some()
            except ClosedError:
                return
            if not data:
                return
            self._stream.beginning = data
        await trio.sleep_forever()

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        parser = self._head.parser
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), *_ALWAYS, (b"date", formatdate(usegmt=True).encode())]
            if not self._body.is_complete:
                # The rest of the body is not read, so the next request cannot be found.
                headers.append((b"connection", b"close"))
            self._answer = h11.Response(status_code=message["status"], headers=headers)
            return
        parts: list[bytes] = []
        if self._answer is not None:
            self._is_bodyless = self._head.method == "HEAD" or self._answer.status_code in (204, 304)
            parts += parser.send_with_data_passthrough(self._answer) or []
            self._answer = None
        if message.get("body") and not self._is_bodyless:
            parts += parser.send_with_data_passthrough(h11.Data(data=message["body"])) or []
        if not message.get("more_body", False):
            parts += parser.send_with_data_passthrough(h11.EndOfMessage()) or []
        if len(message.get("body") or b"") <= OWN_BYTES:
            await self._write(parts)
        else:
            # Several clients may be sent the same bytes, so they are counted by identity and never copied as a whole.
            with self._answers.hold(message["body"]):
                await self._write(parts)
        self._is_whole = not message.get("more_body", False)

    async def _write(self, parts: list[bytes]) -> None:
        if sum(map(len, parts)) <= OWN_BYTES:
            parts = [b"".join(parts)]
        for part in parts:
            view = memoryview(part)
            for at in range(0, len(view), PIECE_BYTES):
                await in_time(self._stream.send_all, view[at : at + PIECE_BYTES])


async def in_time(send: Callable[[Any], Awaitable[None]], piece: object) -> None:
    """Send a piece of an answer.

    Raises:
        ClosedError: The client does not read.
    """
    with trio.move_on_after(SEND_S) as timing:
        await send(piece)
    if timing.cancelled_caught:
        raise ClosedError("the client does not read")


# Chunked bodies are parsed strictly here. h11 accepts a bare LF at the end of a trailer, so a request could end elsewhere for it than for a
# proxy in front.
_LINE_BYTES_MAX = 256
_TRAILERS_MAX = 32
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(;[^\r\n]*)?")
_TRAILER = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[^\r\n\0]*")


class ChunkedDecoder:
    """Parses a chunked body. No input or output."""

    def __init__(self) -> None:
        self.is_complete = False
        self._line = bytearray()
        # Bytes of the chunk that are still to come, including the CRLF after it; 0 while a line is read.
        self._left = 0
        self._trailers: int | None = None

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """Return what the data adds to the body, and the bytes after the body's end.

        Raises:
            RemoteProtocolError: The chunks are malformed.
        """
        pieces: list[bytes] = []
        at = 0
        while at < len(data) and not self.is_complete:
            if self._left > 2:
                piece = data[at : at + self._left - 2]
                pieces.append(piece)
                self._left -= len(piece)
                at += len(piece)
            elif self._left:
                if data[at] != b"\n\r"[self._left - 1]:
                    raise RemoteProtocolError("a chunk is longer than it says")
                self._left -= 1
                at += 1
            else:
                end = data.find(b"\n", at) + 1 or len(data)
                self._line += data[at:end]
                at = end
                if len(self._line) > _LINE_BYTES_MAX:
                    raise RemoteProtocolError(f"a line between chunks has more than {_LINE_BYTES_MAX} bytes")
                if self._line.endswith(b"\n"):
                    self._on_line()
        return b"".join(pieces), data[at:]

    def _on_line(self) -> None:
        line, self._line = bytes(self._line), bytearray()
        if not line.endswith(b"\r\n"):
            raise RemoteProtocolError("a line between chunks does not end with CRLF")
        line = line[:-2]
        if self._trailers is None:
            size = _SIZE.fullmatch(line)
            if size is None:
                raise RemoteProtocolError("a chunk does not begin with its size")
            self._left = int(size[1], 16)
            if self._left:
                self._left += 2
            else:
                self._trailers = 0
        elif not line:
            self.is_complete = True
        else:
            # A trailer; nothing here uses any.
            self._trailers += 1
            if self._trailers > _TRAILERS_MAX or not _TRAILER.fullmatch(line):
                raise RemoteProtocolError("the trailer is malformed or too long")


class RequestBody:
    """The body of one request on a connection.

    Args:
        stream: The connection. Bytes after the body are left there.
        length: The body's bytes; None if it is chunked.

    Attributes:
        is_complete: It was read to its end, so another request may follow.
    """

    def __init__(self, stream: TcpStream, length: int | None) -> None:
        self.is_complete = length == 0
        self.is_begun = False
        self._stream = stream
        self._left = length
        self._chunks = ChunkedDecoder() if length is None else None

    async def read(self) -> bytes:
        """Return the next bytes; `b""` at the end.

        Raises:
            RemoteProtocolError: The body is malformed.
            ClosedError: The connection ended within it.
        """
        self.is_begun = True
        while not self.is_complete:
            data = await self._stream.receive_some()
            if not data:
                raise ClosedError("closed within a request")
            if self._chunks is not None:
                piece, rest = self._chunks.take(data)
                self.is_complete = self._chunks.is_complete
            else:
                assert self._left is not None
                piece, rest = data[: self._left], data[self._left :]
                self._left -= len(piece)
                self.is_complete = self._left == 0
            self._stream.beginning = rest
            if piece:
                return piece
        return b""


KEEP_ALIVE_S = 15.0
"""How long a connection waits for the head of the next request."""


def serve_app(app: ASGIApp, hub: Hub) -> ServeHttp:
    """Return the function that serves an application on a hub's port."""
    head_bytes_max, memory = hub.admission.limits.head_bytes_max, Memory()

    async def serve(connection: TcpStream, head: Head, client: str) -> Head | None:
        exchange = HttpExchange(connection, head, client, Caller(hub.admission.limits.access, head.token), memory)
        await exchange.run(app)
        if not exchange.is_over:
            with trio.move_on_after(KEEP_ALIVE_S):
                return await read_head(connection, head_bytes_max)
        return None

    return serve
