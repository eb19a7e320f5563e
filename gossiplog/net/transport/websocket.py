"""A WebSocket as a stream of bytes: its binary messages, one after the other, as mode A has it.

The framing is wsproto's, which does no input or output. No subprotocol and no extension is asked for or accepted, so nothing is ever
decompressed; what arrives is handed on as it comes, so a message of any length takes no memory.

Source: RFC 6455; docs/spec/sync.md, "Mode A".
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import islice

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import ProtocolError

from ...errors import ClosedError, RemoteProtocolError
from .stream import ByteStream, PromptStream

__all__ = ["MESSAGE_BYTES_MAX", "WebSocketStream", "accept_websocket", "connect_websocket"]

MESSAGE_BYTES_MAX = 4 * 2**20
"""Source: docs/spec/limits.md, "WebSocket"."""
_CLOSE_S = 1.0
_EVENTS_A_TURN = 64
_REASON_BYTES = 500
_BINARY = 0x82
"""The first byte of a frame that is a whole binary message."""
_SHORT, _LONG = 126, 127
"""In the place of a length: one that takes two bytes follows, or one that takes eight."""
_NORMAL, _UNSUPPORTED, _TOO_BIG = 1000, 1003, 1009


class WebSocketStream:
    """An open WebSocket as a `ByteStream`. Pings are answered as long as somebody receives.

    Args:
        stream: Below.
        protocol: After the handshake.
    """

    __slots__ = ("_message_bytes", "_prompt_stream", "_protocol", "_sending", "_stream", "_unsent")

    def __init__(self, stream: ByteStream, protocol: WSConnection) -> None:
        self._stream = stream
        self._prompt_stream = stream if isinstance(stream, PromptStream) else None
        self._protocol = protocol
        self._sending = trio.Lock()
        self._message_bytes = 0
        self._unsent = b""  # a message that is not encoded yet

    async def send_all(self, data: bytes) -> None:
        """Send one binary message; of none, what `send_now` left.

        Raises:
            ClosedError: The connection is closed or broken.
        """
        if self._unsent:
            data, self._unsent = self._unsent + data, b""
        await self._send(data)

    def send_now(self, data: bytes) -> bool:
        """See `PromptStream`."""
        stream = self._prompt_stream
        if stream is not None and not self._sending.locked() and self._protocol.state is ConnectionState.OPEN:
            return stream.send_now(self._encode(data))
        self._unsent = data
        return False

    async def receive_some(self) -> bytes:
        """Receive what has come of binary messages, at least a byte; `b""` at the end.

        Raises:
            ClosedError: The connection broke, or the peer sent text, too long a message, or no WebSocket at all.
        """
        received: list[bytes] = []
        while not received:
            for event in await self._events():
                if isinstance(event, BytesMessage):
                    await self._check_size(event)
                    if event.data:
                        received.append(bytes(event.data))
                elif isinstance(event, Ping):
                    await self._send(event.response())
                elif isinstance(event, TextMessage):
                    await self._refuse(_UNSUPPORTED, "a text message, where all are binary")
                elif isinstance(event, CloseConnection):
                    if self._protocol.state is ConnectionState.REMOTE_CLOSING:
                        # Who says goodbye need not wait for ours.
                        with contextlib.suppress(ClosedError):
                            await self._send(event.response())
                    return b"".join(received)
        return received[0] if len(received) == 1 else b"".join(received)

    async def aclose(self) -> None:
        """Say goodbye, if that does not take long, and close."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLOSE_S):
            try:
                if self._protocol.state is ConnectionState.OPEN:
                    await self._send(CloseConnection(code=_NORMAL))
            except ClosedError:
                pass
        with trio.CancelScope(shield=True):
            await self._stream.aclose()

    async def _send(self, event: Event | bytes) -> None:
        # Encoded in the order of sending, for nothing follows the goodbye.
        try:
            # Nearly always free, and a needless round of the event loop takes 25 to 50 µs.
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            await self._sending.acquire()
        try:
            await self._stream.send_all(self._encode(event) if event else b"")
        except ProtocolError:
            raise ClosedError("the WebSocket is closed") from None
        finally:
            self._sending.release()

    def _encode(self, event: Event | bytes) -> bytes:
        if not isinstance(event, bytes):
            return self._protocol.send(event)
        if self._protocol.client or self._protocol.state is not ConnectionState.OPEN:
            return self._protocol.send(BytesMessage(data=event))
        # What a server sends is not masked: RFC 6455, section 5.2. A hub sends the same to all its clients; wsproto takes 6 µs for each.
        size = len(event)
        if size < _SHORT:
            return b"%c%c%b" % (_BINARY, size, event)
        if size < 2**16:
            return b"%c%c%b%b" % (_BINARY, _SHORT, size.to_bytes(2), event)
        return b"%c%c%b%b" % (_BINARY, _LONG, size.to_bytes(8), event)

    async def _events(self) -> list[Event]:
        # A few at a time: a peer that sends only headers must not take a turn as long as it takes to read them all.
        events = list(islice(self._protocol.events(), _EVENTS_A_TURN))
        if events:
            await trio.lowlevel.checkpoint()
            return events
        data = await self._stream.receive_some()
        try:
            self._protocol.receive_data(data or None)
            return list(islice(self._protocol.events(), _EVENTS_A_TURN))
        except ProtocolError as error:
            raise ClosedError(f"the peer broke the WebSocket protocol: {error}") from None

    async def _check_size(self, message: BytesMessage) -> None:
        self._message_bytes += len(message.data)
        if self._message_bytes > MESSAGE_BYTES_MAX:
            await self._refuse(_TOO_BIG, f"a message of more than {MESSAGE_BYTES_MAX} bytes")
        if message.message_finished:
            self._message_bytes = 0

    async def refuse(self, code: int, reason: str) -> None:
        """Say goodbye for a reason, which a page can read, unlike an error of HTTP."""
        with trio.move_on_after(_CLOSE_S):
            await self._send(CloseConnection(code=code, reason=reason))

    async def _refuse(self, code: int, reason: str) -> None:
        await self.refuse(code, reason)
        raise ClosedError(reason)


