"""The body of a request as it arrives: of a known length, or in chunks, which are read to the letter.

h11 would read chunks too, but takes a bare LF where their trailer ends, and so could be made to see another end than a proxy did.

Source: RFC 9112, 6 and 7.1.
"""

from __future__ import annotations

import re

from ..errors import ClosedError, RemoteProtocolError
from ..net.transport.tcp import TcpStream

__all__ = ["ChunkedDecoder", "RequestBody"]

_LINE_BYTES_MAX = 256
_TRAILERS_MAX = 32
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(;[^\r\n]*)?")
_TRAILER = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[^\r\n\0]*")


class ChunkedDecoder:
    """Takes the bytes of a chunked body apart. No input or output.

    Attributes:
        is_complete: The last chunk and its trailer were read.
    """

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
        is_begun: Something of it was asked for.
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
