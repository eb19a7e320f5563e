"""Who is connected with whom, from facts."""

from __future__ import annotations

import time

from gossiplog.glass import Fact, Peerings
from gossiplog.glass.peerings import PAIRS_MAX


def told(*facts: tuple[str, str, str | None]) -> Peerings:
    peerings = Peerings()
    for seq, (kind, node, peer) in enumerate(facts):
        peerings.take(Fact("t", "gossipsub", seq, float(seq), kind, node, peer))
    return peerings


def test_what_stands_is_told_in_either_direction() -> None:
    peerings = told(
        ("connect", "b", "a"), ("graft", "a", "b"), ("connect", "a", "b"), ("connect", "a", "c"), ("graft", "c", "a"), ("prune", "a", "c")
    )
    assert (peerings.between("a", "b"), peerings.between("b", "a"), peerings.between("c", "a")) == ("full", "full", "metadata")
    assert peerings.between("b", "c") is None
    assert peerings.records()[0] == {"nodes": ["a", "b"], "peering": "full"}


def test_what_ended_is_gone_also_with_a_node_that_was_killed_and_starts_again() -> None:
    assert told(("connect", "a", "b"), ("disconnect", "b", "a")).records() == []
    assert told(("connect", "a", "b"), ("connect", "c", "b"), ("start", "a", None)).records() == [{"nodes": ["b", "c"], "peering": "none"}]


def test_a_node_that_tells_of_ever_more_peers_fills_no_memory() -> None:
    peerings = told(*(("connect", "a", str(number)) for number in range(PAIRS_MAX + 10)))
    assert len(peerings.records()) == PAIRS_MAX


def test_starts_of_nodes_that_are_in_no_pair_cost_nothing_however_many_pairs_there_are() -> None:
    peerings = told(*(("connect", "a", str(number)) for number in range(PAIRS_MAX)))
    began = time.thread_time()
    for number in range(PAIRS_MAX):
        peerings.take(Fact("t", "gossipsub", 0, 0.0, "start", f"other {number}"))
    assert time.thread_time() - began < 5, "looks at every pair for each of them"
    assert len(peerings.records()) == PAIRS_MAX
    peerings.take(Fact("t", "gossipsub", 0, 0.0, "stop", "a"))
    assert peerings.records() == [] and not peerings._others


def test_names_of_any_length_fill_no_memory() -> None:
    assert told(("connect", "a", "x" * 257), ("connect", "a", "b")).records() == [{"nodes": ["a", "b"], "peering": "none"}]
