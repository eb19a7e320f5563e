import pytest

from gossiplog.errors import DecodeError
from gossiplog.sync.rpc import (
    HEADS_READ_MAX,
    KEYS_MAX,
    AbortResponse,
    ChildrenResponse,
    GetChildren,
    GetNode,
    GetRoot,
    GetValues,
    Insert,
    NodeResponse,
    RootResponse,
    Update,
    ValuesResponse,
)
from gossiplog.sync.wire import decode_event, decode_request, decode_response, encode_event, encode_request, encode_response
from gossiplog.tree.node import CHILDREN_MAX, Node

KEY = bytes(range(20))
HASH = bytes(range(16))

EVENTS = [
    (Update([]), "1200"),
    (Update([bytes.fromhex("032525e8d0ea115440e4f0de79c5692e047b0418")]), "12160a14032525e8d0ea115440e4f0de79c5692e047b0418"),
    (Insert(KEY, b"v"), "0a19" + "0a14" + KEY.hex() + "120176"),
]
REQUESTS = [
    (GetRoot(), "0a00"),
    (GetNode(0, None), "1200"),
    (GetNode(3, None), "12020803"),
    (GetNode(1, KEY), "12180801" + "1214" + KEY.hex()),
    (GetChildren(2, None), "1a020802"),
    (GetChildren(300, KEY), "1a1908ac021214" + KEY.hex()),
    (GetValues([]), "2200"),
    (GetValues([KEY, KEY]), "222c" + ("0a14" + KEY.hex()) * 2),
]
RESPONSES = [
    (RootResponse(Node(0, None, HASH)), "0a14" + "0a12" + "1a10" + HASH.hex()),
    (RootResponse(Node(4, None, HASH)), "0a16" + "0a14" + "0804" + "1a10" + HASH.hex()),
    (NodeResponse(None), "1200"),
    (NodeResponse(Node(0, KEY, HASH)), "122a" + "0a28" + "1214" + KEY.hex() + "1a10" + HASH.hex()),
    (ChildrenResponse([]), "1a00"),
    (
        ChildrenResponse([Node(0, None, HASH), Node(0, KEY, HASH)]),
        "1a3e0a121a10" + HASH.hex() + "0a281214" + KEY.hex() + "1a10" + HASH.hex(),
    ),
    (ChildrenResponse([Node(1, KEY, HASH)]), "1a2c0a2a08011214" + KEY.hex() + "1a10" + HASH.hex()),
    (ChildrenResponse([Node(200, KEY, HASH)]), "1a2d0a2b08c8011214" + KEY.hex() + "1a10" + HASH.hex()),
    (ValuesResponse([]), "2200"),
    (ValuesResponse([b"", b"ab"]), "22060a000a026162"),
    (AbortResponse(0), "2a00"),
    (AbortResponse(1500), "2a0308dc0b"),
]


@pytest.mark.parametrize(("event", "encoded"), EVENTS)
def test_event_has_the_references_bytes(event, encoded):
    assert encode_event(event).hex() == encoded
    assert decode_event(bytes.fromhex(encoded)) == event


@pytest.mark.parametrize(("request_", "encoded"), REQUESTS)
def test_request_has_the_references_bytes(request_, encoded):
    assert encode_request(request_).hex() == encoded
    decoded = decode_request(bytes.fromhex(encoded))
    assert decoded == request_ and type(decoded) is type(request_)


@pytest.mark.parametrize(("response", "encoded"), RESPONSES)
def test_response_has_the_references_bytes(response, encoded):
    assert encode_response(response).hex() == encoded
    decoded = decode_response(bytes.fromhex(encoded))
    assert decoded == response and type(decoded) is type(response)


def test_empty_key_means_an_anchor_as_in_the_reference():
    assert decode_request(bytes.fromhex("1a0408011200")) == GetChildren(1, None)
    assert decode_response(bytes.fromhex("12060a0408021200")) == NodeResponse(Node(2, None, b""))


