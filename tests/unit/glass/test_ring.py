"""The ring keeps the latest facts, and says what is gone."""

from __future__ import annotations

import json
from itertools import pairwise

from gossiplog.glass import Fact, Ring


def fill(ring: Ring, number: int) -> None:
    for _ in range(number):
        ring.add(Fact("t", "r", ring.next, 0.0, "start", "n"))


def numbers(lines: list[bytes]) -> list[int]:
    return [json.loads(line)["seq"] for line in lines]


def test_ring_is_read_from_any_place_on() -> None:
    ring = Ring(10)
    fill(ring, 4)
    assert numbers(ring.since(0).lines) == [0, 1, 2, 3]
    assert numbers(ring.since(3).lines) == [3] and ring.since(3).next == 4
    assert ring.since(4) == ([], 4, 0)


def test_ring_is_bounded_and_says_what_was_lost() -> None:
    ring = Ring(10)
    for _ in range(25):
        fill(ring, 1)
        ring.since(max(0, ring.next - 3))
    assert len(ring) == 10 and ring.first == 15
    found = ring.since(2)
    assert numbers(found.lines) == list(range(15, 25)) and found.lost == 13
    assert [fact.seq for fact in ring.facts(20)] == list(range(20, 25))
    assert [fact.seq for fact in ring.facts()] == list(range(15, 25))


def test_one_reading_is_bounded_but_never_empty() -> None:
    ring = Ring(10)
    fill(ring, 10)
    read: list[int] = []
    place = 0
    while place < ring.next:
        found = ring.since(place, bytes_max=150)
        assert 1 <= len(found.lines) <= 2
        read += numbers(found.lines)
        place = found.next
    assert read == list(range(10))
    assert all(b - a == 1 for a, b in pairwise(read))
    assert len(ring.since(0, bytes_max=1).lines) == 1


def test_ring_is_bounded_by_bytes_as_well_and_keeps_one_whatever_its_length() -> None:
    ring = Ring(100, bytes_max=10_000)
    for text in ("x" * 4_000, "\u2028" * 300, "\x00" * 300):
        for _ in range(50):
            ring.add(Fact("t", "r", ring.next, 0.0, "fault", "n", reason=text))
            assert sum(map(len, ring.since(0, 10**9).lines)) <= 10_000
        assert 1 < len(ring) < 5 and ring.first == ring.next - len(ring)
    ring.add(Fact("t", "r", ring.next, 0.0, "fault", "n", reason="x" * 20_000))
    assert len(ring) == 1 and len(ring.facts()) == 1
