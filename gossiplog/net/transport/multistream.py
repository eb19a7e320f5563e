"""multistream-select 1.0: how both sides of a stream agree on its protocol. No I/O; `Proposal` asks and `Offer` answers.

Each message is a line with its length before it. The first names multistream-select itself, the next a protocol. The other side repeats the
protocol if it speaks it, and answers `na` if not. The header, a protocol and the first data may go out together.

Source: docs/spec/sync.md, "Mode A"; the multistream-select specification 1.0; lines of at most 1,024 bytes, as in the reference.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from ...codec.framing import FrameDecoder, encode_frame
from ...errors import DecodeError, LocalProtocolError, ProtocolNotSupported, RemoteProtocolError

MULTISTREAM = "/multistream/1.0.0"
LINE_BYTES_MAX = 1024
"""Including the line's end."""
PROPOSALS_MAX = 32
"""How many proposals are answered on one stream."""

_NOT_AVAILABLE = "na"


def encode_line(text: str) -> bytes:
    """Encode one message.

    Raises:
        LocalProtocolError: It has more than 1,023 bytes, or more than one line.
    """
    line = text.encode() + b"\n"
    if len(line) > LINE_BYTES_MAX or "\n" in text:
        raise LocalProtocolError(f"{text[:80]!r} cannot be the name of a protocol")
    return encode_frame(line)


class _Negotiation:
    """What both sides have in common: lines that arrive, the first of which is the header, and data after the last.

    Attributes:
        protocol: The protocol that was agreed on; None before.
    """

    def __init__(self) -> None:
        self.protocol: str | None = None
        self._frames = FrameDecoder(LINE_BYTES_MAX)
        self._is_header_read = False

    def take_rest(self) -> bytes:
        """Return the bytes that arrived after the agreement."""
        return self._frames.take_rest()

    def _lines(self, data: bytes) -> Iterator[str]:
        """Yield the lines in what arrived, up to the agreement; the header is checked and left out."""
        self._frames.feed(data)
        while self.protocol is None and (line := self._next()) is not None:
            if self._is_header_read:
                yield line
            elif line != MULTISTREAM:
                raise RemoteProtocolError(f"{line[:80]!r}, expected {MULTISTREAM}")
            else:
                self._is_header_read = True

    def _next(self) -> str | None:
        try:
            line = self._frames.next()
            if line is None:
                return None
            if not line.endswith(b"\n"):
                raise RemoteProtocolError("a line of multistream-select without its end")
            return line[:-1].decode()
        except (DecodeError, UnicodeDecodeError) as error:
            raise RemoteProtocolError(f"a line of multistream-select cannot be read: {error}") from None


class Proposal(_Negotiation):
    """The side that opened the stream.

    Args:
        protocols: At least one, the preferred one first.

    Raises:
        LocalProtocolError: There is none, or one of them cannot be a name.
    """

    def __init__(self, protocols: Sequence[str]) -> None:
        super().__init__()
        self._protocols = [(protocol, encode_line(protocol)) for protocol in protocols]
        if not self._protocols:
            raise LocalProtocolError("a stream needs a protocol")
        self._index = 0

    @property
    def first(self) -> str:
        """The protocol that is proposed first."""
        return self._protocols[0][0]

    def start(self) -> bytes:
        """Return the first bytes to send."""
        return encode_line(MULTISTREAM) + self._protocols[0][1]

    def receive(self, data: bytes) -> bytes:
        """Take bytes that arrived and return bytes to send; look at `protocol` afterwards.

        Raises:
            ProtocolNotSupported: The other side speaks none of the protocols.
            RemoteProtocolError: Its answer is malformed.
        """
        answer = b""
        for line in self._lines(data):
            protocol = self._protocols[self._index][0]
            if line == protocol:
                self.protocol = protocol
            elif line != _NOT_AVAILABLE:
                raise RemoteProtocolError(f"{line[:80]!r} in answer to {protocol}")
            else:
                self._index += 1
                if self._index == len(self._protocols):
                    raise ProtocolNotSupported(f"the peer does not speak {', '.join(name for name, _ in self._protocols)}")
                answer += self._protocols[self._index][1]
        return answer


class Offer(_Negotiation):
    """The side to which the stream was opened.

    Attributes:
        refused: The last proposal that is none of our protocols; None if there was none.
    """

    def __init__(self, protocols: Container[str]) -> None:
        super().__init__()
        self.refused: str | None = None
        self._protocols = protocols
        self._proposals = 0

    def receive(self, data: bytes) -> bytes:
        """Take bytes that arrived and return bytes to send; look at `protocol` afterwards.

        Raises:
            RemoteProtocolError: The bytes are no proposal, or there were more than 32 of them.
        """
        was_read, answer = self._is_header_read, b""
        for line in self._lines(data):
            self._proposals += 1
            if self._proposals > PROPOSALS_MAX:
                raise RemoteProtocolError(f"more than {PROPOSALS_MAX} protocols were proposed on one stream")
            if line in self._protocols:
                self.protocol = line
                answer += encode_line(line)
            else:
                self.refused = line
                answer += encode_line(_NOT_AVAILABLE)
        return answer if was_read or not self._is_header_read else encode_line(MULTISTREAM) + answer