async def accept_websocket(stream: ByteStream, head: bytes, subprotocol: str | None = None) -> WebSocketStream:
    """Answer a request for a WebSocket. The caller sets a deadline.

    Args:
        stream: On which it came.
        head: The request and whatever came with it.
        subprotocol: One of those that were offered, to agree on; None for none.

    Raises:
        RemoteProtocolError: It is none that can be answered; the peer was told.
        ClosedError: The connection broke.
    """
    protocol = WSConnection(ConnectionType.SERVER)
    try:
        protocol.receive_data(head)
        event = next(protocol.events(), None)
    except ProtocolError as error:
        hint = getattr(error, "event_hint", None) or RejectConnection(status_code=400)
        await stream.send_all(protocol.send(hint))
        raise RemoteProtocolError(f"no handshake of a WebSocket: {error}") from None
    if not isinstance(event, Request):
        raise RemoteProtocolError("no handshake of a WebSocket")
    await stream.send_all(protocol.send(AcceptConnection(subprotocol=subprotocol)))
    return WebSocketStream(stream, protocol)


async def connect_websocket(
    stream: ByteStream, host: str, target: str, origin: str | None = None, headers: Sequence[tuple[str, str]] = ()
) -> WebSocketStream:
    """Ask for a WebSocket on a fresh connection. The caller sets a deadline.

    Args:
        stream: The connection.
        host: What the server is called, with its port unless that is the usual one.
        target: Path and query.
        origin: What a browser would call the page that asks; None leaves it out.
        headers: To send as well.

    Raises:
        RemoteProtocolError: The server refused, or speaks no WebSocket.
        ClosedError: The connection broke.
    """
    protocol = WSConnection(ConnectionType.CLIENT)
    fields = [(name.encode(), value.encode()) for name, value in headers]
    fields += [] if origin is None else [(b"origin", origin.encode())]
    await stream.send_all(protocol.send(Request(host=host, target=target, extra_headers=fields)))
    refusal: RejectConnection | None = None
    said = b""
    while True:
        data = await stream.receive_some()
        if not data and refusal is None:
            raise ClosedError("the server closed the connection within the handshake")
        try:
            protocol.receive_data(data or None)
            for event in protocol.events():
                if isinstance(event, AcceptConnection):
                    return WebSocketStream(stream, protocol)
                if isinstance(event, RejectData):
                    said = (said + event.data)[:_REASON_BYTES]
                elif isinstance(event, RejectConnection):
                    refusal = event
                else:
                    raise RemoteProtocolError("the server does not speak WebSocket")
                if refusal is not None and (not refusal.has_body or getattr(event, "body_finished", False)):
                    raise RemoteProtocolError(_in_words(refusal, said))
        except ProtocolError as error:
            if refusal is not None:
                raise RemoteProtocolError(_in_words(refusal, said)) from None
            raise RemoteProtocolError(f"the server does not speak WebSocket: {error}") from None


def _in_words(refusal: RejectConnection, said: bytes) -> str:
    reason = said.decode("utf-8", "replace").strip().partition("\n")[0]
    return f"the server refused with HTTP status {refusal.status_code}" + (f": {reason}" if reason else "")
