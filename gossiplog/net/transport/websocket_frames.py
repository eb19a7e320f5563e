"""The frames of an open WebSocket: bytes in, payloads out. No I/O, no extension.

wsproto could read and write them too, but makes some sixty function calls for each frame: a third of a hub's work, beyond the interpreter's
own, in passing an entry on. It does the handshake, where that does not matter.

Source: RFC 6455, sections 5 and 7.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ...errors import DecodeError

_CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FRAMES_A_TURN = 64
"""How many frames `read` takes at once, so that a chunk full of headers does not make for a long turn."""

_FINAL, _RESERVED, _OPCODE, _MASKED, _LENGTH = 0x80, 0x70, 0x0F, 0x80, 0x7F
_SHORT, _LONG = 126, 127
"""In place of a length: the length follows in two bytes, or in eight."""
_MASK_BYTES = 4
_CONTROL_BYTES_MAX = 125
_CODES = (*range(1000, 1004), *range(1007, 1015), *range(3000, 5000))
"""The codes that a close frame may carry; 1004 to 1006 and 1015 may not be sent."""
_BYTES = bytes(range(256))
_XOR = tuple((int.from_bytes(_BYTES) ^ int.from_bytes(bytes([key]) * 256)).to_bytes(256) for key in range(256))
"""For each key, the 256 bytes XOR that key."""


class WebSocketFrame(NamedTuple):
    """A frame, or a part of a data frame.

    Attributes:
        opcode: The frame's type; for a continuation, that of the message's first frame.
        payload: Unmasked.
        is_last: Whether the message ends here.
    """

    opcode: int
    payload: bytes
    is_last: bool


class FrameReader:
    """Parses the frames of one side as they arrive. It holds only the beginning of a header or of a control frame.

    Args:
        is_masked: Whether the frames have masks: a client's must, a server's must not.
    """

    __slots__ = ("_is_final", "_is_masked", "_left", "_mask", "_message", "_opcode", "_rest", "is_behind")

    def __init__(self, *, is_masked: bool) -> None:
        self._is_masked = is_masked
        self._rest = b""
        self._opcode = _CONTINUATION  # of the current frame
        self._message = _CONTINUATION  # of the message that has begun
        self._is_final = True
        self._mask = b""
        self._left = 0
        self.is_behind = False
        """Whether `read` may return more of the bytes that it was given."""

    def read(self, data: bytes) -> list[WebSocketFrame]:
        """Take bytes, cut anywhere; while `is_behind`, call it with none for the rest.

        Raises:
            DecodeError: The bytes are no frames, and the stream is lost. Earlier frames have been returned.
        """
        if self._rest:
            data, self._rest = self._rest + data, b""
        frames: list[WebSocketFrame] = []
        at, size = 0, len(data)
        is_broken = False
        while len(frames) < FRAMES_A_TURN:
            if not self._left:
                try:
                    start = self._read_header(data, at)
                except DecodeError:
                    if not frames:
                        raise
                    is_broken = True
                    break
                if not start:
                    break
                at = start
            end = min(at + self._left, size)
            if self._left and at == end:
                break
            piece, at = data[at:end], end
            self._left -= len(piece)
            if self._is_masked:
                piece = self._unmasked(piece)
            frames.append(WebSocketFrame(self._opcode, piece, self._is_final and not self._left))
        self._rest = data[at:]
        self.is_behind = is_broken or len(frames) == FRAMES_A_TURN
        return frames

    def _read_header(self, data: bytes, at: int) -> int:
        """Read a header; return where it ends, or 0 if it, or the whole of a control frame, has not arrived yet."""
        if len(data) < at + 2:
            return 0
        first, second = data[at], data[at + 1]
        opcode, length, at = first & _OPCODE, second & _LENGTH, at + 2
        if first & _RESERVED:
            raise DecodeError("a frame with an extension bit, but no extension was agreed on")
        if bool(second & _MASKED) is not self._is_masked:
            raise DecodeError("a frame without a mask" if self._is_masked else "a frame with a mask")
        is_control = opcode >= CLOSE
        if is_control:
            if opcode > PONG or not first & _FINAL or length > _CONTROL_BYTES_MAX:
                raise DecodeError(f"a control frame with opcode {opcode} and length {length}: fragmented, too long or of an unknown kind")
        elif opcode > BINARY or bool(opcode) is bool(self._message):
            raise DecodeError(f"a frame with opcode {opcode} " + ("within a message" if self._message else "and no message before"))
        if length >= _SHORT:
            size = 2 if length == _SHORT else 8
            if len(data) < at + size:
                return 0
            length, at = int.from_bytes(data[at : at + size]), at + size
            if length < (_SHORT if size == 2 else 2**16) or length >= 2**63:
                raise DecodeError(f"a frame's length, {length}, in {size} bytes")
        if self._is_masked:
            if len(data) < at + _MASK_BYTES:
                return 0
            self._mask, at = data[at : at + _MASK_BYTES], at + _MASK_BYTES
        if is_control:
            if len(data) < at + length:
                return 0
            self._opcode, self._is_final = opcode, True
        else:
            self._is_final = bool(first & _FINAL)
            self._opcode = opcode or self._message
            self._message = _CONTINUATION if self._is_final else self._opcode
        self._left = length
        return at

    def _unmasked(self, piece: bytes) -> bytes:
        mask = self._mask
        if self._left:
            # The next piece may begin in the middle of the mask.
            turn = len(piece) % _MASK_BYTES
            self._mask = mask[turn:] + mask[:turn]
        return _masked(piece, mask)


def encode_frame(opcode: int, payload: bytes, *, is_masked: bool) -> bytes:
    """Encode a whole message, or a control frame with at most 125 bytes. The mask is random."""
    size, masked = len(payload), _MASKED if is_masked else 0
    if size < _SHORT:
        head = b"%c%c" % (_FINAL | opcode, masked | size)
    elif size < 2**16:
        head = b"%c%c%b" % (_FINAL | opcode, masked | _SHORT, size.to_bytes(2))
    else:
        head = b"%c%c%b" % (_FINAL | opcode, masked | _LONG, size.to_bytes(8))
    if not is_masked:
        return head + payload
    mask = os.urandom(_MASK_BYTES)
    return b"%b%b%b" % (head, mask, _masked(payload, mask))


def encode_close(code: int, reason: str) -> bytes:
    """Encode the payload of a close frame, with as much of the reason as it has room for."""
    room = _CONTROL_BYTES_MAX - 2
    return code.to_bytes(2) + reason.encode()[:room].decode(errors="ignore").encode()


def decode_close(payload: bytes) -> int | None:
    """Return the code of a close frame; None if its payload is empty.

    Raises:
        DecodeError: The payload is malformed, or its code may not be sent.
    """
    if not payload:
        return None
    code = int.from_bytes(payload[:2])
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise DecodeError("a close frame whose reason is no text") from None
    if len(payload) < 2 or code not in _CODES:
        raise DecodeError(f"a close frame with code {code}")
    return code


def _masked(data: bytes, mask: bytes) -> bytes:
    masked = bytearray(len(data))
    for place, key in enumerate(mask):
        masked[place::_MASK_BYTES] = data[place::_MASK_BYTES].translate(_XOR[key])
    return bytes(masked)
