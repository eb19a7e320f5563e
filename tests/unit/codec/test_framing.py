import pytest

from gossiplog.codec.framing import FrameDecoder, encode_frame
from gossiplog.errors import DecodeError


def test_frames_come_out_however_the_stream_is_cut():
    messages = [b"", b"a", b"b" * 127, b"c" * 128, b"d" * 20_000]
    stream = b"".join(map(encode_frame, messages))
    for piece in (1, 2, 7, 128, 4096, len(stream)):
        decoder = FrameDecoder()
        frames = [frame for at in range(0, len(stream), piece) for frame in decoder.feed(stream[at : at + piece])]
        decoder.finish()
        assert frames == messages
        assert decoder.buffered_bytes == 0


def test_a_long_frame_is_refused_on_its_prefix():
    decoder = FrameDecoder(frame_bytes_max=100)
    assert decoder.feed(encode_frame(b"x" * 100)) == [b"x" * 100]
    with pytest.raises(DecodeError, match="at most 100"):
        decoder.feed(b"\x65")
    assert decoder.buffered_bytes == 0
    with pytest.raises(DecodeError, match="at most 100"):
        decoder.feed(b"")
    with pytest.raises(DecodeError, match="at most 100"):
        decoder.finish()


@pytest.mark.parametrize("prefix", [b"\x80\x00", b"\x81\x80\x00", b"\x80" * 20, b"\xff" * 10])
def test_padded_and_endless_lengths_are_refused(prefix):
    with pytest.raises(DecodeError):
        FrameDecoder().feed(prefix)


def test_an_endless_length_is_refused_a_byte_at_a_time_too():
    decoder = FrameDecoder()
    with pytest.raises(DecodeError):
        for _ in range(20):
            decoder.feed(b"\x80")


def test_a_stream_may_not_end_within_a_frame():
    decoder = FrameDecoder()
    assert decoder.feed(b"\x05abc") == []
    assert decoder.buffered_bytes == 4
    with pytest.raises(DecodeError, match="after 4 bytes"):
        decoder.finish()
