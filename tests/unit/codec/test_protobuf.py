import pytest

from gossiplog.codec.protobuf import Field, Kind, Schema
from gossiplog.errors import DecodeError, EncodeError

NODE = Schema("Node", Field(1, "level", Kind.UINT32), Field(2, "key", Kind.BYTES, optional=True), Field(3, "hash", Kind.BYTES))
UPDATE = Schema("Update", Field(1, "heads", Kind.BYTES, repeated=True, repeated_max=3))
INSERT = Schema("Insert", Field(1, "key", Kind.BYTES), Field(2, "value", Kind.BYTES))
EVENT = Schema("Event", Field(2, "update", UPDATE), Field(1, "insert", INSERT))
MIXED = Schema(
    "Mixed",
    Field(1, "flag", Kind.BOOL),
    Field(2, "text", Kind.STRING),
    Field(3, "backoff", Kind.UINT64, optional=True),
    Field(4, "nodes", NODE, repeated=True, repeated_max=2),
    Field(5, "names", Kind.STRING, repeated=True),
)


def test_an_empty_update_is_12_00():
    assert EVENT.encode({"update": {}}).hex() == "1200"
    assert EVENT.decode(bytes.fromhex("1200")) == {"insert": None, "update": {"heads": []}}


def test_defaults_are_left_out_and_presence_is_kept():
    assert NODE.encode({"level": 0, "hash": b""}) == b""
    assert NODE.encode({"level": 1, "key": b"", "hash": b"h"}).hex() == "080112001a0168"
    assert NODE.decode(b"") == {"level": 0, "key": None, "hash": b""}
    assert NODE.decode(bytes.fromhex("080112001a0168")) == {"level": 1, "key": b"", "hash": b"h"}
    assert MIXED.encode({"backoff": 0, "flag": False}).hex() == "1800"


def test_a_byte_of_zero_is_no_default():
    assert NODE.decode(NODE.encode({"hash": b"\0", "level": 0}))["hash"] == b"\0"


def test_everything_comes_back():
    values = {
        "flag": True,
        "text": "é",
        "backoff": 2**64 - 1,
        "nodes": [{"level": 2**32 - 1, "key": None, "hash": b"a"}, {"level": 0, "key": b"k", "hash": b""}],
        "names": ["", "b"],
    }
    assert MIXED.decode(MIXED.encode(values)) == values


def test_unknown_fields_are_skipped():
    unknown = bytes.fromhex("5001" + "51" + "00" * 8 + "5203616263" + "5500000000" + "f8ffffff0f01")
    assert NODE.decode(unknown + NODE.encode({"level": 7, "hash": b"h"}) + unknown) == {"level": 7, "key": None, "hash": b"h"}


def test_the_last_of_a_singular_field_counts():
    assert NODE.decode(bytes.fromhex("08010802"))["level"] == 2


def test_padded_varints_are_read():
    assert NODE.decode(bytes.fromhex("888000" + "8180808000"))["level"] == 1


def test_lists_have_a_maximum_while_reading():
    assert UPDATE.decode(b"\x0a\x00" * 3) == {"heads": [b""] * 3}
    with pytest.raises(DecodeError, match="more than 3"):
        UPDATE.decode(b"\x0a\x00" * 4)
    with pytest.raises(DecodeError, match="more than 3"):
        EVENT.decode(EVENT.encode({"update": {"heads": [b""] * 50_000}}))


@pytest.mark.parametrize(
    "data",
    [
        "08",
        "0880",
        "08" + "ff" * 10,
        "08" + "ff" * 9 + "02",
        "0a01",
        "1205aa",
        "12ffffffffffffffffff01",
        "0000",
        "0b",
        "0c",
        "0e",
        "0f",
        "09" + "00" * 8,
        "0d00000000",
        "0a00",
        "1000",
        "0880808080" + "10",
        "51" + "00" * 7,
        "55000000",
        "80" * 100,
        "f8ffffff7f00",
    ],
)
def test_malformed_messages_are_refused(data):
    with pytest.raises(DecodeError):
        NODE.decode(bytes.fromhex(data))


def test_text_must_be_utf8():
    with pytest.raises(DecodeError, match="not UTF-8"):
        MIXED.decode(b"\x12\x01\xff")


@pytest.mark.parametrize(
    "values",
    [{"level": -1}, {"level": 2**32}, {"level": True}, {"level": "1"}, {"key": "text"}, {"unknown": 1}],
)
def test_wrong_values_are_not_written(values):
    with pytest.raises(EncodeError):
        NODE.encode(values)


def test_half_a_surrogate_pair_is_not_written():
    with pytest.raises(EncodeError, match="surrogate"):
        MIXED.encode({"text": "\ud800"})
    with pytest.raises(EncodeError):
        MIXED.encode({"flag": 1})


@pytest.mark.parametrize("field", ["0801", "9006", "1a00"], ids=["repeated singular", "unknown", "repeated message"])
def test_more_fields_than_anybody_needs_are_refused(field):
    nested = Schema("Nested", Field(1, "level", Kind.UINT32), Field(3, "node", NODE))
    data = bytes.fromhex(field + "00" if field == "9006" else field)
    nested.decode(data * 256)
    with pytest.raises(DecodeError, match="more than 256 fields"):
        nested.decode(data * 257)


def test_short_and_long_items_of_a_list_come_back_in_their_order():
    names = Schema("Names", Field(1, "ids", Kind.BYTES, repeated=True), Field(2, "more", Kind.BYTES, repeated=True))
    for sizes in ([32] * 30, [0, 127, 128, 127, 300, 1, 0], [], [128], [32, 128]):
        ids = [bytes([index % 256]) * size for index, size in enumerate(sizes)]
        encoded = names.encode({"ids": ids, "more": [b"x", b"y"]})
        assert names.decode(encoded) == {"ids": ids, "more": [b"x", b"y"]}
        # As any other writer may put it: the lists in pieces, and lengths of more bytes than they need.
        padded = b"".join(b"\x0a" + bytes([len(each) & 0x7F | 0x80, len(each) >> 7]) + each for each in ids)
        assert names.decode(b"\x12\x01x" + padded + encoded)["ids"] == ids * 2


@pytest.mark.parametrize("cut", range(1, 10))
def test_list_that_is_cut_short_is_refused_wherever_it_is(cut):
    encoded = UPDATE.encode({"heads": [b"12345", b"", b"123456"]})
    whole = {7: [b"12345"], 9: [b"12345", b""]}
    if (kept := len(encoded) - cut) in whole:
        assert UPDATE.decode(encoded[:kept])["heads"] == whole[kept]
    else:
        with pytest.raises(DecodeError):
            UPDATE.decode(encoded[:kept])


def test_last_item_too_many_is_refused_whatever_its_form():
    for last in (b"\x0a\x01x", b"\x0a\x81\x00x"):
        assert len(UPDATE.decode(b"\x0a\x01x" * 2 + last)["heads"]) == 3
        with pytest.raises(DecodeError, match="more than 3"):
            UPDATE.decode(b"\x0a\x01x" * 3 + last)
