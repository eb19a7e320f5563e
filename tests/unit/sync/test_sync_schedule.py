from itertools import pairwise
from random import Random

import pytest

from gossiplog.sync import schedule as schedule_module
from gossiplog.sync.result import Ending, SyncResult
from gossiplog.sync.schedule import (
    ABSENT_KEYS_MAX,
    QUOTA_S,
    SyncSchedule,
)

DONE = SyncResult(ending=Ending.COMPLETE, entries=1)
FRUITLESS = SyncResult(ending=Ending.COMPLETE)


def started(actions):
    return [action.peer for action in actions]


def test_wanted_sync_starts_at_once():
    assert started(SyncSchedule(Random(1)).want("a", None, 0.0)) == ["a"]


def test_one_sync_a_peer_and_one_more_pending():
    schedule = SyncSchedule(Random(1))
    schedule.want("a", None, 0.0)
    for _ in range(5):
        assert schedule.want("a", None, 0.0) == []
    assert started(schedule.on_ended("a", DONE, 1.0)) == ["a"]
    assert started(schedule.on_ended("a", DONE, 2.0)) == []


def test_four_syncs_in_all_and_the_others_in_turn():
    schedule = SyncSchedule(Random(1))
    names = [f"p{index}" for index in range(6)]
    assert [started(schedule.want(name, None, 0.0)) for name in names] == [["p0"], ["p1"], ["p2"], ["p3"], [], []]
    assert started(schedule.on_ended("p2", DONE, 1.0)) == ["p4"]
    assert started(schedule.on_left("p0", 1.0)) == ["p5"]
    assert schedule.on_ended("p0", DONE, 1.0) == []


def test_busy_peer_does_not_starve_the_others(monkeypatch):
    monkeypatch.setattr(schedule_module, "ACTIVE_MAX", 1)
    schedule = SyncSchedule(Random(1))
    schedule.want("loud", None, 0.0)
    schedule.want("quiet", None, 0.0)
    schedule.want("loud", None, 0.0)
    assert started(schedule.on_ended("loud", DONE, 0.0)) == ["quiet"]
    assert started(schedule.on_ended("quiet", DONE, 0.0)) == ["loud"]


@pytest.mark.parametrize("ending", [Ending.ABORTED, Ending.CLOSED, Ending.TIMED_OUT, Ending.LIMIT, Ending.STORAGE])
def test_session_without_progress_is_resumed_later_and_later(ending):
    schedule = SyncSchedule(Random(1))
    schedule.want("a", None, 0.0)
    now, delays = 0.0, []
    for _ in range(11):
        actions = schedule.on_ended("a", SyncResult(ending=ending), now)
        assert started(actions) == []
        at = schedule.wakes_at
        assert schedule.begin_due((now + at) / 2) == []
        assert schedule.want("a", None, (now + at) / 2) == []
        delays.append(at - now)
        now = at
        assert started(schedule.begin_due(now)) == ["a"]
    assert 1 <= delays[0] <= 1.25
    assert delays[-1] == 300
    assert all(later > earlier or later == 300 for earlier, later in pairwise(delays))


def test_session_with_progress_is_resumed_at_once():
    schedule = SyncSchedule(Random(1))
    schedule.want("a", None, 0.0)
    for _ in range(20):
        assert started(schedule.on_ended("a", SyncResult(ending=Ending.ABORTED, entries=5), 0.0)) == ["a"]


def test_cooldown_is_kept():
    schedule = SyncSchedule(Random(1))
    schedule.want("a", None, 0.0)
    actions = schedule.on_ended("a", SyncResult(ending=Ending.ABORTED, entries=5, cooldown_s=7.0), 1.0)
    assert actions == [] and schedule.wakes_at == 8.0


