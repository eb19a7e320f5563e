"""One request of HTTP/1.1 and its answer, as an ASGI application sees them. What is not read is not received, what is not read by the
client is not produced: there is no queue between.

Source: RFC 9112; the ASGI specification, "HTTP & WebSocket".
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote

import h11
import trio
from starlette.types import ASGIApp

from ..errors import ClosedError
from ..net.ground.journal import note
from ..net.transport.http_head import Head
from ..net.transport.tcp import TcpStream
from .client_memory import Memory
from .request_body import RequestBody

__all__ = ["SEND_S", "Exchange"]

SEND_S = 20.0
"""How long a client may take to read a piece of an answer."""
_PIECE_BYTES = 65_536
_OWN_BYTES = 4_096
"""Of a piece of an answer that are what a connection costs anyhow."""
_ALWAYS = [(b"x-content-type-options", b"nosniff")]
_FAULT = (500, b"a fault of this server\n")


class Exchange:
    """Serves one request.

    Args:
        stream: The connection, which begins with the request's body.
        head: The request.
        client: Whom it is from.
        memory: What it may hold together with all others.
    """

    def __init__(self, stream: TcpStream, head: Head, client: str, memory: Memory) -> None:
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
            "state": {"token": head.token, "memory": memory},
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
        if len(message.get("body") or b"") <= _OWN_BYTES:
            await self._write(parts)
        else:
            # As what is sent here may be sent to others too, it is counted by what it is, and never copied as a whole.
            with self._answers.hold(message["body"]):
                await self._write(parts)
        self._is_whole = not message.get("more_body", False)

    async def _write(self, parts: list[bytes]) -> None:
        if sum(map(len, parts)) <= _OWN_BYTES:
            parts = [b"".join(parts)]
        for part in parts:
            view = memoryview(part)
            for at in range(0, len(view), _PIECE_BYTES):
                with trio.move_on_after(SEND_S) as timing:
                    await self._stream.send_all(view[at : at + _PIECE_BYTES])
                if timing.cancelled_caught:
                    raise ClosedError("the client does not read")
