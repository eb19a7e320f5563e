"""Entries: the short way through VALUE against the general one, signing against verifying, and damage against both."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gossiplog.codec import pcf
from gossiplog.codec.clock import CLOCK_MAX, decode_clock, encode_clock
from gossiplog.entry import (
    Ed25519Signer,
    Entry,
    InvalidEntry,
    Outcome,
    decode_id,
    encode_id,
    message_key,
    next_clock,
    parse_envelope,
    sign_entry,
    validate,
)
from gossiplog.entry.envelope import _parse_any, _parse_usual, build_value
from gossiplog.errors import DecodeError

SIGNERS = [Ed25519Signer.from_seed(bytes([number]) * 32, codec=codec) for number in (1, 2) for codec in ("dag-cbor", "dag-json")]
TOPICS = st.sampled_from(["t", "app.example.com", "a" * 23, "a" * 24, "app#12ab"])
CLOCKS = st.sampled_from([1, 22, 23, 127, 128, 255, 256, 16_383, 65_536, 2**32, CLOCK_MAX - 1]) | st.integers(1, CLOCK_MAX - 1)
KEYS = st.builds(lambda clock, tail: (encode_clock(clock) + tail)[:20], CLOCKS, st.binary(min_size=20, max_size=20))
PAYLOADS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("abé/", max_size=9)
    | st.binary(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcé", max_size=3), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    parents = draw(st.lists(KEYS, max_size=3) | st.lists(KEYS, min_size=22, max_size=26))
    return sign_entry(draw(st.sampled_from(SIGNERS)), draw(TOPICS), next_clock(parents), parents, pcf.encode(draw(PAYLOADS)))


@st.composite
def damaged_values(draw: st.DrawFn) -> bytes:
    """A VALUE with a few bytes changed, dropped or doubled, mostly before the payload."""
    value = bytearray(draw(entries()).value)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, min(len(value) - 1, 200)) | st.integers(0, len(value) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                value[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                del value[at]
            case 2:
                value.insert(at, value[at])
            case _:
                value[at] = draw(st.sampled_from([0x00, 0x18, 0x19, 0x1B, 0x54, 0x58, 0x60, 0x78, 0x80, 0x81, 0x97, 0x98, 0xF6, 0xFF]))
    return bytes(value)


def general(value: bytes) -> object:
    try:
        return _parse_any(value)
    except InvalidEntry as error:
        return error.rule


def quick(value: bytes) -> object:
    try:
        return parse_envelope(value)
    except InvalidEntry as error:
        return error.rule


@settings(max_examples=50, deadline=None)
@given(entries())
def test_what_is_signed_is_accepted_and_comes_back(entry):
    verdict = validate(entry.value, topic=entry.topic, key=entry.key)
    assert verdict.outcome is Outcome.ACCEPT
    decoded = Entry.decode(entry.value)
    assert decoded == entry
    assert decoded.key == entry.key == message_key(entry.clock, entry.value)
    assert decoded.message == entry.message
    assert pcf.encode(entry.message.payload) == entry.payload_bytes
    assert decoded.signature == entry.signature
    assert [decode_id(parent) for parent in entry.message.parents] == list(entry.parent_keys)


@settings(max_examples=80, deadline=None)
@given(entries().map(lambda entry: entry.value) | damaged_values())
def test_the_short_way_and_the_general_one_say_the_same(value):
    assert quick(value) == general(value)
    usual = _parse_usual(value)
    if usual is not None and isinstance(general(value), tuple):
        assert usual == general(value)


@settings(max_examples=80, deadline=None)
@given(damaged_values())
def test_damage_is_rejected_or_leaves_another_valid_entry(value):
    verdict = validate(value)
    if verdict.outcome is Outcome.REJECT:
        assert verdict.rule in ("canonical", "shape", "topic", "clock", "signature")
    elif verdict.outcome is Outcome.IGNORE:
        assert verdict.rule in ("size", "nesting", "portable", "scheme")
    else:
        assert verdict.entry is not None
        assert Entry.decode(value).key == verdict.entry.key


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_rejected_and_nothing_is_raised(data):
    assert validate(data).outcome is Outcome.REJECT


@settings(max_examples=80, deadline=None)
@given(TOPICS, st.lists(KEYS, max_size=30), st.binary(max_size=70), st.sampled_from(["dag-cbor", "dag-json", "x"]), st.text(max_size=60))
def test_what_was_built_is_taken_apart(topic, parents, signature, codec, did):
    payload = b"\x01"
    try:
        envelope = parse_envelope(build_value(codec, did, signature, topic, next_clock(parents), parents, payload))
    except InvalidEntry as error:
        assert error.rule == "canonical"
        assert did.startswith("\ufeff")
        return
    assert envelope[:6] == (codec, did, signature, topic, next_clock(parents), tuple(parents))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, CLOCK_MAX), st.integers(0, CLOCK_MAX))
def test_clocks_come_back_and_sort_as_numbers(one, other):
    assert decode_clock(encode_clock(one)) == (one, len(encode_clock(one)))
    assert (encode_clock(one) < encode_clock(other)) == (one < other)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=9))
def test_any_bytes_are_a_clock_in_one_form_or_none(data):
    try:
        clock, size = decode_clock(data)
    except DecodeError:
        return
    assert encode_clock(clock) == data[:size]


@settings(max_examples=80, deadline=None)
@given(st.binary(min_size=20, max_size=20), st.binary(min_size=20, max_size=20))
def test_ids_come_back_and_sort_as_keys(one, other):
    assert decode_id(encode_id(one)) == one
    assert (encode_id(one) < encode_id(other)) == (one < other)
