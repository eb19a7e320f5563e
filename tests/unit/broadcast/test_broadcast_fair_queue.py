"""The queue in which each lane has its turn."""

from __future__ import annotations

from random import Random

from gossiplog.broadcast.intake import FairQueue

NO_MATTER = 10**9


def test_lanes_are_taken_from_in_turn_and_what_is_taken_keeps_the_order_of_arrival() -> None:
    queue = FairQueue[str]()
    for item in ("a1", "a2", "a3", "a4", "b1", "c1", "b2"):
        queue.put(item[0], item)
    assert len(queue) == 7
    assert queue.take(4, NO_MATTER) == ["a1", "a2", "b1", "c1"]
    queue.put("d", "d1")
    assert queue.take(3, NO_MATTER) == ["a3", "b2", "d1"]
    assert queue.take(9, NO_MATTER) == ["a4"]
    assert (len(queue), queue.take(1, NO_MATTER), queue._lanes) == (0, [], {})


def test_nobody_waits_for_more_than_one_item_of_each_other_lane() -> None:
    for seed in range(50):
        random, queue = Random(seed), FairQueue[tuple[int, int]]()
        sent = [0] * 20
        for _ in range(random.randint(0, 2_000)):
            lane = min(random.randrange(20), random.randrange(20))
            queue.put(lane, (lane, sent[lane]))
            sent[lane] += 1
        queue.put("honest", (99, 0))
        waited, seen = 0, [0] * 20
        while (99, 0) not in (batch := queue.take(random.randint(1, 30), NO_MATTER)):
            waited += len(batch)
            for lane, number in batch:
                assert number == seen[lane]
                seen[lane] += 1
        assert waited <= 20


def test_a_batch_ends_with_the_item_that_makes_it_heavy_enough() -> None:
    queue = FairQueue[str]()
    for item, weight in (("a", 3), ("b", 3), ("c", 0), ("d", 50), ("e", 1)):
        queue.put("lane", item, weight)
    assert queue.take(9, 6) == ["a", "b"]
    assert queue.take(9, 6) == ["c", "d"]
    assert queue.take(9, 6) == ["e"]