def test_unknown_fields_are_skipped_wherever_they_are():
    unknown = bytes.fromhex("7801" + "7a0161" + "7d01020304" + "790102030405060708")
    node = b"\x12\x14" + KEY + unknown + b"\x1a\x10" + HASH
    children = unknown + b"\x0a" + bytes([len(node)]) + node + unknown
    assert decode_response(unknown + b"\x1a" + bytes([len(children)]) + children) == ChildrenResponse([Node(0, KEY, HASH)])
    assert decode_request(unknown + b"\x0a" + bytes([len(unknown)]) + unknown + unknown) == GetRoot()
    values = b"\x0a\x01a" + unknown + b"\x0a\x01b"
    assert decode_response(b"\x22" + bytes([len(values)]) + values) == ValuesResponse([b"a", b"b"])


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "0a",
        "0a01",
        "0a001200",
        "0a000a00",
        "7a00",
        "0801",
        "0000",
        "0b00",
        "1a04080112",
        "1a0408011201",
        "1a0308011a",
        "1a0508ffffffff1f",
        "1a0a08ffffffffffffffffffff01",
        "1a0408010801",
        "1a02087f00",
        "12050801120161",
        "22030a0161",
        "2202" + "0801",
        "22020a80",
        "220a0affffffffffffffff7f",
        "ffffffffffffffffffff7f00",
    ],
)
def test_malformed_request_is_one_kind_of_error(encoded):
    with pytest.raises(DecodeError):
        decode_request(bytes.fromhex(encoded))


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "0a00",
        "0a040a000a00",
        "12040a000a00",
        "1a020a01",
        "1a020a80",
        "1a020801",
        "2a040801" + "0801",
        "2a060880808080" + "10",
        "2a0208",
        "32",
    ],
)
def test_malformed_response_is_one_kind_of_error(encoded):
    with pytest.raises(DecodeError):
        decode_response(bytes.fromhex(encoded))


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "0a00",
        "0a020a00",
        "0a160a14" + "00" * 20,
        "12030a0100",
        "1200" + "0a00",
        "0a0612010112" + "0101",
        "0a190a13" + "00" * 19 + "12020101",
    ],
)
def test_malformed_event_is_one_kind_of_error(encoded):
    with pytest.raises(DecodeError):
        decode_event(bytes.fromhex(encoded))


def test_heads_and_keys_and_values_and_children_have_a_maximum():
    assert len(decode_event(encode_event(Update([KEY] * HEADS_READ_MAX))).heads) == HEADS_READ_MAX
    with pytest.raises(DecodeError, match="more than 16384 heads"):
        decode_event(encode_event(Update([KEY] * (HEADS_READ_MAX + 1))))
    assert len(decode_request(encode_request(GetValues([KEY] * KEYS_MAX))).keys) == KEYS_MAX
    assert decode_request(encode_request(GetValues([KEY] * (KEYS_MAX + 1)))) == GetValues([KEY] * KEYS_MAX, has_more=True)
    with pytest.raises(DecodeError, match="more than 1024 values"):
        decode_response(encode_response(ValuesResponse([b""] * (KEYS_MAX + 1))))
    # Past a field that is unknown, the general reader counts on.
    values = b"\x78\x01" + b"\x0a\x00" * (KEYS_MAX + 1)
    with pytest.raises(DecodeError, match="more than 1024 values"):
        decode_response(b"\x22\x84\x10" + values)
    children = b"\x0a\x00" * (CHILDREN_MAX + 1)
    with pytest.raises(DecodeError, match="more than 100000 children"):
        decode_response(b"\x1a\xc2\x9a\x0c" + children)
    children = b"\x78\x01" + b"\x0a\x00" * (CHILDREN_MAX + 1)
    with pytest.raises(DecodeError, match="more than 100000 children"):
        decode_response(b"\x1a\xc4\x9a\x0c" + children)


def test_pushed_value_is_as_large_as_a_frame_and_not_empty():
    assert decode_event(encode_event(Insert(KEY, bytes(4_000_000)))).value == bytes(4_000_000)
    with pytest.raises(DecodeError, match="without a value"):
        decode_event(encode_event(Insert(KEY, b"")))
