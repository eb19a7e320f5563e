import pytest

from gossiplog.errors import DecodeError
from gossiplog.sync.framing import FrameDecoder, frame
from gossiplog.sync.rpc import FRAME_BYTES_MAX


def test_frames_come_out_whole_however_they_were_cut():
    messages = [b"", b"a", bytes(127), bytes(128), bytes(70_000), b"z"]
    stream = b"".join(map(frame, messages))
    for step in (1, 7, 1000, len(stream)):
        frames, out = FrameDecoder(), []
        for start in range(0, len(stream), step):
            frames.feed(stream[start : start + step])
            while (message := frames.next()) is not None:
                out.append(message)
        assert out == messages
        assert frames.buffered == 0


def test_longest_frame_passes_and_a_byte_more_does_not():
    frames = FrameDecoder()
    frames.feed(frame(bytes(FRAME_BYTES_MAX)))
    assert len(frames.next() or b"") == FRAME_BYTES_MAX
    frames.feed(frame(bytes(FRAME_BYTES_MAX + 1))[:4])
    with pytest.raises(DecodeError, match="at most 4194304"):
        frames.next()


@pytest.mark.parametrize("prefix", ["ffffffff", "ffffffff7f", "8000", "81808000"])
def test_prefix_that_is_too_long_is_refused(prefix):
    frames = FrameDecoder()
    frames.feed(bytes.fromhex(prefix))
    with pytest.raises(DecodeError):
        frames.next()


def test_what_was_taken_is_not_kept():
    frames = FrameDecoder()
    for _ in range(50):
        frames.feed(frame(bytes(10_000)) * 10 + b"\x90")
        for _ in range(10):
            assert frames.next() is not None
        assert frames.next() is None
        frames.feed(b"\x4e" + bytes(10_000))
        assert frames.next() is not None
    assert len(frames._buffer) < 300_000
