import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.archive import ArchiveFormat, ArchiveSource, Record, car_block, car_header, format_of_name, read_archive, sniff
from gossiplog.archive.source import EXPANDED_BYTES_MAX
from gossiplog.errors import DecodeError


def source(data: bytes, *, bytes_max: int = EXPANDED_BYTES_MAX, name: str = "a.bin", format: ArchiveFormat | None = None) -> ArchiveSource:
    return ArchiveSource(io.BytesIO(data), name=name, size=len(data), format=format, expanded_bytes_max=bytes_max)


def read(data: bytes, **options: int) -> list[Record]:
    with source(data, bytes_max=options.get("bytes_max", EXPANDED_BYTES_MAX)) as opened:
        return list(opened.records())


def test_format_is_told_by_the_contents_whatever_the_name() -> None:
    assert sniff(car_header([b"\x00" * 32])) is ArchiveFormat.CAR
    assert sniff(car_header([b"\x00" * 32] * 2000)) is ArchiveFormat.CAR
    assert sniff(b'  \n{"id":') is ArchiveFormat.JSONL
    assert sniff(b"85836864\n") is ArchiveFormat.HEX
    assert sniff(b"SQLite format 3\0") is None
    assert sniff(b"") is None


@pytest.mark.parametrize(
    ("name", "kind"), [("a.jsonl", ArchiveFormat.JSONL), ("A.CAR.gz", ArchiveFormat.CAR), ("x.hex", ArchiveFormat.HEX), ("x.db", None)]
)
def test_format_is_told_by_the_ending(name: str, kind: ArchiveFormat | None) -> None:
    assert format_of_name(name) is kind


def test_hexadecimal_values_are_read_and_other_lines_named() -> None:
    records = read(b"00ff\n\n0G\n  AB  \n0\n00 11\n")
    assert [(record.place, record.value) for record in records] == [
        ("line 1", b"\x00\xff"),
        ("line 3", None),
        ("line 4", b"\xab"),
        ("line 5", None),
        ("line 6", None),
    ]


def test_line_longer_than_any_value_is_passed_over_without_being_held() -> None:
    records = read(b"ab\n" + b"cd" * (9 * 1024 * 1024) + b"\nef\n")
    assert [record.value for record in records] == [b"\xab", None, b"\xef"]


def test_gzip_is_read_like_the_plain_file() -> None:
    plain = car_header([]) + b"".join(car_block(b"value %d" % n) for n in range(50))
    assert read(gzip.compress(plain)) == read(plain)


def test_gzip_that_grows_beyond_a_hundredfold_is_refused() -> None:
    records = read(gzip.compress(b"ab\n" * 600_000))
    assert records[-1].is_truncated
    assert "100 times" in (records[-1].fault or "")


def test_gzip_that_grows_beyond_its_limit_is_refused() -> None:
    records = read(gzip.compress(b"ab\n" * 1000), bytes_max=500)
    assert "more than 500 bytes" in (records[-1].fault or "")


def test_gzip_cut_short_yields_what_was_whole() -> None:
    import random

    lines = b"".join(random.Random(1).randbytes(20).hex().encode() + b"\n" for _ in range(5000))
    data = gzip.compress(lines)
    records = read(data[: len(data) // 2])
    assert records[0].value is not None
    assert records[-1].is_truncated


def test_car_without_one_of_its_roots_does_not_pass_for_whole() -> None:
    records = read(car_header([b"\x07" * 32]) + car_block(b"value"))
    assert records[0].value == b"value"
    assert records[1].is_truncated
    assert "07" * 32 in (records[1].fault or "")


def test_file_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x00\x01\x02 nothing")
    with pytest.raises(DecodeError, match="neither"):
        ArchiveSource.open(str(tmp_path / "x"))


def test_position_follows_the_file_on_the_disk() -> None:
    data = b"ab\n" * 100
    with source(data) as opened:
        assert opened.position == 0
        list(opened.records())
        assert opened.position == len(data)


@given(st.binary(max_size=300), st.booleans(), st.sampled_from(ArchiveFormat))
def test_any_bytes_in_any_format_give_records(noise: bytes, compressed: bool, format: ArchiveFormat) -> None:
    for record in read_archive(io.BytesIO(noise), format):
        assert (record.value is None) != (record.fault is None)
    data = gzip.compress(noise)[: None if len(noise) % 2 else -3] if compressed else noise
    try:
        with source(data, format=format) as opened:
            list(opened.records())
    except DecodeError:
        pass
