import tracemalloc

import pytest

from gossiplog.codec import pcf
from gossiplog.entry import Ed25519Signer, InvalidEntry, check_topic, is_topic, message_key, next_clock, parse_envelope, signed_bytes
from gossiplog.entry.envelope import _parse_any, _parse_usual, build_value, signature_and_signed_bytes
from gossiplog.errors import DecodeError, LocalProtocolError

SIGNER = Ed25519Signer.from_seed(bytes(32))
TOPIC = "app.example.com"


def value_of(*, codec="dag-cbor", did=SIGNER.did, signature=bytes(64), topic=TOPIC, clock=None, parents=(), payload=b"\x01"):
    return build_value(codec, did, signature, topic, next_clock(parents) if clock is None else clock, parents, payload)


def keys(count, clock=1):
    return [message_key(clock, b"%d" % number) for number in range(count)]


def rule_of(value, **arguments):
    with pytest.raises(InvalidEntry) as caught:
        parse_envelope(value, **arguments)
    assert str(caught.value) == f"{caught.value.rule}: {caught.value.reason}"
    return caught.value.rule


@pytest.mark.parametrize("topic", ["a", "app.example.com", "A-1.z", "a#b", "...", "a" * 128, "a" * 126 + "#b", "-"])
def test_topics_of_the_right_form(topic):
    assert is_topic(topic)
    check_topic(topic)
    assert parse_envelope(value_of(topic=topic)).topic == topic


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a b", "a\n", "é", "a#", "#a", "a#b#c", "a#b-c", "a" * 129, "\u0661", "a\0"])
def test_topics_of_the_wrong_form(topic):
    assert not is_topic(topic)
    with pytest.raises(LocalProtocolError, match="is not well formed"):
        check_topic(topic)
    assert rule_of(value_of(topic=topic)) == "topic"


@pytest.mark.parametrize("count", [0, 1, 2, 23, 24, 255, 256, 1000])
@pytest.mark.parametrize("clock", [1, 22, 23, 24, 127, 128, 255, 256, 65_535, 65_536, 2**32, 2**53 - 2])
def test_entries_with_any_number_of_parents_are_taken_apart(count, clock):
    parents = tuple(keys(count, clock))
    envelope = parse_envelope(value_of(parents=parents))
    assert envelope.parent_keys == parents
    assert envelope.clock == (clock + 1 if count else 1)


def test_parents_come_in_any_order_and_more_than_once():
    low, high = keys(1, 5) + keys(1, 9)
    for parents in ((low, high), (high, low), (low, low, high, low)):
        envelope = parse_envelope(value_of(parents=parents))
        assert (envelope.parent_keys, envelope.clock) == (parents, 10)


def test_at_most_16384_parents():
    limit = 1 << 20
    assert len(parse_envelope(value_of(parents=keys(16_384)), limit).parent_keys) == 16_384
    assert rule_of(value_of(parents=keys(16_385)), value_bytes_max=limit) == "size"


@pytest.mark.parametrize("clock", [2, 3, 2**53, 2**64 - 1])
def test_a_wrong_clock_is_named_with_the_right_one(clock):
    with pytest.raises(DecodeError, match=f"^clock: clock {clock}, expected 1$"):
        parse_envelope(value_of(clock=clock))
    assert rule_of(value_of(parents=keys(1, 7), clock=7)) == "clock"
    assert rule_of(value_of(clock=0)) == "scheme"
    assert rule_of(value_of(parents=keys(1), clock=0)) == "clock"


def test_a_clock_beyond_the_last_is_refused():
    assert rule_of(value_of(parents=keys(1, 2**53 - 1), clock=2**53)) == "clock"


@pytest.mark.parametrize("head", ["8005", "ff", "feffffffffffffff", "c00001"])
def test_a_parent_without_a_canonical_clock_is_refused(head):
    parent = bytes.fromhex(head).ljust(20, b"\0")
    assert rule_of(value_of(parents=[parent], clock=6)) == "clock"


def test_the_size_is_limited():
    payload = pcf.encode(b"x" * 65_000)
    value = value_of(payload=payload)
    assert parse_envelope(value, len(value)).payload_at
    assert rule_of(value, value_bytes_max=len(value) - 1) == "size"
    assert rule_of(value_of(payload=pcf.encode(b"x" * (1 << 22), bytes_max=1 << 23)), value_bytes_max=1 << 30) == "size"


