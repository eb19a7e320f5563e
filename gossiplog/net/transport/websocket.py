"""A WebSocket as a byte stream: its binary messages, one after the other, as mode A has it.

The handshake is wsproto's. No extension is requested or accepted, so nothing is ever decompressed. Bytes are handed on as they arrive, so
a long message takes no memory.

Source: RFC 6455; docs/spec/sync.md, "Mode A".
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import NoReturn

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, RejectConnection, RejectData, Request
from wsproto.utilities import ProtocolError

from ...errors import ClosedError, DecodeError, RemoteProtocolError
from .http_head import Head
from .stream import ByteStream
from .websocket_frames import BINARY, CLOSE, PING, PONG, TEXT, FrameReader, WebSocketFrame, decode_close, encode_close, encode_frame

MESSAGE_BYTES_MAX = 4 * 2**20
"""Source: docs/spec/limits.md, "WebSocket"."""
_CLOSE_S = 1.0
_REASON_BYTES = 500
_HEAD_END = re.compile(rb"\n\r?\n")
"""As in wsproto's HTTP parser."""
_NO_HANDSHAKE = (ProtocolError, UnicodeDecodeError)
"""What wsproto raises about a head; the latter where one of its own headers is not ASCII."""
_NORMAL, _VIOLATION, _UNSUPPORTED, _TOO_BIG = 1000, 1002, 1003, 1009


class WebSocketStream:
    """An open WebSocket as a `ByteStream`. Pings are answered while a task receives.

    Args:
        beginning: Bytes that were received after the handshake.
    """

    def __init__(self, stream: ByteStream, *, is_client: bool, beginning: bytes = b"") -> None:
        self._stream = stream
        self._is_client = is_client
        self._reader = FrameReader(is_masked=not is_client)
        self._beginning = beginning
        self._sending = trio.Lock()
        self._is_open = True  # until a close frame is sent: nothing follows it
        self._has_ended = False  # until one arrives
        self._message_bytes = 0
        self._unsent = b""  # a message that is not yet encoded

    async def send_all(self, data: bytes) -> None:
        """Send one binary message, after what `send_now` left; of no bytes, only that.

        Raises:
            ClosedError: The connection is closed or broken.
        """
        if self._unsent:
            data, self._unsent = self._unsent + data, b""
        await self._send(BINARY if data else None, data)

    def send_now(self, data: bytes) -> bool:
        """See `ByteStream`."""
        if self._is_open and not self._sending.locked():
            # Frames of a server have no mask: RFC 6455, section 5.1.
            return self._stream.send_now(encode_frame(BINARY, data, is_masked=self._is_client))
        self._unsent = data
        return False

    async def receive_some(self) -> bytes:
        """Receive bytes of binary messages, at least one; `b""` at the end.

        Raises:
            ClosedError: The connection broke, or the peer sent text, a message that is too long, or no WebSocket frames.
        """
        received: list[bytes] = []
        while not received and not self._has_ended:
            for opcode, payload, is_last in await self._frames():
                if opcode == BINARY:
                    self._message_bytes += len(payload)
                    if self._message_bytes > MESSAGE_BYTES_MAX:
                        await self._refuse(_TOO_BIG, f"a message of more than {MESSAGE_BYTES_MAX} bytes")
                    if is_last:
                        self._message_bytes = 0
                    if payload:
                        received.append(payload)
                elif opcode == PING:
                    await self._send(PONG, payload)
                elif opcode == TEXT:
                    await self._refuse(_UNSUPPORTED, "a text message, where all are binary")
                elif opcode == CLOSE:
                    await self._on_goodbye(payload)
                    break
        return received[0] if len(received) == 1 else b"".join(received)

    async def aclose(self) -> None:
        """Send a close frame, if that takes no more than a second, and close."""
        with trio.CancelScope(shield=True):
            await self.refuse(_NORMAL, "")
            await self._stream.aclose()

    async def _send(self, opcode: int | None, payload: bytes) -> None:
        # Encoded in the order of sending, because nothing follows a close frame.
        try:
            # Nearly always free, and a turn of the event loop takes 25 to 50 µs.
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            await self._sending.acquire()
        try:
            if not self._is_open:
                raise ClosedError("the WebSocket is closed")
            if opcode == CLOSE:
                self._is_open = False
            await self._stream.send_all(b"" if opcode is None else encode_frame(opcode, payload, is_masked=self._is_client))
        finally:
            self._sending.release()

    async def _frames(self) -> list[WebSocketFrame]:
        # A few at a time, so that other tasks get their turn.
        data = b""
        if self._reader.is_behind or self._beginning:
            data, self._beginning = self._beginning, b""
            await trio.lowlevel.checkpoint()
        elif not (data := await self._stream.receive_some()):
            self._has_ended = True
            self._is_open = False
            return []
        try:
            return self._reader.read(data)
        except DecodeError as error:
            reason = f"the peer broke the WebSocket protocol: {error}"
            await self.refuse(_VIOLATION, reason)
            raise ClosedError(reason) from None

    async def _on_goodbye(self, payload: bytes) -> None:
        self._has_ended = True
        try:
            code = decode_close(payload)
        except DecodeError as error:
            await self._refuse(_VIOLATION, str(error))
        # The peer need not wait for our close frame.
        with contextlib.suppress(ClosedError):
            await self._send(CLOSE, b"" if code is None else encode_close(code, ""))

    async def refuse(self, code: int, reason: str) -> None:
        """Send a close frame with a reason. A page can read that, unlike an HTTP error. Does nothing after another close frame."""
        with trio.move_on_after(_CLOSE_S), contextlib.suppress(ClosedError):
            await self._send(CLOSE, encode_close(code, reason))

    async def _refuse(self, code: int, reason: str) -> NoReturn:
        await self.refuse(code, reason)
        raise ClosedError(reason)


