import pytest

from gossiplog.codec.framing import FRAME_BYTES_MAX, FrameDecoder, encode_frame
from gossiplog.errors import DecodeError


def test_frames_come_out_however_the_stream_is_cut():
    messages = [b"", b"a", b"b" * 127, b"c" * 128, b"d" * 20_000]
    stream = b"".join(map(encode_frame, messages))
    for piece in (1, 2, 7, 128, 4096, len(stream)):
        decoder = FrameDecoder()
        frames = [frame for at in range(0, len(stream), piece) for frame in decoder.take(stream[at : at + piece])]
        decoder.finish()
        assert frames == messages
        assert decoder.buffered_bytes == 0


def test_a_long_frame_is_refused_on_its_prefix():
    decoder = FrameDecoder(frame_bytes_max=100)
    assert decoder.take(encode_frame(b"x" * 100)) == [b"x" * 100]
    with pytest.raises(DecodeError, match="at most 100"):
        decoder.take(b"\x65")
    with pytest.raises(DecodeError, match="at most 100"):
        decoder.take(b"")
    with pytest.raises(DecodeError):
        decoder.finish()


@pytest.mark.parametrize("prefix", [b"\x80\x00", b"\x81\x80\x00", b"\x80" * 20, b"\xff" * 10])
def test_padded_and_endless_lengths_are_refused(prefix):
    with pytest.raises(DecodeError):
        FrameDecoder().take(prefix)


def test_an_endless_length_is_refused_a_byte_at_a_time_too():
    decoder = FrameDecoder()
    with pytest.raises(DecodeError):
        for _ in range(20):
            decoder.take(b"\x80")


def test_a_stream_may_not_end_within_a_frame():
    decoder = FrameDecoder()
    assert decoder.take(b"\x05abc") == []
    assert decoder.buffered_bytes == 3
    with pytest.raises(DecodeError, match="with 3 bytes"):
        decoder.finish()


def test_longest_frame_passes_and_a_byte_more_does_not():
    frames = FrameDecoder()
    frames.feed(encode_frame(bytes(FRAME_BYTES_MAX)))
    assert len(frames.next() or b"") == FRAME_BYTES_MAX
    frames.feed(encode_frame(bytes(FRAME_BYTES_MAX + 1))[:4])
    with pytest.raises(DecodeError, match="at most 4194304"):
        frames.next()


def test_what_was_taken_is_not_kept():
    frames = FrameDecoder()
    for _ in range(50):
        frames.feed(encode_frame(bytes(10_000)) * 10 + b"\x90")
        for _ in range(10):
            assert frames.next() is not None
        assert frames.next() is None
        frames.feed(b"\x4e" + bytes(10_000))
        assert frames.next() is not None
    assert len(frames._buffer) < 300_000
