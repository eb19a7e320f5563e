from random import Random

from sync_support import SmallLog, make_history, parents_of, pull

from gossiplog.sync.limits import ServerLimits
from gossiplog.sync.result import Ending
from gossiplog.sync.source import Source

ENTRIES = make_history(Random(21), 1_000)


def test_two_logs_of_one_process_end_equal():
    keys = sorted(ENTRIES)
    left, right = SmallLog({key: ENTRIES[key] for key in keys[:700]}), SmallLog(dict(ENTRIES))
    result = pull(left, right)
    assert result.complete and result.entries == 300 and result.sessions == 1
    assert left.root == right.root


def test_rate_is_kept_without_waiting_for_a_clock():
    target = SmallLog()
    result = pull(target, SmallLog(ENTRIES), server_limits=ServerLimits(requests_per_s=3, requests_burst=1, share_s=1e9, idle_s=1e9))
    assert result.complete and result.entries == 1_000


def test_share_of_time_makes_several_sessions_of_one_sync():
    target = SmallLog()
    limits = ServerLimits(requests_per_s=3, requests_burst=3, share_s=7, idle_s=60)
    result = pull(target, SmallLog(ENTRIES), server_limits=limits)
    assert result.complete and result.entries == 1_000
    assert result.sessions > 1
    assert target.inserted == sorted(ENTRIES)


def test_row_that_the_source_cannot_read_is_skipped_and_the_rest_comes():
    never = sorted(ENTRIES)[500]
    lost = {never}
    for key in sorted(ENTRIES):
        if any(parent in lost for parent in parents_of(ENTRIES[key])):
            lost.add(key)
    target, source = SmallLog(), SmallLog(ENTRIES, unreadable={never})
    memory = Source()
    result = pull(target, source, source=memory)
    assert result.ending is Ending.COMPLETE and not result.complete
    assert result.skipped == 1
    assert set(target.values) == set(ENTRIES) - lost
    assert result.sessions <= 16


def test_source_that_fails_on_everything_is_given_up():
    entries = dict(list(ENTRIES.items())[:300])
    source = SmallLog(entries, unreadable=set(entries))
    result = pull(SmallLog(), source)
    assert result.entries == 0
    assert not result.complete
    assert result.sessions == 200