@pytest.mark.parametrize("place", range(3))
def test_a_part_of_the_signature_that_holds_200_000_items_is_refused_before_it_is_built(place):
    parts = [b"\x60", b"\x60", b"\x40"]
    parts[place] = b"\x9a\x00\x03\x0d\x40" + b"\x80" * 200_000
    value = b"\x85\x83" + b"".join(parts) + b"\x61a\x01\x80\xf6"
    tracemalloc.start()
    try:
        assert rule_of(value) == "shape"
        assert tracemalloc.get_traced_memory()[1] < 10 * len(value)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x85",
        b"\xff" * 100,
        value_of(payload=b""),
        value_of() + b"\0",
        value_of(payload=b"\x18\x01"),
        value_of()[:-2],
        value_of(parents=keys(1))[:-1],
    ],
)
def test_what_is_not_in_canonical_form_is_refused(value):
    assert rule_of(value) == "canonical"


@pytest.mark.parametrize("value", [value_of(payload=b"\xf9\x3e\x00"), value_of().replace(b"x8did", b"x8\xffid")])
def test_what_some_version_of_the_reference_keeps_is_told_apart(value):
    assert rule_of(value) == "portable"
    assert rule_of(value + b"\0") == rule_of(b"\x86" + value[1:]) == rule_of(value[:-1]) == "canonical"


@pytest.mark.parametrize(
    "value",
    [
        1,
        {},
        "text",
        [],
        [["dag-cbor", "did:key:z", b""], TOPIC, 1, []],
        [["dag-cbor", "did:key:z", b""], TOPIC, 1, [], None, None],
        [["dag-cbor", "did:key:z"], TOPIC, 1, [], None],
        [["dag-cbor", "did:key:z", "text"], TOPIC, 1, [], None],
        [["dag-cbor", b"did", b""], TOPIC, 1, [], None],
        [[1, "did:key:z", b""], TOPIC, 1, [], None],
        [{}, TOPIC, 1, [], None],
        [None, TOPIC, 1, [], None],
        [["dag-cbor", "did:key:z", b""], TOPIC.encode(), 1, [], None],
        [["dag-cbor", "did:key:z", b""], [TOPIC], 1, [], None],
        [["dag-cbor", "did:key:z", b""], TOPIC, "1", [], None],
        [["dag-cbor", "did:key:z", b""], TOPIC, True, [], None],
        [["dag-cbor", "did:key:z", b""], TOPIC, 1.5, [], None],
        [["dag-cbor", "did:key:z", b""], TOPIC, [1], [], None],
        [["dag-cbor", "did:key:z", b""], TOPIC, 1, None, None],
        [["dag-cbor", "did:key:z", b""], TOPIC, 1, {}, None],
        [["dag-cbor", "did:key:z", b""], TOPIC, 1, [b"x" * 19], None],
        [["dag-cbor", "did:key:z", b""], TOPIC, 1, [b"x" * 21], None],
        [["dag-cbor", "did:key:z", b""], TOPIC, 1, ["x" * 20], None],
        [["dag-cbor", "did:key:z", b""], TOPIC, 1, [b"x" * 20, None], None],
        [["dag-cbor", "did:key:z", b""], TOPIC, 1, [[b"x" * 20]], None],
        [["dag-cbor", "did:key:z", b""], TOPIC, 1, [b"x" * 19, b"x" * 21], None],
    ],
)
def test_other_shapes_are_refused(value):
    assert rule_of(pcf.encode(value)) == "shape"


def test_the_payload_has_1024_levels_of_its_own():
    for codec in ("dag-cbor", "dag-json"):
        assert parse_envelope(value_of(codec=codec, payload=b"\x81" * 1024 + b"\x01"))
        assert rule_of(value_of(codec=codec, payload=b"\x81" * 1025 + b"\x01")) == "nesting"
        assert rule_of(value_of(codec=codec, payload=b"\x81" * 60_000)) == "nesting"


@pytest.mark.parametrize("topic", ["t", "a" * 23, "a" * 24, "a" * 128])
@pytest.mark.parametrize("count", [0, 1, 30])
@pytest.mark.parametrize("codec", ["dag-cbor", "dag-json"])
def test_the_signed_bytes_are_sliced_as_they_were_built(codec, count, topic):
    parents = keys(count, 300)
    payload = pcf.encode({"a": [1, b"x", "é"]})
    value = value_of(codec=codec, topic=topic, parents=parents, payload=payload, signature=b"s" * 64)
    built = signed_bytes(codec, topic, next_clock(parents), parents, payload)
    assert signature_and_signed_bytes(value, parse_envelope(value)) == b"s" * 64 + built


def test_the_usual_way_takes_the_usual_entry_and_agrees():
    for topic in ("a", "a" * 23, "a" * 24, "a" * 128):
        value = value_of(topic=topic, parents=keys(3, 200), payload=pcf.encode({"op": "set"}))
        assert _parse_usual(value) == _parse_any(value) is not None
    for unusual in (
        value_of(codec="dag-json"),
        value_of(did="did:key:z6Mk"),
        value_of(topic="a" * 129),
        value_of(parents=keys(24)),
        value_of(clock=2),
        b"",
    ):
        assert _parse_usual(unusual) is None
