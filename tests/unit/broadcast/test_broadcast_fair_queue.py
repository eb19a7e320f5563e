"""The queue in which each lane has its turn."""

from __future__ import annotations

from random import Random

from gossiplog.broadcast.intake import FairQueue


def counted(most: int) -> object:
    left = most

    def is_full(item: object) -> bool:
        nonlocal left
        left -= 1
        return left <= 0

    return is_full


def test_lanes_are_taken_from_in_turn_and_what_is_taken_keeps_the_order_of_arrival() -> None:
    queue = FairQueue[str]()
    for item in ("a1", "a2", "a3", "a4", "b1", "c1", "b2"):
        queue.put(item[0], item)
    assert len(queue) == 7
    assert queue.take(counted(4)) == ["a1", "a2", "b1", "c1"]
    queue.put("d", "d1")
    assert queue.take(counted(3)) == ["a3", "b2", "d1"]
    assert queue.take(counted(9)) == ["a4"]
    assert (len(queue), queue.take(counted(1)), queue._lanes) == (0, [], {})


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
        while (99, 0) not in (batch := queue.take(counted(random.randint(1, 30)))):
            waited += len(batch)
            for lane, number in batch:
                assert number == seen[lane]
                seen[lane] += 1
        assert waited <= 20
