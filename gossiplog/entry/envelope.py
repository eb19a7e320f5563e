"""VALUE, the bytes of an entry: parsing and building.

    VALUE = dag-cbor( [ [codec, did, signature], topic, clock, [parent keys, 20 bytes each], payload ] )

`parse_envelope` checks every rule that VALUE alone decides: its size, its canonical form, its shape, the topic's form and the clock.
Entries of the usual form take the fast path, `_parse_usual`, which compares fixed bytes; all others take `_parse_any`. For any bytes that
the fast path accepts, both return the same.

Source: docs/spec/entries.md, "Entry", "Signature", "Portable canonical form".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

from ..codec import pcf
from ..codec.base32hex import encode_base32hex, encode_base32hex_ascii
from ..codec.pcf import argument, item_header
from ..errors import DecodeError
from . import rules
from .message_id import KEY_BYTES, clock_of, message_key

_USUAL_HEAD = b"\x85\x83\x68dag-cbor\x78\x38did:key:z6Mk"
"""The headers of the entry's tuple of five and the signature's of three, the codec, and the first characters of a did of 56."""
_TUPLES = b"\x85\x83"
"""The first bytes of every entry: a tuple of five, whose first item is a tuple of three."""
_DID_AT = 13
_DID_END = 69
_INTEGER_HEAD_MAX = 0x1B
_SIGNATURE_HEAD = b"\x58\x40"
_SIGNATURE_AT = 71
_TOPIC_AT = 135


class Envelope(NamedTuple):
    """The parsed VALUE, except its payload.

    Attributes:
        codec: The encoding of the signed bytes: `dag-cbor`, `dag-json`, or a scheme's own.
        signature: Of the length that the scheme gives it.
        clock: At least 1; 0 for a snapshot.
        parent_keys: 20 bytes each, in the entry's order, duplicates included.
        payload_at: Offset of the payload's item, which reaches to VALUE's end.
    """

    codec: str
    did: str
    signature: bytes
    topic: str
    clock: int
    parent_keys: tuple[bytes, ...]
    payload_at: int


def parse_envelope(value: bytes, value_bytes_max: int = rules.VALUE_BYTES_LIMIT, *, trusted: bool = False) -> Envelope:
    """Check that VALUE is well formed and parse it. About 6 µs, and 0.4 µs per item of the payload.

    Args:
        value: VALUE, and nothing after it.
        value_bytes_max: The largest VALUE to accept, at most `VALUE_BYTES_LIMIT`; a higher number means that limit.
        trusted: Skip the check of the payload's form, for bytes that have passed it before.

    Raises:
        InvalidEntry: VALUE breaks one of the rules size, nesting, canonical, portable, shape, topic (its form), clock, or scheme (clock 0).
    """
    limit = value_bytes_max if value_bytes_max < rules.VALUE_BYTES_LIMIT else rules.VALUE_BYTES_LIMIT
    if len(value) > limit:
        raise rules.InvalidEntry(rules.Rule.SIZE, f"{len(value)} bytes, at most {limit} are allowed")
    envelope = _parse_usual(value)
    if envelope is None:
        return _parse_any(value)
    if not trusted:
        try:
            end = pcf.check(value, envelope.payload_at)
        except DecodeError as error:
            raise _not_canonical(value, error) from None
        if end != len(value):
            raise rules.InvalidEntry(rules.Rule.CANONICAL, f"{len(value) - end} bytes follow the entry")
    return envelope


def skim(value: bytes) -> tuple[str, int]:
    """Return the did of an entry and the offset of its payload, for bytes that have passed `parse_envelope` before.

    About 0.8 µs, because nothing is checked. For bytes that have not passed, the answer may be meaningless.

    Raises:
        InvalidEntry: As `parse_envelope`, which entries that are not of the usual form go through.
    """
    _, at = _skim_clock(value) or (0, len(value))
    if at < len(value):
        parents = value[at] - 0x80
        if 0 <= parents < 24:
            return value[_DID_AT:_DID_END].decode("latin-1"), at + 1 + (KEY_BYTES + 1) * parents
    envelope = parse_envelope(value, rules.VALUE_BYTES_LIMIT, trusted=True)
    return envelope.did, envelope.payload_at


def skim_key(value: bytes) -> bytes:
    """Return the key of an entry, under the same conditions as `skim`; about 1.3 µs."""
    found = _skim_clock(value)
    if found is None or found[0] > rules.CLOCK_MAX:
        return message_key(parse_envelope(value, rules.VALUE_BYTES_LIMIT, trusted=True).clock, value)
    return message_key(found[0], value)


def _skim_clock(value: bytes) -> tuple[int, int] | None:
    """Return the clock of an entry of the usual form, and the offset after it; None of any other."""
    topic = value[_TOPIC_AT] - 0x60 if len(value) > _TOPIC_AT and value.startswith(_USUAL_HEAD) else 24
    at = _TOPIC_AT + 1 + topic
    return argument(value, at) if topic < 24 and at + 9 < len(value) and value[at] <= _INTEGER_HEAD_MAX else None


def build_value(codec: str, did: str, signature: bytes, topic: str, clock: int, parent_keys: Sequence[bytes], payload: bytes) -> bytes:
    """Return VALUE. `payload` must be in PCF; nothing is checked."""
    return b"".join(
        (
            b"\x85\x83",
            _text_item(codec),
            _text_item(did),
            item_header(2, len(signature)),
            signature,
            _text_item(topic),
            item_header(0, clock),
            item_header(4, len(parent_keys)),
            *(b"\x54" + key for key in parent_keys),
            payload,
        )
    )


def signed_bytes(codec: str, topic: str, clock: int, parent_keys: Sequence[bytes], payload: bytes) -> bytes:
    """Return the bytes under the signature: the message `{clock, parents, payload, topic}` in the signature's codec.

    In dag-cbor the payload is the last item both here and in VALUE, so its bytes are copied. In dag-json it is decoded and encoded again,
    20 times slower.

    Raises:
        DecodeError: The codec is dag-json and `payload` is not in PCF.
    """
    if codec == "dag-json":
        from ..codec import dag_json

        parents = [encode_base32hex(key) for key in parent_keys]
        # Only the bytes of a link are needed, for its text.
        decoded = pcf.decode_shared(payload)
        message = {"clock": clock, "parents": parents, "payload": decoded, "topic": topic}
        # The message has one level more than its payload.
        return dag_json.encode(message, depth_max=rules.NESTING_MAX + 1)
    return b"%b%b\x65topic%b\x67parents%b%b\x67payload%b" % (
        b"\xa4\x65clock",
        item_header(0, clock),
        _text_item(topic),
        item_header(4, len(parent_keys)),
        _ids_items(parent_keys),
        payload,
    )


def signature_and_signed_bytes(value: bytes, envelope: Envelope) -> bytes:
    """Return the signature followed by the bytes that it signs. Raises as `signed_bytes`."""
    codec, _, signature, topic, clock, parent_keys, payload_at = envelope
    return signature + signed_bytes(codec, topic, clock, parent_keys, value[payload_at:])


def _parse_usual(value: bytes) -> Envelope | None:
    """Parse an entry of the usual form: dag-cbor, a did:key of Ed25519 in its shortest form, fewer than 24 parents, all valid.

    Returns None for any other form, and for anything that is wrong before the payload.
    """
    if not value.startswith(_USUAL_HEAD) or value[_DID_END:_SIGNATURE_AT] != _SIGNATURE_HEAD:
        return None
    try:
        did = value[_DID_AT:_DID_END].decode()
        size = value[_TOPIC_AT] - 0x60
        # 24 means that the size is in the next byte, as for a topic that ends in a policy's hash.
        at = _TOPIC_AT + (2 + value[_TOPIC_AT + 1] if size == 24 else 1 + size)
        topic = _usual_topic(value[_TOPIC_AT:at])
        if topic is None:
            return None
        if value[at] > _INTEGER_HEAD_MAX:
            return None
        clock, at = argument(value, at)
        if clock > rules.CLOCK_MAX:
            return None
        count = value[at] - 0x80
        at += 1
        if not 0 <= count < 24:
            return None
        highest = 0
        parent_keys = []
        for _ in range(count):
            if value[at] != 0x54:
                return None
            key = value[at + 1 : at + 21]
            at += 21
            parent_keys.append(key)
            first = key[0]
            if first >= 0x80:
                first = clock_of(key)
            if first > highest:
                highest = first
    except (IndexError, UnicodeDecodeError, DecodeError):
        return None
    if clock != highest + 1 or at >= len(value):
        return None
    signature = value[_SIGNATURE_AT:_TOPIC_AT]
    return Envelope("dag-cbor", did, signature, topic, clock, tuple(parent_keys), at)


@lru_cache(maxsize=256)
def _usual_topic(item: bytes) -> str | None:
    """Return the topic of a text item in its shortest form; None for any other item."""
    text = item[1:] if len(item) <= 24 else item[2:]
    if not text.isascii() or item != _text_item(topic := text.decode()):
        return None
    return topic if rules.is_topic(topic) else None


def _parse_any(value: bytes) -> Envelope:
    """Parse any entry, or raise: check first its form, item by item, then its shape, its topic and its clock."""
    try:
        end = pcf.check(value, 0, rules.NESTING_MAX + 1)
    except DecodeError as error:
        raise _not_canonical(value, error) from None
    if end != len(value):
        raise rules.InvalidEntry(rules.Rule.CANONICAL, f"{len(value) - end} bytes follow the entry")
    if value[0] != 0x85:
        _refuse(rules.Rule.SHAPE, "not a tuple of five")
    starts = [1]
    for _ in range(4):
        starts.append(pcf.check(value, starts[-1]))
    head_at, topic_at, clock_at, parents_at, payload_at = starts
    codec, did, signature = _signature_tuple(value[head_at:topic_at])
    topic = _decode_as(str, value[topic_at:clock_at], "the topic")
    if not rules.is_topic(topic):
        _refuse(rules.Rule.TOPIC, f"{topic[: rules.TOPIC_CHARS_MAX]!r} is not a topic")
    clock = _decode_as(int, value[clock_at:parents_at], "the clock")
    parent_keys = _parent_keys(value[parents_at:payload_at])
    try:
        expected = rules.next_clock(parent_keys)
    except DecodeError as error:
        raise rules.InvalidEntry(rules.Rule.CLOCK, f"a parent's key: {error}") from None
    if clock == 0 and not parent_keys:
        # Version 0.16.1 of the reference has such entries; `schemes` decides which of them a log may accept.
        if (codec, did, signature) != (rules.SNAPSHOT_CODEC, "", b"") or ":" not in topic:
            _refuse(rules.Rule.SCHEME, "clock 0, which is only for a snapshot without did and signature, in a topic with ':'")
        expected = 0
    if clock != expected:
        _refuse(rules.Rule.CLOCK, f"clock {clock}, expected {expected}")
    if clock > rules.CLOCK_MAX:
        _refuse(rules.Rule.CLOCK, f"clock {clock} is above 2^53 − 1")
    return Envelope(codec, did, signature, topic, clock, parent_keys, payload_at)


def _signature_tuple(item: bytes) -> tuple[str, str, bytes]:
    end, majors = 1, list[int]()
    for _ in range(3 if item[0] == 0x83 else 0):
        majors.append(item[end] >> 5)
        end = pcf.check(item, end)
    if majors != [3, 3, 2]:
        # Checked before anything is built: a part could be four million empty arrays.
        _refuse(rules.Rule.SHAPE, "the signature is not a tuple of codec, did and bytes")
    codec, did, signature = pcf.decode(item)
    return codec, did, signature


def _parent_keys(item: bytes) -> tuple[bytes, ...]:
    """Return the parents' keys of an array in PCF; its length is checked before anything is built."""
    if item[0] >> 5 != 4:
        _refuse(rules.Rule.SHAPE, "the parents are not an array")
    count, body_at = argument(item, 0)
    body = item[body_at:]
    if count > rules.PARENTS_MAX:
        _refuse(rules.Rule.SIZE, f"{count} parents, at most {rules.PARENTS_MAX} are allowed")
    width = KEY_BYTES + 1
    if len(body) != count * width or any(head != 0x54 for head in body[::width]):
        _refuse(rules.Rule.SHAPE, f"a parent's key is not {KEY_BYTES} bytes")
    return tuple(body[at + 1 : at + width] for at in range(0, len(body), width))