def test_peer_that_is_over_a_quota_waits_even_if_some_of_what_it_brings_is_taken():
    schedule = SyncSchedule(Random(1))
    schedule.want("a", None, 0.0)
    now = 0.0
    for _ in range(10):
        actions = schedule.on_ended("a", SyncResult(ending=Ending.QUOTA, entries=3), now)
        assert actions == [] and schedule.wakes_at == now + QUOTA_S
        assert schedule.want("a", None, now + QUOTA_S / 2) == []
        now += QUOTA_S
        assert started(schedule.begin_due(now)) == ["a"]


def test_narrowing_goes_on_soon_and_less_and_less_often():
    schedule = SyncSchedule(Random(1))
    schedule.want("a", None, 0.0)
    now, tries = 0.0, []
    while now < 60:
        assert schedule.on_ended("a", SyncResult(ending=Ending.CLOSED, narrowed=True), now) == []
        now = schedule.wakes_at
        tries.append(now)
        assert started(schedule.begin_due(now)) == ["a"]
    assert tries[0] == 1
    assert sum(at < 30 for at in tries) <= 10, "a source that breaks off is not tried every second"
    assert len(tries) >= 12, "enough to find one key among 1,024 within a minute"
    schedule.on_ended("a", SyncResult(ending=Ending.ABORTED, entries=1), now)
    assert schedule.on_ended("a", SyncResult(ending=Ending.CLOSED, narrowed=True), now) == []
    assert schedule.wakes_at == now + 1


SILENT = SyncResult(ending=Ending.TIMED_OUT)


def crowded(schedule, groups, count=100):
    """A crowd that announces and never answers; returns who has the places."""
    active = []
    for number in range(count):
        active += started(schedule.want(f"silent-{number}", groups and f"10.0.0.{number % groups}", 0.0))
    assert len(active) == 4
    return active


@pytest.mark.parametrize("groups", [13, 1, None])
def test_crowd_of_silent_peers_makes_a_newcomer_wait_for_a_few_short_turns(groups):
    schedule = SyncSchedule(Random(1))
    active = crowded(schedule, groups)
    schedule.want("honest", "10.1.0.1", 0.0)
    waits = 0
    while "honest" not in active:
        actions = schedule.on_ended(active.pop(0), SILENT, 1.0)
        (action,) = actions
        assert action.first_answer_s <= 1.0, "while others wait, nobody has five seconds to say nothing"
        active.append(action.peer)
        waits += 1
    assert waits <= 2


def test_newcomers_that_never_end_keep_nobody_out():
    schedule = SyncSchedule(Random(1))
    active = crowded(schedule, None, 20)
    schedule.want("honest", None, 0.0)
    for number in range(100):
        schedule.want(f"new-{number}", None, 0.0)
        active += started(schedule.on_ended(active.pop(0), SILENT, 1.0))
        if "honest" in active:
            return
    raise AssertionError("the honest one never had its turn")


def test_who_delivered_comes_before_who_never_did(monkeypatch):
    monkeypatch.setattr(schedule_module, "ACTIVE_MAX", 1)
    schedule = SyncSchedule(Random(1))
    schedule.want("good", None, 0.0)
    schedule.on_ended("good", DONE, 0.0)
    for number in range(10):
        schedule.want(f"silent-{number}", None, 0.0)
    schedule.want("good", None, 0.0)
    turns = [started(schedule.on_ended(f"silent-{number}", SILENT, 1.0)) for number in (0, 9, 1)]
    assert ["good"] in turns


def test_peer_that_was_not_heard_in_time_has_longer_the_next_time(monkeypatch):
    monkeypatch.setattr(schedule_module, "ACTIVE_MAX", 1)
    schedule = SyncSchedule(Random(1))
    now, patience = 0.0, []
    actions = schedule.want("slow", None, now)
    for _ in range(4):
        patience += [action.first_answer_s for action in actions]
        assert schedule.on_ended("slow", SILENT, now) == []
        now = schedule.wakes_at
        actions = schedule.begin_due(now)
    assert patience == [1, 2, 4, 8]


