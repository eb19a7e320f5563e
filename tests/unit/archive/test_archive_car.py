import hashlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.archive import BLOCK_BYTES_MAX, CarHeader, Record, car_block, car_cid, car_header, read_car, read_car_header
from gossiplog.errors import DecodeError

VALUES = [b"first", b"second value", b"\x00" * 300]


def digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()


def car(values: list[bytes], roots: list[bytes] | None = None) -> bytes:
    roots = [digest(values[-1])] if roots is None else roots
    return car_header(roots) + b"".join(car_block(value) for value in values)


def read(data: bytes) -> tuple[CarHeader, list[Record]]:
    file = io.BytesIO(data)
    header = read_car_header(file)
    return header, list(read_car(file, header))


def test_what_was_written_is_read_back() -> None:
    header, records = read(car(VALUES))
    assert header.roots == (digest(VALUES[-1]),)
    assert [record.value for record in records] == VALUES


def test_header_is_the_dag_cbor_that_other_tools_write() -> None:
    import dag_cbor
    from multiformats import CID

    roots = [digest(b"%d" % n) for n in range(300)]
    encoded = car_header(roots)
    body = dag_cbor.encode({"roots": [CID.decode(car_cid(root)) for root in roots], "version": 1})
    assert encoded.endswith(body)
    assert len(encoded) - len(body) == 2
    assert read_car_header(io.BytesIO(encoded)) == CarHeader(tuple(roots), len(encoded))


def test_empty_log_has_a_header_without_roots() -> None:
    header, records = read(car([], roots=[]))
    assert header.roots == ()
    assert records == []


def test_damaged_block_is_named_and_the_next_is_read() -> None:
    data = bytearray(car(VALUES))
    data[data.index(b"second")] ^= 1
    _, records = read(bytes(data))
    assert [record.value for record in records] == [VALUES[0], None, VALUES[2]]
    offset = len(car_header([digest(VALUES[-1])])) + len(car_block(VALUES[0]))
    assert records[1].place == f"byte {offset}"
    assert "does not hash" in (records[1].fault or "")


@pytest.mark.parametrize("cut", range(1, 60))
def test_file_that_ends_early_is_said_to_be_truncated(cut: int) -> None:
    last = car_block(VALUES[2])
    _, records = read(car(VALUES)[:-cut])
    assert [record.value for record in records[:2]] == VALUES[:2]
    assert records[2].is_truncated
    assert cut < len(last)


def test_block_larger_than_any_value_is_passed_over() -> None:
    data = car_header([]) + car_block(b"x" * (BLOCK_BYTES_MAX + 1)) + car_block(b"good")
    _, records = read(data)
    assert "larger than" in (records[0].fault or "")
    assert records[1].value == b"good"


def test_block_of_another_kind_is_a_fault_and_the_next_is_read() -> None:
    raw = b"\x01\x55\x12\x20" + digest(b"raw") + b"raw"
    _, records = read(car_header([]) + bytes([len(raw)]) + raw + car_block(b"good"))
    assert "not an entry" in (records[0].fault or "")
    assert records[1].value == b"good"


@pytest.mark.parametrize("length", [b"\x00", b"\x05", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\xff\xff\xff\xff\x7f"])
def test_length_that_makes_no_sense_ends_the_reading(length: bytes) -> None:
    _, records = read(car_header([]) + car_block(b"good") + length + car_block(b"lost"))
    assert records[0].value == b"good"
    assert records[1].is_truncated
    assert len(records) == 2


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\xff" * 20,
        b"{}",
        b"\x01\xa0",
        car_header([digest(b"")])[:-1],
        car_header([digest(b"")]).replace(b"\x01\x71", b"\x01\x55"),
    ],
)
def test_header_of_something_else_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        read_car_header(io.BytesIO(data))


def test_header_that_claims_gigabytes_is_refused_before_it_is_read() -> None:
    with pytest.raises(DecodeError, match="a header of"):
        read_car_header(io.BytesIO(b"\xff\xff\xff\xff\x7f" + b"\x00" * 10))


@given(st.binary(max_size=400), st.integers(min_value=0, max_value=200))
def test_any_bytes_give_records_or_a_decode_error(noise: bytes, at: int) -> None:
    for data in (noise, car(VALUES)[:at] + noise):
        try:
            _, records = read(data)
        except DecodeError:
            continue
        assert all((record.value is None) != (record.fault is None) for record in records)
