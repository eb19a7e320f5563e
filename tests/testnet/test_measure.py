"""What a run is measured by, where its facts come out of order."""

from __future__ import annotations

from gossiplog.glass import Fact
from gossiplog.testnet.measure import Measure


def measured(*facts: tuple[float, str, str, str]) -> Measure:
    measure = Measure()
    for seq, (at_s, kind, node, way) in enumerate(facts):
        measure.take(Fact("t", "gossipsub", seq, at_s, kind, node, message="m", way=way))
    return measure


def test_who_published_is_no_receiver_though_another_committed_first() -> None:
    figures = measured((1.0, "deliver", "b", "gossip"), (1.1, "deliver", "a", "http"), (1.3, "deliver", "c", "sync")).figures()
    assert (figures.published, figures.delivered, figures.ways) == (1, 2, {"gossip": 1, "sync": 1})
    assert measured((1.1, "publish", "a", "append"), (1.0, "deliver", "b", "gossip")).latencies_s == [0.0]


def test_without_a_word_of_who_published_the_first_is_taken_for_it() -> None:
    assert measured((1.0, "deliver", "b", "gossip"), (1.5, "deliver", "c", "sync")).latencies_s == [0.5]