def test_three_announcements_of_nothing_make_a_peer_wait():
    schedule = SyncSchedule(Random(1))
    for _ in range(2):
        assert started(schedule.want("a", None, 0.0)) == ["a"]
        assert schedule.on_ended("a", FRUITLESS, 0.0) == []
    assert started(schedule.want("a", None, 0.0)) == ["a"]
    schedule.on_ended("a", FRUITLESS, 0.0)
    actions = schedule.want("a", None, 0.0)
    assert started(actions) == [] and schedule.wakes_at >= 1


def test_head_that_came_by_another_way_is_not_held_against_the_peer():
    schedule = SyncSchedule(Random(1))
    for _ in range(10):
        assert started(schedule.want("a", None, 0.0)) == ["a"]
        schedule.on_ended("a", FRUITLESS, 0.0, is_still_missing=False)


def test_peer_that_lied_is_left_alone_for_ten_minutes_even_if_it_comes_back():
    schedule = SyncSchedule(Random(1))
    schedule.want("a", None, 0.0)
    schedule.on_ended("a", SyncResult(ending=Ending.VIOLATION), 0.0)
    schedule.on_left("a", 1.0)
    assert started(schedule.want("a", None, 599.0)) == []
    assert started(schedule.begin_due(600.0)) == ["a"]


def test_keys_left_alone_are_asked_for_after_an_hour():
    schedule = SyncSchedule(Random(1))
    (start,) = schedule.want("a", None, 0.0)
    start.source.set_aside(bytes(20), 10.0)
    assert schedule.on_ended("a", DONE, 20.0) == []
    assert schedule.wakes_at == 3610.0
    assert started(schedule.begin_due(3610.0)) == ["a"]
    # As its client does at the end, or it would be asked for again at once, and for ever.
    start.source.on_complete(3610.0)
    assert schedule.on_ended("a", DONE, 3611.0) == []
    assert schedule.wakes_at is None


def test_source_is_remembered_from_session_to_session():
    schedule = SyncSchedule(Random(1))
    (first,) = schedule.want("a", None, 0.0)
    schedule.on_ended("a", DONE, 0.0)
    (second,) = schedule.want("a", None, 0.0)
    assert first.source is second.source


def test_remembered_peers_have_a_maximum(monkeypatch):
    monkeypatch.setattr(schedule_module, "PEERS_MAX", 10)
    schedule = SyncSchedule(Random(1))
    for index in range(50):
        schedule.want(f"p{index}", None, 0.0)
        schedule.on_ended(f"p{index}", DONE, 0.0)
    assert len(schedule) == 10
    waiting = SyncSchedule(Random(1))
    for index in range(50):
        waiting.want(f"p{index}", None, 0.0)
    assert len(waiting) == 10


def test_keys_remembered_of_peers_that_left_have_a_maximum_and_the_latest_are_kept():
    schedule, sources = SyncSchedule(Random(1)), []
    for number in range(60):
        (start,) = schedule.want(f"p{number}", None, 0.0)
        sources.append(start.source)
        for index in range(1_000):
            start.source.set_aside(index.to_bytes(20), 0.0)
            start.source.set_refused(index.to_bytes(20), 0.0)
        schedule.on_ended(f"p{number}", SyncResult(ending=Ending.COMPLETE, entries=1), 0.0)
        if number != 3:
            schedule.on_left(f"p{number}", 0.0)
        assert sum(source.keys_held for source in sources) <= ABSENT_KEYS_MAX + 2_000
    kept = [number for number, source in enumerate(sources) if source.keys_held]
    assert kept == [3, *range(60 - ABSENT_KEYS_MAX // 2_000, 60)]


def test_left_of_an_unknown_peer_does_nothing():
    assert SyncSchedule(Random(1)).on_left("nobody", 0.0) == []
    assert SyncSchedule(Random(1)).on_ended("nobody", DONE, 0.0) == []