def _not_canonical(value: bytes, error: DecodeError) -> rules.InvalidEntry:
    """Return the rule broken by a VALUE that is not in PCF. One that a version of the reference may keep and send breaks `portable`."""
    if isinstance(error, pcf.NotPortable):
        try:
            is_readable = value.startswith(_TUPLES) and pcf.check_readable(value, 0, rules.NESTING_MAX + 1) == len(value)
        except DecodeError:
            is_readable = False
        return rules.InvalidEntry(rules.Rule.PORTABLE if is_readable else rules.Rule.CANONICAL, str(error))
    return rules.InvalidEntry(rules.Rule.NESTING if isinstance(error, pcf.TooDeep) else rules.Rule.CANONICAL, str(error))


def _decode_as(kind: type[Any], item: bytes, name: str) -> Any:
    """Decode an item that must be an integer or a string; anything else is refused before it is built."""
    decoded = pcf.decode(item) if item[0] >> 5 in (0, 1, 3) else None
    if type(decoded) is not kind:
        _refuse(rules.Rule.SHAPE, f"{name} is not {'an integer' if kind is int else 'a string'}")
    return decoded


def _ids_items(keys: Sequence[bytes]) -> bytes:
    return b"".join([b"\x78\x20" + encode_base32hex_ascii(key) for key in keys])


@lru_cache(maxsize=256)
def _text_item(text: str) -> bytes:
    data = text.encode()
    return item_header(3, len(data)) + data


def _refuse(rule: str, reason: str) -> NoReturn:
    raise rules.InvalidEntry(rule, reason)
