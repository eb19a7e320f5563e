"""Requests of HTTP/1.1 and their answers, as an ASGI application sees them, one after the other on a connection that a hub accepted.

The hub listens, because it tells WebSockets from plain HTTP on one port, and looks at every request before it comes here: who it is from,
whom it is for, and which page asks. Nothing waits in a queue: a body is received while the application reads it, and an answer is produced
while the client reads it.

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
"""Of an answer that a client has `SEND_S` for."""
OWN_BYTES = 4_096
"""Of a piece of an answer that are what a connection costs anyhow."""
_ALWAYS = [(b"x-content-type-options", b"nosniff")]
_FAULT = (500, b"a fault of this server\n")


class HttpExchange:
    """Serves one request.

    Args:
        caller: Whom it is from, as far as rights go.
        memory: What it may hold together with all others.
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
                # What is left of it is not read, and what lies after it not found.
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
            # As what is sent here may be sent to others too, it is counted by what it is, and never copied as a whole.
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


# Chunks of a body are read to the letter: h11 would read them too, but takes a bare LF where their trailer ends, and so could be made to
# see another end than a proxy did.
_LINE_BYTES_MAX = 256
_TRAILERS_MAX = 32
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(;[^\r\n]*)?")
_TRAILER = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[^\r\n\0]*")


class ChunkedDecoder:
    """Takes the bytes of a chunked body apart. No input or output."""

    def __init__(self) -> None:
        self.is_complete = False
        self._line = bytearray()
        # Bytes of the chunk that are still to come, with the CRLF after them; 0 where a line is read.
        self._left = 0
        self._trailers: int | None = None

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """Return what the data adds to the body, and what lies after the body's end.

        Raises:
            RemoteProtocolError: It is not chunked to the letter.
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
            # Read over, for nothing here would use them.
            self._trailers += 1
            if self._trailers > _TRAILERS_MAX or not _TRAILER.fullmatch(line):
                raise RemoteProtocolError("the trailer is malformed or too long")


class RequestBody:
    """The body of one request on a connection.

    Args:
        stream: Where it comes from; what lies after the body is left there.
        length: Its bytes; None if it comes in chunks.

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
"""Within which the head of the next request on a connection arrives."""


def serve_app(app: ASGIApp, hub: Hub) -> ServeHttp:
    """Make what serves an application on a hub's port."""
    head_bytes_max, memory = hub.admission.limits.head_bytes_max, Memory()

    async def serve(connection: TcpStream, head: Head, client: str) -> Head | None:
        exchange = HttpExchange(connection, head, client, Caller(hub.admission.limits.access, head.token), memory)
        await exchange.run(app)
        if not exchange.is_over:
            with trio.move_on_after(KEEP_ALIVE_S):
                return await read_head(connection, head_bytes_max)
        return None

    return serve
