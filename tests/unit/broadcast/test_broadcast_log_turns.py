"""Turns between logs: what begins at once, what waits, and for how long."""

from __future__ import annotations

from random import Random

import pytest

from gossiplog.broadcast.log_turns import AWAKE_S, LIGHT, LIGHT_BURST, PATIENCE_S, PIECE, LogTurns

MANY = 200


def awake(*logs: str) -> LogTurns:
    """Turns of logs that had an entry each a moment ago."""
    turns = LogTurns()
    for log in logs:
        assert turns.begin(log, 1, 0, 0.0)
        turns.end(log, 0.0)
    return turns


def test_log_that_is_awake_alone_never_waits_and_has_batches_of_any_size() -> None:
    turns = awake("a")
    for _ in range(10):
        assert turns.begin("a", MANY, 1_000, 0.0)
    assert turns.piece_of("a", 1_000, 0.0) is None
    assert not turns.is_contended(0.0)


def test_few_entries_begin_beside_a_heavy_piece_of_another_log() -> None:
    turns = awake("flooded", "quiet")
    assert turns.begin("flooded", MANY, 0, 0.0)
    assert turns.begin("quiet", LIGHT, 0, 0.0)


def test_heavy_piece_begins_when_nothing_light_is_at_work() -> None:
    turns = awake("flooded", "quiet", "other")
    assert turns.begin("quiet", 1, 0, 0.0)
    assert not turns.begin("flooded", PIECE, 0, 0.0)
    assert turns.begin("other", 1, 0, 0.0)
    turns.end("quiet", 0.0)
    assert turns.next(0.0) is None
    turns.end("other", 0.0)
    assert turns.next(0.0) == "flooded"
    assert turns.next(0.0) is None


def test_log_is_alone_while_nothing_of_another_is_at_work() -> None:
    turns = awake("flooded", "quiet")
    assert turns.begin("flooded", PIECE, 0, 0.0)
    assert turns.is_alone("flooded") and not turns.is_alone("quiet") and not turns.is_alone("unknown")
    assert turns.begin("quiet", 1, 0, 0.0)
    assert not turns.is_alone("flooded")
    turns.end("quiet", 0.0)
    assert turns.is_alone("flooded")


def test_one_piece_of_a_log_is_at_work_at_a_time_while_others_are_awake() -> None:
    turns = awake("flooded", "quiet")
    assert turns.begin("flooded", PIECE, 0, 0.0)
    assert not turns.begin("flooded", PIECE, 0, 0.0)
    turns.end("flooded", 0.0)
    assert turns.next(0.0) == "flooded"


def test_flood_of_single_entries_is_heavy_once_the_log_has_had_its_share() -> None:
    turns = awake("flooded", "quiet")
    begun = 0
    while turns.begin("flooded", 1, 0, 0.0) and begun <= MANY:
        begun += 1
    assert begun == LIGHT_BURST - 1


def test_log_whose_piece_takes_long_keeps_others_waiting_for_a_moment_only() -> None:
    turns = awake("stuck", "next")
    assert turns.begin("stuck", PIECE, 0, 0.0)
    assert not turns.begin("next", PIECE, 0, 0.0)
    assert turns.next(PATIENCE_S / 2) is None
    assert turns.next(PATIENCE_S) == "next"


@pytest.mark.parametrize(("peers", "most"), [(0, PIECE), (16, PIECE // 2), (10_000, 1)])
def test_piece_is_smaller_where_more_peers_are_told_of_it(peers: int, most: int) -> None:
    assert awake("a", "b").piece_of("a", peers, 0.0) == most


def test_log_to_which_nothing_comes_falls_asleep_and_leaves_the_machine_to_the_others() -> None:
    turns = awake("a", "b")
    assert turns.begin("a", PIECE, 0, 0.0)
    assert turns.is_contended(0.0)
    assert turns.begin("b", 1, 0, 2 * AWAKE_S)
    assert turns.piece_of("a", 0, 2 * AWAKE_S) == PIECE, "a is at work"
    turns.end("a", 0.0)
    assert turns.begin("b", 1, 0, 2 * AWAKE_S)
    assert turns.piece_of("b", 0, 2 * AWAKE_S) is None
    assert not turns.is_contended(2 * AWAKE_S)


def test_heavy_log_rests_as_long_as_its_piece_took_while_others_have_a_few() -> None:
    turns = awake("flooded", "other")
    assert turns.begin("flooded", PIECE, 0, 1.0)
    assert not turns.begin("flooded", PIECE, 0, 1.0)
    turns.end("flooded", 1.004)
    assert turns.next(1.007) is None
    assert turns.look_at(1.007) == pytest.approx(1.008)
    assert turns.begin("other", LIGHT, 0, 1.007)
    turns.end("other", 1.008)
    assert turns.next(1.009) == "flooded"
    # A disk that takes a second is no reason to rest for one.
    turns.end("flooded", 2.0)
    assert turns.look_at(2.0) == 2.0 + PATIENCE_S


def test_logs_that_all_have_much_do_not_wait_for_each_other() -> None:
    turns = awake("a", "b", "few")
    now = 2 * AWAKE_S
    assert turns.begin("a", PIECE, 0, now)
    assert turns.begin("b", PIECE, 0, now)
    assert turns.piece_of("b", 0, now) is None
    assert not turns.is_contended(now)
    # What is a few entries for a log that has had many is no reason to cut up the others' work.
    assert turns.begin("b", 1, 0, now)
    assert turns.begin("a", PIECE, 0, now)
    assert turns.begin("few", 1, 0, now)
    assert turns.is_contended(now)
    assert turns.piece_of("b", 0, now) == PIECE
    assert not turns.begin("b", PIECE, 0, now)


def test_log_that_is_closed_keeps_nobody_waiting() -> None:
    turns = awake("a", "b", "c")
    assert turns.begin("a", PIECE, 0, 0.0)
    assert not turns.begin("b", PIECE, 0, 0.0)
    assert not turns.begin("c", PIECE, 0, 0.0)
    turns.forget("b")
    turns.forget("a")
    assert turns.next(0.0) == "c"
    turns.forget("c")
    assert turns.next(0.0) is None


@pytest.mark.parametrize("seed", range(20))
def test_logs_that_are_flooded_get_as_many_turns_each_and_one_at_a_time(seed: int) -> None:
    random = Random(seed)
    logs = [f"log {number}" for number in range(random.randrange(2, 8))]
    turns = awake(*logs)
    given = dict.fromkeys(logs, 0)
    running = None
    for log in logs:
        if turns.begin(log, PIECE, 0, 0.0):
            assert running is None
            running = log
            given[log] += 1
    for _ in range(MANY):
        assert running is not None
        # What it brings while it is at work waits with the others.
        if random.random() < 0.5:
            assert not turns.begin(running, PIECE, 0, 0.0)
            turns.end(running, 0.0)
        else:
            turns.end(running, 0.0)
            turns.wait(running, 0.0)
        running = turns.next(0.0)
        assert running is not None and turns.next(0.0) is None
        given[str(running)] += 1
        assert max(given.values()) - min(given.values()) <= 1
