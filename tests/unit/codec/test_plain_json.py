"""JSON of others: what is read can be written again, and everything else is refused with one error."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.codec import plain_json
from gossiplog.errors import DecodeError

LIMIT = plain_json.DEPTH_MAX


@pytest.mark.parametrize(
    "text",
    [
        *("NaN", "-Infinity", "1e999", "9" * 20, str(2**63), str(-(2**63) - 1), "9" * 5_000, '"\\ud800"', '{"\\udc00":1}', "[", "", "x"),
        *("[" * (LIMIT + 1) + "]" * (LIMIT + 1), '{"a":' * (LIMIT + 1) + "1" + "}" * (LIMIT + 1), "[" * 100_000, "\ud800", '"\ud800"'),
    ],
)
def test_what_could_not_be_written_again_is_refused(text: str) -> None:
    for data in (text, text.encode("utf-8", "surrogatepass")):
        with pytest.raises(DecodeError, match="no JSON") as caught:
            plain_json.decode(data)
        assert len(str(caught.value)) < 100


@pytest.mark.parametrize("text", [str(2**63 - 1), str(-(2**63)), "1e308", '"\\ud83d\\ude00"', "[" * LIMIT + "]" * LIMIT, "[[],[],{}]"])
def test_what_is_at_the_limit_is_read(text: str) -> None:
    assert plain_json.decode(text) == json.loads(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_value_is_read_as_it_was_or_refused(value: Any) -> None:
    try:
        read = plain_json.decode(json.dumps(value))
    except DecodeError:
        return
    assert json.dumps(read, allow_nan=False) == json.dumps(value)


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        json.dumps(plain_json.decode(data), ensure_ascii=False, allow_nan=False).encode()
    except DecodeError:
        return
