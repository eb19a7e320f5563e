import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.archive import entry_to_line, line_to_value, read_json_lines
from gossiplog.codec import pcf
from gossiplog.entry import Ed25519Signer, Entry, message_key, next_clock, sign_entry, validate
from gossiplog.entry.envelope import build_value
from gossiplog.errors import DecodeError

VECTORS = Path(__file__).parents[2] / "vectors"
SIGNER = Ed25519Signer.from_seed(b"\x01" * 32)


def entry(payload: Any, parents: tuple[bytes, ...] = ()) -> Entry:
    return sign_entry(SIGNER, "test.example", next_clock(parents), parents, pcf.encode(payload, depth_max=pcf.DEPTH_MAX))


def accepted_vectors() -> list[Any]:
    cases = json.loads((VECTORS / "entries.json").read_text())["cases"]
    cases += json.loads((VECTORS / "messages.json").read_text())["cases"]
    valid = [case for case in cases if "value" in case and validate(bytes.fromhex(case["value"])).accepted]
    assert len(valid) > 20
    return [pytest.param(case["value"], id=case["name"]) for case in valid]


@pytest.mark.parametrize("value", accepted_vectors())
def test_line_of_a_valid_entry_gives_back_its_very_bytes(value: str) -> None:
    original = Entry.decode(bytes.fromhex(value))
    assert line_to_value(entry_to_line(original)) == (original.value, original.id)


@pytest.mark.parametrize(
    "payload",
    [
        2.0**53,
        2**53,
        2**64 - 1,
        -(2**64),
        1e300,
        0.1,
        -1.5,
        b"\x00\xff",
        "\u2028\x85\x00\ud7ff",
        {"/": [1]},
        {"b": 1, "aa": {"/x": "y"}},
        [[]] * 3,
        None,
    ],
)
def test_payloads_that_json_would_lose_survive(payload: Any) -> None:
    original = entry(payload)
    assert line_to_value(entry_to_line(original))[0] == original.value


def test_deepest_payload_survives() -> None:
    payload: Any = 1
    for _ in range(pcf.DEPTH_MAX):
        payload = [payload]
    original = entry(payload)
    assert line_to_value(entry_to_line(original))[0] == original.value


def test_line_is_one_line_with_the_documented_fields() -> None:
    line = entry_to_line(entry({"text": "a\nb"}, (message_key(1, b"x"),)))
    assert b"\n" not in line
    record = json.loads(line)
    assert set(record) == {"id", "signature", "message"}
    assert set(record["signature"]) == {"codec", "publicKey", "signature"}
    assert set(record["message"]) == {"topic", "clock", "parents", "payload"}


def good_record() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(entry_to_line(entry("x")))
    return record


@pytest.mark.parametrize(
    ("path", "bad"),
    [
        (("message",), None),
        (("message",), []),
        (("signature",), "x"),
        (("id",), "short"),
        (("id",), 7),
        (("message", "clock"), "1"),
        (("message", "clock"), True),
        (("message", "clock"), -1),
        (("message", "clock"), 2**60),
        (("message", "parents"), {}),
        (("message", "parents"), [1]),
        (("message", "parents"), ["zz"]),
        (("message", "parents"), ["0" * 32] * 16_385),
        (("message", "topic"), None),
        (("signature", "signature"), "not bytes"),
        (("signature", "codec"), 5),
        (("signature", "publicKey"), None),
    ],
)
def test_line_with_a_wrong_field_is_refused(path: tuple[str, ...], bad: Any) -> None:
    record = good_record()
    place = record
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = bad
    with pytest.raises(DecodeError):
        line_to_value(json.dumps(record).encode())


def test_line_without_a_payload_is_refused_and_with_null_is_not() -> None:
    record = good_record()
    record["message"]["payload"] = None
    line_to_value(json.dumps(record).encode())
    del record["message"]["payload"]
    with pytest.raises(DecodeError, match="payload is missing"):
        line_to_value(json.dumps(record).encode())


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"null", b"7", b'"x"', b"{", b"\xff\xfe", b'{"a":1,"a":2}', b"[" * 100_000, b'{"id":' * 5000, b"NaN", b'{"/":"x"}']
)
def test_line_that_is_no_entry_is_refused(line: bytes) -> None:
    with pytest.raises(DecodeError):
        line_to_value(line)


def test_bad_lines_are_named_and_good_ones_read() -> None:
    good = entry("x")
    line = entry_to_line(good)
    records = list(read_json_lines(io.BytesIO(b"\n" + line + b"\nnot json\n  \n" + line)))
    assert [(record.place, record.value) for record in records] == [("line 2", good.value), ("line 3", None), ("line 5", good.value)]


def test_value_is_built_even_if_it_is_not_valid_so_that_the_validator_judges_it() -> None:
    record = good_record()
    record["message"]["payload"] = "forged"
    value, claimed = line_to_value(json.dumps(record).encode())
    assert Entry.decode(value).id != claimed


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_give_a_value_or_a_decode_error(line: bytes) -> None:
    with suppress(DecodeError):
        line_to_value(line)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_any_payload_in_a_record_gives_a_value_or_a_decode_error(payload: Any) -> None:
    record = good_record()
    record["message"]["payload"] = json.loads(json.dumps(payload, default=lambda raw: raw.hex()))
    with suppress(DecodeError):
        line_to_value(json.dumps(record).encode())


def test_build_value_is_what_entries_are_made_of() -> None:
    original = entry({"a": 1})
    signature = original.signature
    payload = pcf.encode({"a": 1})
    assert build_value(signature.codec, signature.public_key, signature.signature, "test.example", 1, (), payload) == original.value