async def accept_websocket(stream: ByteStream, head: Head, subprotocol: str | None = None) -> WebSocketStream:
    """Answer a request for a WebSocket. The caller sets a deadline.

    Args:
        subprotocol: The offered one to agree on; None for none.

    Raises:
        RemoteProtocolError: The request is no valid handshake; the peer was told.
        ClosedError: The connection broke.
    """
    protocol = WSConnection(ConnectionType.SERVER)
    try:
        protocol.receive_data(head.raw)
        event = next(protocol.events(), None)
    except _NO_HANDSHAKE as error:
        hint = getattr(error, "event_hint", None) or RejectConnection(status_code=400)
        await stream.send_all(protocol.send(hint))
        raise RemoteProtocolError(f"no WebSocket handshake: {error}") from None
    if not isinstance(event, Request):
        raise RemoteProtocolError("no WebSocket handshake")
    await stream.send_all(protocol.send(AcceptConnection(subprotocol=subprotocol)))
    return WebSocketStream(stream, is_client=False, beginning=head.beyond)


async def connect_websocket(stream: ByteStream, host: str, target: str, headers: Sequence[tuple[str, str]] = ()) -> WebSocketStream:
    """Request a WebSocket on a fresh connection. The caller sets a deadline.

    Args:
        host: The server's name, with its port unless that is the default one.

    Raises:
        RemoteProtocolError: The server refused, or does not speak WebSocket.
        ClosedError: The connection broke.
    """
    protocol = WSConnection(ConnectionType.CLIENT)
    fields = [(name.encode(), value.encode()) for name, value in headers]
    await stream.send_all(protocol.send(Request(host=host, target=target, extra_headers=fields)))
    refusal: RejectConnection | None = None
    head = said = b""
    while True:
        data = await stream.receive_some()
        if not data and refusal is None:
            raise ClosedError("the server closed the connection during the handshake")
        if refusal is None:
            head += data
        try:
            protocol.receive_data(data or None)
            for event in protocol.events():
                if isinstance(event, AcceptConnection):
                    found = _HEAD_END.search(head)
                    assert found is not None
                    return WebSocketStream(stream, is_client=True, beginning=head[found.end() :])
                if isinstance(event, RejectData):
                    said = (said + event.data)[:_REASON_BYTES]
                elif isinstance(event, RejectConnection):
                    refusal = event
                else:
                    raise RemoteProtocolError("the server does not speak WebSocket")
                if refusal is not None and (not refusal.has_body or getattr(event, "body_finished", False)):
                    raise RemoteProtocolError(_in_words(refusal, said))
        except _NO_HANDSHAKE as error:
            if refusal is not None:
                raise RemoteProtocolError(_in_words(refusal, said)) from None
            raise RemoteProtocolError(f"the server does not speak WebSocket: {error}") from None


def _in_words(refusal: RejectConnection, said: bytes) -> str:
    reason = said.decode("utf-8", "replace").strip().partition("\n")[0].rstrip()
    # A proxy's own answer is a page of HTML.
    return f"the server refused with HTTP status {refusal.status_code}" + (f": {reason}" if reason and reason[0] != "<" else "")
