"""A fact as JSON, and back."""

from __future__ import annotations

import json

import pytest

from gossiplog.errors import DecodeError
from gossiplog.glass.fact import Fact

LIVE = Fact("app.example", "gossipsub", 7, 12.5, "deliver", "me", "you", message="0" * 32, way="gossip", reason="\u2028\x00 <b>\n")
SIMULATED = Fact("mesh", "episub", 1, 0.25, "send", 3, 4, "ihave", None, 2, 44, None, seed=9)


@pytest.mark.parametrize("fact", [LIVE, SIMULATED])
def test_fact_survives_json_in_one_line_without_nulls(fact: Fact) -> None:
    line = fact.to_json()
    assert "null" not in line and "\n" not in line and line.isascii()
    assert Fact.from_json(line) == fact


def test_columns_are_in_the_order_of_the_schema() -> None:
    expected = ["scenario", "router", "seed", "seq", "time_s", "kind", "node", "peer", "type", "count", "bytes"]
    assert list(json.loads(SIMULATED.to_json())) == expected


def test_columns_of_a_later_version_are_left_out() -> None:
    assert Fact.from_record({**LIVE.record(), "mood": "good"}) == LIVE


@pytest.mark.parametrize(
    "line",
    ["", "[]", "null", "{", "{}", "[" * 100_000, '{"scenario":1}', LIVE.to_json().replace('"seq":7', '"seq":true'), LIVE.to_json() + "x"]
    + [LIVE.to_json().replace(old, new) for old, new in (("12.5", "1e999"), ("12.5", "NaN"), ('"seq":7', '"seq":' + "9" * 400))]
    + [LIVE.to_json().replace('"you"', text) for text in ('"\\ud800"', '"' + "x" * 4_097 + '"')],
)
def test_what_is_no_fact_is_a_decode_error(line: str) -> None:
    with pytest.raises(DecodeError):
        Fact.from_json(line)
