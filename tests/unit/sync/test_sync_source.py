import pytest

from gossiplog.sync.source import ASIDE_MAX, RESPONSE_BYTES, RESPONSE_BYTES_MIN, Source
from gossiplog.tree.node import Node

KEYS = [index.to_bytes(20, "big") for index in range(3_000)]
LEAVES = [Node(0, key, bytes(16)) for key in KEYS]


def test_first_requests_fit_a_frame_whatever_the_values_are():
    assert Source().request_size(LEAVES) * 65_536 < 4 * 2**20


def test_requests_follow_the_size_of_the_values():
    source = Source()
    source.on_values(60, 60 * 200)
    assert source.request_size(LEAVES) == 1_024
    source.on_values(10, 10 * 20_000)
    assert source.request_size(LEAVES) == RESPONSE_BYTES // 20_000
    for _ in range(40):
        source.on_values(10, 10)
    assert source.request_size(LEAVES) == 1_024
    source.on_values(1, 2**20)
    assert source.request_size(LEAVES) == 1
    source.on_values(0, 0)
    assert source.request_size(LEAVES[:1]) == 1


@pytest.mark.parametrize("guilty", [0, 1, 511, 700, 1023])
def test_guilty_key_is_found_in_a_dozen_failures(guilty):
    source = Source()
    source.on_values(1, 100)
    wanted, failures = list(LEAVES[:1024]), 0
    while wanted:
        count = source.request_size(wanted)
        asked = wanted[:count]
        if LEAVES[guilty] in asked:
            failures += 1
            assert source.on_failure([leaf.key for leaf in asked], 0.0, timed_out=False)
            assert source.is_careful
            if source.is_aside(KEYS[guilty], 0.0):
                wanted.remove(LEAVES[guilty])
        else:
            del wanted[:count]
    assert failures <= 12
    assert [key for key in KEYS if source.is_aside(key, 0.0)] == [KEYS[guilty]]


def test_same_failure_again_is_no_progress():
    source = Source()
    assert source.on_failure(KEYS[:10], 0.0, timed_out=False)
    assert not source.on_failure(KEYS[:10], 0.0, timed_out=False)


def test_one_failure_of_a_single_key_may_be_the_networks():
    source = Source()
    source.on_failure(KEYS[:1], 0.0, timed_out=False)
    assert not source.is_aside(KEYS[0], 0.0)
    source.on_failure(KEYS[1:2], 0.0, timed_out=False)
    source.on_failure(KEYS[:1], 0.0, timed_out=False)
    assert not source.is_aside(KEYS[0], 0.0)
    source.on_failure(KEYS[:1], 0.0, timed_out=False)
    assert source.is_aside(KEYS[0], 59.0)
    assert not source.is_aside(KEYS[0], 60.0)


def test_key_that_fails_again_and_again_is_left_alone_for_ever_longer_up_to_an_hour():
    source, now, waits = Source(), 0.0, []
    for _ in range(8):
        source.on_failure(KEYS[:1], now, timed_out=False)
        source.on_failure(KEYS[:1], now, timed_out=False)
        waits.append(source.retry_at() - now)
        now = source.retry_at()
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_key_is_forgotten_by_the_first_complete_session_that_asked_for_it():
    source = Source()
    source.set_aside(KEYS[0], 0.0, 60.0)
    source.on_complete(59.0)
    assert source.retry_at() == 60.0
    source.on_complete(60.0)
    assert source.retry_at() is None


def test_suspects_and_others_do_not_share_a_request():
    source = Source()
    source.on_values(1, 100)
    source.on_failure(KEYS[4:8], 0.0, timed_out=False)
    assert source.request_size(LEAVES[:20]) == 4
    assert source.request_size(LEAVES[4:20]) == 2
    assert source.request_size(LEAVES[7:20]) == 1
    assert source.request_size(LEAVES[8:20]) == 12


def test_time_outs_shrink_the_answers_and_complete_sessions_grow_them():
    source = Source()
    for _ in range(20):
        source.on_failure(KEYS[:9], 0.0, timed_out=True)
    assert source.response_bytes == RESPONSE_BYTES_MIN
    for _ in range(20):
        source.on_complete(0.0)
    assert source.response_bytes == RESPONSE_BYTES
    assert not source.is_careful


def test_session_cut_off_before_its_first_entry_makes_the_next_one_look_less_far():
    source = Source()
    seen = []
    while source.on_cut_off(has_entries=False):
        seen.append(source.expansions_max)
    assert seen == [32, 4, 1]
    for _ in range(10):
        assert not source.on_cut_off(has_entries=True)
    assert source.expansions_max == 256


def test_keys_left_alone_have_a_maximum():
    source = Source()
    for index in range(ASIDE_MAX + 5):
        source.set_aside(index.to_bytes(20, "big"), float(index))
    kept = [index for index in range(ASIDE_MAX + 5) if source.is_aside(index.to_bytes(20, "big"), 0.0)]
    assert kept == list(range(5, ASIDE_MAX + 5))
    assert source.retry_at() == 3605.0
