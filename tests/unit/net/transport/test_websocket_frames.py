"""Frames of a WebSocket, beside wsproto's reading of the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from wsproto.frame_protocol import FrameProtocol, Opcode, ParseFailed

from gossiplog.errors import DecodeError
from gossiplog.net.transport.websocket_frames import (
    BINARY,
    CLOSE,
    FRAMES_A_TURN,
    PING,
    TEXT,
    FrameReader,
    WebSocketFrame,
    decode_close,
    encode_close,
    encode_frame,
)

SIZES = (0, 1, 3, 125, 126, 127, 65_535, 65_536)


@pytest.mark.parametrize("is_client", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_what_is_written_is_read_by_both(is_client: bool, size: int) -> None:
    payload = Random(size).randbytes(size)
    wire = encode_frame(BINARY, payload, is_masked=is_client)
    assert [(frame.payload, frame.is_last) for frame in FrameReader(is_masked=is_client).read(wire)] == [(payload, True)]
    theirs = FrameProtocol(client=not is_client, extensions=[])
    theirs.receive_bytes(wire)
    assert [bytes(frame.payload) for frame in theirs.received_frames()] == [payload]


@pytest.mark.parametrize("seed", range(300))
def test_valid_and_damaged_frames_mean_what_they_mean_to_wsproto(seed: int) -> None:
    rng = Random(seed)
    is_client = rng.random() < 0.5
    frames = FrameProtocol(client=is_client, extensions=[])
    wire = bytearray()
    for _ in range(rng.randrange(1, 12)):
        payload = rng.randbytes(rng.choice([0, 1, 2, 5, 125, 126, 300]))
        wire += rng.choice(
            [
                lambda data: frames.send_data(data, fin=rng.random() < 0.7),
                lambda data: frames.send_data(data, fin=True),
                lambda data: frames.ping(data[:125]),
                lambda data: frames.pong(data[:125]),
                lambda data: frames.close(1000 + len(data), "bye") if rng.random() < 0.2 else b"",
            ]
        )(payload)
    for _ in range(rng.choice([0, 0, 1, 2])):
        if wire:
            wire[rng.randrange(len(wire))] ^= 1 << rng.randrange(8)
    ours, theirs = read(bytes(wire), is_client, rng), read_by_wsproto(bytes(wire), is_client)
    assert ours == theirs


def read(wire: bytes, is_masked: bool, rng: Random) -> tuple[list[tuple[int, bytes]], bool]:
    """Messages and control frames as far as a text or goodbye, and whether what follows is refused."""
    reader, found = FrameReader(is_masked=is_masked), list[tuple[int, bytes]]()
    message = b""
    try:
        while wire:
            size = rng.choice([1, 2, 3, 50, 1_000])
            for opcode, payload, is_last in frames_of(reader, wire[:size]):
                if opcode == BINARY:
                    message += payload
                    if is_last:
                        found.append((opcode, message))
                        message = b""
                elif opcode == TEXT:
                    return found, False
                else:
                    if opcode == CLOSE:
                        decode_close(payload)
                    found.append((opcode, b"" if opcode == CLOSE else payload))
                    if opcode == CLOSE:
                        return found, False
            wire = wire[size:]
    except DecodeError:
        return found, True
    return found, False


def frames_of(reader: FrameReader, data: bytes) -> Iterator[WebSocketFrame]:
    yield from reader.read(data)
    while reader.is_behind:
        yield from reader.read(b"")


def read_by_wsproto(wire: bytes, is_masked: bool) -> tuple[list[tuple[int, bytes]], bool]:
    reader, found = FrameProtocol(client=not is_masked, extensions=[]), list[tuple[int, bytes]]()
    message = b""
    try:
        for byte in wire:
            reader.receive_bytes(bytes((byte,)))
            for frame in reader.received_frames():
                if frame.opcode is Opcode.BINARY:
                    message += frame.payload
                    if frame.message_finished:
                        found.append((BINARY, message))
                        message = b""
                elif frame.opcode is Opcode.TEXT:
                    return found, False
                else:
                    found.append((int(frame.opcode), b"" if frame.opcode is Opcode.CLOSE else bytes(frame.payload)))
                    if frame.opcode is Opcode.CLOSE:
                        return found, False
    except ParseFailed as error:
        # Ours leaves text to those who refuse it.
        return found, "codec can't decode" not in str(error) or "CLOSE" in str(error)
    return found, False


def test_many_small_frames_are_read_a_few_at_a_time() -> None:
    reader = FrameReader(is_masked=False)
    turns = [len(reader.read(encode_frame(PING, b"", is_masked=False) * 200))]
    while reader.is_behind:
        turns.append(len(reader.read(b"")))
    assert turns == [FRAMES_A_TURN] * 3 + [200 - 3 * FRAMES_A_TURN]


@pytest.mark.parametrize("payload", [b"\x03", b"\x03\xe7", (1005).to_bytes(2), (5000).to_bytes(2), b"\x03\xe8\xff"])
def test_goodbye_that_says_what_none_may_say_is_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_close(payload)


def test_reason_of_a_goodbye_is_cut_between_characters() -> None:
    payload = encode_close(1003, "ü" * 100)
    assert len(payload) <= 125 and payload[2:].decode() == "ü" * 61
    assert decode_close(payload) == 1003
    assert decode_close(b"") is None
