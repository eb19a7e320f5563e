"""The RPC that nearly all are: one message without author or signature, and nothing else. The schemas' bytes, in a third of the time.

    12 length { 12 length data  22 length topic }

Most copies of a message are read for nothing but its id, so that reading is what they cost. Whatever has another form, or another order
of fields, is for the schemas of `rpc_codec`. So a body that is read here is the one that would be written, and is passed on as it is.
"""

from __future__ import annotations

from ...codec.varint import encode_varint
from ..rpc import Message

__all__ = ["read_usual", "write_usual"]

_PUBLISH, _DATA, _TOPIC = 0x12, 0x12, 0x22


def read_usual(body: bytes) -> tuple[bytes, str] | None:
    """Return data and topic of a body in this form; None for any other. What is returned is what the schemas would read."""
    size = len(body)
    if size < 2 or body[0] != _PUBLISH:
        return None
    length, at = _read_length(body, 1)
    if at + length != size or at == size or body[at] != _DATA:
        return None
    length, start = _read_length(body, at + 1)
    end = start + length
    if end >= size or body[end] != _TOPIC:
        return None
    length, at = _read_length(body, end + 1)
    if at + length != size:
        return None
    try:
        return body[start:end], body[at:].decode()
    except UnicodeDecodeError:
        return None


def write_usual(message: Message) -> bytes | None:
    """Return the body that carries one message, or None if it has more than data and topic."""
    if message.origin is not None or message.seqno is not None or message.signature is not None or message.key is not None:
        return None
    topic = message.topic.encode()
    inner = b"".join((b"\x12", encode_varint(len(message.data)), message.data, b"\x22", encode_varint(len(topic)), topic))
    return b"".join((b"\x12", encode_varint(len(inner)), inner))


def _read_length(body: bytes, at: int) -> tuple[int, int]:
    """Read a varint of at most three bytes; one that is longer than that or needs to be, or cut short, is more than the whole body."""
    value = shift = 0
    for byte in body[at : at + 3]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                break
            return value, at
        shift += 7
    return len(body) + 1, at
