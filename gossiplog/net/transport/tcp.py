"""TCP connections as byte streams, with TLS or without."""

from __future__ import annotations

import errno
import logging
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import trio

from ...errors import ClosedError
from ..ground.journal import note

_RECEIVE_BYTES_MAX = 65_536
_FINISH_S = 1.0
_TURN_BYTES = 65_536
"""Bytes that may be sent before other tasks get their turn. A turn for each small piece would take more CPU than sending it."""
_HAS_DESCRIPTORS = os.name == "posix"
"""Whether a socket can be read and written as a file."""
_UNREAD_PIECES_MAX = 256
_BUSY = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}
_BUSY_S = 0.1
_PYTHONS_OWN = re.compile(r"^\[[\w: ]+\] | \(_ssl\.c:\d+\)$")
"""The parts of a TLS error that only name a place in Python's source."""


class TlsFailed(OSError):
    """The TLS handshake failed."""

    def __init__(self, reason: BaseException | None) -> None:
        super().__init__(f"TLS failed: {_PYTHONS_OWN.sub('', str(reason))}")
        self.reason = reason


class TcpStream:
    """A TCP connection as a `ByteStream`.

    Attributes:
        beginning: Bytes that were read before, and that `receive_some` returns first.
    """

    __slots__ = ("_sent", "_socket", "_unsent", "beginning", "stream")

    def __init__(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> None:
        self.stream = stream
        self.beginning = b""
        # Read and written as a file; None if that is not possible.
        self._socket = stream.socket if _HAS_DESCRIPTORS and isinstance(stream, trio.SocketStream) else None
        self._sent = 0
        self._unsent: bytes | memoryview = b""

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted with TLS."""
        return isinstance(self.stream, trio.SSLStream)

    async def secure(self, context: ssl.SSLContext) -> None:
        """Do the TLS handshake of a server; all that follows is encrypted. The caller sets a deadline.

        Raises:
            OSError, BrokenResourceError: It failed.
        """
        assert isinstance(self.stream, trio.SocketStream)
        self._socket = None
        self.stream = trio.SSLStream(self.stream, context, server_side=True, https_compatible=True)
        await self.stream.do_handshake()

    @property
    def certificate(self) -> Mapping[str, Any]:
        """The peer's certificate, as `ssl` returns it, if we checked one; else empty."""
        return (self.stream.getpeercert() or {}) if isinstance(self.stream, trio.SSLStream) else {}

    @property
    def below(self) -> trio.SocketStream:
        """The socket's stream, which may have TLS on top."""
        return self.stream.transport_stream if isinstance(self.stream, trio.SSLStream) else self.stream

    def local_address(self) -> tuple[str, int]:
        """Our own address and port."""
        host, port = self.below.socket.getsockname()[:2]
        return str(host), int(port)

    async def send_all(self, data: bytes | memoryview) -> None:
        """Send all of it. Other tasks get their turn only if this has to wait, or after each 64 KiB.

        Raises:
            ClosedError: The connection is closed or broken.
        """
        if self._unsent:
            data, self._unsent = b"".join((self._unsent, data)), b""
        self._sent += len(data)
        try:
            if data and not self.send_now(data):
                rest, self._unsent = self._unsent, b""
                await self.stream.send_all(rest)
                self._sent = 0
            elif self._sent >= _TURN_BYTES:
                self._sent = 0
                await trio.lowlevel.checkpoint()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ClosedError(_in_words(error)) from None

    def send_now(self, data: bytes | memoryview) -> bool:
        """See `ByteStream`."""
        self._unsent = data
        if self._socket is not None:
            try:
                self._unsent = data[os.write(self._socket.fileno(), data) :]
            except OSError:
                return False  # If the socket is broken, trio's own call will raise.
        return not self._unsent

    async def receive_some(self) -> bytes:
        """Receive some bytes, at least one; `b""` at the end. Raises as `send_all`."""
        if self.beginning:
            data, self.beginning = self.beginning, b""
            await trio.lowlevel.checkpoint()
            return data
        try:
            socket = self._socket
            if socket is None:
                return bytes(await self.stream.receive_some(_RECEIVE_BYTES_MAX))
            # Usually nothing has arrived yet. So wait first; trio's `receive_some` would first try to read.
            while True:
                descriptor = socket.fileno()
                if descriptor < 0:
                    raise trio.ClosedResourceError
                await trio.lowlevel.wait_readable(descriptor)
                try:
                    # Not `descriptor`: if the socket was closed meanwhile, that may be another file's.
                    return os.read(socket.fileno(), _RECEIVE_BYTES_MAX)
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise trio.BrokenResourceError(f"{error}") from error
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ClosedError(_in_words(error)) from None

    async def finish(self) -> None:
        """Close cleanly, within a second, so that the peer reads all that was sent even if it is still sending.

        Otherwise its bytes would meet a closed socket, whose reset can overtake our answer.
        """
        with trio.move_on_after(_FINISH_S):
            try:
                if isinstance(self.stream, trio.SSLStream):
                    await self.stream.unwrap()
                else:
                    await self.stream.send_eof()
                    for _ in range(_UNREAD_PIECES_MAX):
                        if not await self.stream.receive_some(_RECEIVE_BYTES_MAX):
                            break
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
        await self.aclose()

    async def aclose(self) -> None:
        """Close the socket at once."""
        await trio.aclose_forcefully(self.stream)


async def accept_all(listener: trio.SocketListener, serve: Callable[[trio.SocketStream], Awaitable[None]], nursery: trio.Nursery) -> None:
    """Accept connections until the listener is closed, each for a task of the nursery. The journal says once if there are too many."""
    is_full = False
    async with listener:
        while True:
            try:
                nursery.start_soon(serve, await listener.accept())
                is_full = False
            except trio.ClosedResourceError:
                return
            except OSError as error:
                if error.errno not in _BUSY:
                    raise
                if not is_full:
                    note("out of sockets", level=logging.ERROR, reason=str(error))
                is_full = True
                await trio.sleep(_BUSY_S)


async def dial_tcp(host: str, port: int, tls: ssl.SSLContext | None, source: str | None = None) -> TcpStream:
    """Connect; the caller sets a deadline.

    Args:
        host: A name or an address; with TLS the certificate has to name it.
        tls: None for an unencrypted connection.
        source: Which of this machine's addresses to dial from; by default the system chooses.

    Raises:
        OSError: Nobody listens there, the name is unknown, or TLS failed.
    """
    with looking_up(host):
        stream = await trio.open_tcp_stream(host, port, local_address=source)
    if tls is None:
        return TcpStream(stream)
    sealed = trio.SSLStream(stream, tls, server_hostname=host, https_compatible=True)
    try:
        await sealed.do_handshake()
    except BaseException as error:
        await trio.aclose_forcefully(sealed)
        if isinstance(error, trio.BrokenResourceError):
            raise TlsFailed(error.__cause__) from None
        raise
    return TcpStream(sealed)


@contextmanager
def looking_up(host: str | None) -> Iterator[None]:
    """Raise OSError for a name that no host can have, such as `a..b`. Python and trio raise UnicodeError."""
    try:
        yield
    except UnicodeError:
        raise OSError(f"no host can have the name {host!r}") from None


def _in_words(error: Exception) -> str:
    """Describe the end of a connection. A reset means that the peer closed it while bytes were under way."""
    if isinstance(error, trio.ClosedResourceError):
        return "closed by us"
    if isinstance(error.__cause__, ConnectionResetError | BrokenPipeError):
        return "the peer closed it"
    return f"the connection broke: {error.__cause__ or error}"
