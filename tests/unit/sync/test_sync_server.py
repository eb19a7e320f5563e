"""The serving side with honest clients, and with hostile ones: one test a limit."""

from random import Random

import pytest
from sync_support import ServerDriver, SmallLog, make_entry, make_history

from gossiplog.codec.framing import FRAME_BYTES_MAX
from gossiplog.codec.framing import encode_frame as frame
from gossiplog.errors import LocalProtocolError
from gossiplog.limits import TokenBucket
from gossiplog.plan import run_plan
from gossiplog.sync.events import Answered, Closed, Finish, Received, Reset, Resumed, Send
from gossiplog.sync.limits import ServerLimits
from gossiplog.sync.rpc import (
    KEYS_MAX,
    AbortResponse,
    ChildrenResponse,
    GetChildren,
    GetNode,
    GetRoot,
    GetValues,
    NodeResponse,
    RootResponse,
    ValuesResponse,
)
from gossiplog.sync.server import SyncServer
from gossiplog.sync.wire import encode_request
from gossiplog.tree.memory import MemoryTree
from gossiplog.tree.node import CHILDREN_MAX, Node, NodeRun, ReadRuns

LOG = SmallLog(make_history(Random(11), 1_500))
KEYS = sorted(LOG.values)


def test_every_request_gets_its_answer():
    root = LOG.root
    driver = ServerDriver(LOG)
    top = LOG.tree.runs(root.level, [None])[0].children
    assert driver.ask(GetRoot(), GetNode(0, KEYS[5]), GetNode(1, b"\xff" * 20), GetChildren(root.level, None), GetValues(KEYS[:3])) == [
        RootResponse(root),
        NodeResponse(LOG.tree.node(0, KEYS[5])),
        NodeResponse(None),
        ChildrenResponse(top),
        ValuesResponse([LOG.values[key] for key in KEYS[:3]]),
    ]
    assert driver.plans == 1
    driver.give(Closed(""))
    assert driver.end == Finish()
    assert driver.server.requests == 5


def test_order_of_answers_is_that_of_the_requests():
    nodes = [node for node in LOG.tree.runs(LOG.root.level, [None])[0].children if node.level]
    requests = [GetChildren(node.level, node.key) for node in reversed(nodes)] * 2
    responses = ServerDriver(LOG).ask(*requests)
    assert [response.children[0].key for response in responses] == [request.key for request in requests]


def test_requests_may_come_a_byte_at_a_time():
    driver = ServerDriver(LOG)
    for byte in frame(encode_request(GetRoot())) + frame(encode_request(GetValues(KEYS[:2]))):
        driver.give(Received(bytes([byte])))
    assert len(driver.responses()) == 2


def test_end_of_the_requests_is_answered_after_what_was_asked():
    driver = ServerDriver(LOG)
    server = driver.server
    (asked,) = server.handle(Received(frame(encode_request(GetRoot()))), 0.0)
    assert not server.wants_input
    assert server.handle(Closed(""), 0.0) == []
    sent, finish = server.handle(Answered(LOG.run(asked.plan)), 0.0)
    assert isinstance(sent, Send) and finish == Finish()
    assert server.is_done and server.handle(Received(b"\xff"), 0.0) == []


@pytest.mark.parametrize(
    "junk",
    [
        b"\x00",
        b"\x01\xff",
        b"\x02\x7a\x00",
        b"\xff\xff\xff\xff\xff",
        frame(encode_request(GetNode(33, None))),
        frame(encode_request(GetChildren(0, None))),
    ],
)
def test_what_is_no_request_resets_the_stream_after_the_answers_before_it(junk):
    driver = ServerDriver(LOG)
    driver.give(Received(frame(encode_request(GetRoot())) + junk + frame(encode_request(GetRoot()))))
    assert len(driver.responses()) == 1
    assert isinstance(driver.end, Reset) and driver.end.is_violation


@pytest.mark.parametrize(
    "request_", [GetChildren(33, None), GetChildren(2**32 - 1, None), GetChildren(1, b"\x01" * 20), GetChildren(30, None)]
)
def test_children_of_a_node_that_is_not_there_reset_the_stream(request_):
    driver = ServerDriver(LOG)
    assert driver.ask(request_) == []
    assert isinstance(driver.end, Reset) and driver.end.is_violation


def test_request_for_more_keys_than_allowed_is_a_violation():
    driver = ServerDriver(LOG, in_parts=True)
    assert len(driver.ask(GetValues(KEYS[:KEYS_MAX]))[0].values) == KEYS_MAX
    driver.ask(GetValues(KEYS[: KEYS_MAX + 1]))
    assert isinstance(driver.end, Reset) and driver.end.is_violation


def test_reference_gets_the_first_values_of_too_many_and_comes_again():
    driver = ServerDriver(LOG)
    (answer,) = driver.ask(GetValues(KEYS[: KEYS_MAX + 1]))
    assert answer == ValuesResponse([LOG.values[key] for key in KEYS[:KEYS_MAX]])
    assert driver.ask(GetRoot()) == [AbortResponse(0)]
    assert driver.end == Finish() and driver.server.is_short and driver.server.is_aborted
    # One that asks for nothing more thinks that it is done, and is told our heads again by whoever sees this.
    driver = ServerDriver(LOG)
    driver.ask(GetValues(KEYS[: KEYS_MAX + 1]))
    driver.give(Closed(""))
    assert driver.end == Finish() and driver.server.is_short and not driver.server.is_aborted


def test_requests_behind_a_short_answer_are_answered_by_an_abort_alone():
    driver = ServerDriver(LOG)
    answers = driver.ask(GetRoot(), GetValues(KEYS[: KEYS_MAX + 1]), GetRoot(), GetValues(KEYS[:3]))
    assert [type(answer) for answer in answers] == [RootResponse, ValuesResponse, AbortResponse]


def test_value_that_is_not_there_ends_the_stream_without_blame():
    driver = ServerDriver(LOG)
    assert driver.ask(GetValues([KEYS[0], bytes(20)])) == []
    assert isinstance(driver.end, Reset) and not driver.end.is_violation


def test_answer_that_would_be_too_large_is_never_built():
    """1,024 values of a mebibyte are asked for; no more than a few are read."""
    entries = dict(make_entry(bytes([index]) * 2**20) for index in range(100))
    log, read = SmallLog(entries), []

    class Watched:
        def run(self, plan):
            def reply(request):
                found = log.answer(request)
                read.append(sum(map(len, found.values())))
                return found

            return run_plan(plan, reply)

    driver = ServerDriver(Watched(), in_parts=True)
    assert driver.ask(GetValues(sorted(entries))) == []
    assert isinstance(driver.end, Reset) and not driver.end.is_violation
    assert driver.server.fault == "more than 4194304 bytes of values in one answer"
    (short,) = ServerDriver(Watched()).ask(GetValues(sorted(entries)))
    assert short.values == [entries[key] for key in sorted(entries)[:3]]
    assert sum(read) <= 16 * 2**20 + 16 * 100


def test_largest_answer_fits_a_frame():
    entries = dict(make_entry(bytes([index]) * (2**20 - 100)) for index in range(5))
    driver = ServerDriver(SmallLog(entries))
    (response,) = driver.ask(GetValues(sorted(entries)[:4]))
    assert len(response.values) == 4
    (short,) = driver.ask(GetValues(sorted(entries)))
    assert short == response
    assert FRAME_BYTES_MAX - 600 < driver.bytes_most <= FRAME_BYTES_MAX + 4


def test_short_answer_holds_at_least_the_first_value_whatever_the_store_reads_first():
    """A page of a store ends with 8 MiB, in an order of its own: the first key's value may not be in it."""
    entries = dict(make_entry(bytes([index]) * (4 * 2**20 - 200)) for index in range(4))
    keys = sorted(entries)
    log = SmallLog(entries)

    class Backwards:
        def run(self, plan):
            def reply(request):
                found = log.answer(request)
                return found if len(found) == 1 else {key: value for key, value in found.items() if key != keys[0]}

            return run_plan(plan, reply)

    (short,) = ServerDriver(Backwards()).ask(GetValues(keys))
    assert short.values == [entries[keys[0]]]


def test_same_values_asked_for_again_and_again_stay_within_the_bound():
    entries = dict(make_entry(bytes([index]) * 60_000) for index in range(60))
    driver = ServerDriver(SmallLog(entries))
    responses = driver.ask(*[GetValues(sorted(entries))] * 20)
    assert len(responses) == 20
    assert driver.plans == 20
    assert driver.bytes_most <= FRAME_BYTES_MAX + 2**20


class Giant:
    """A snapshot whose only node has as many children as asked for."""

    def __init__(self, count):
        self.children = [Node(0, index.to_bytes(20, "big"), bytes(16)) for index in range(count)]

    def run(self, plan):
        def reply(request):
            assert isinstance(request, ReadRuns)
            return [NodeRun(Node(1, None, bytes(16)), self.children, None)]

        return run_plan(plan, reply)


def test_giant_node_is_served_as_long_as_it_fits_a_frame():
    driver = ServerDriver(Giant(90_000))
    (response,) = driver.ask(GetChildren(1, None))
    assert len(response.children) == 90_000
    driver = ServerDriver(Giant(CHILDREN_MAX))
    assert driver.ask(GetChildren(1, None)) == []
    assert isinstance(driver.end, Reset) and not driver.end.is_violation


def test_giant_node_asked_for_many_times_is_built_and_sent_one_at_a_time():
    driver = ServerDriver(Giant(90_000))
    assert len(driver.ask(*[GetChildren(1, None)] * 4)) == 4
    assert driver.bytes_most <= FRAME_BYTES_MAX + 2**20


def test_requests_beyond_the_rate_wait_and_are_not_refused():
    driver = ServerDriver(LOG, limits=ServerLimits(requests_per_s=10, requests_burst=5))
    assert len(driver.ask(*[GetRoot()] * 8)) == 5
    assert not driver.server.wants_input
    assert driver.pauses == [pytest.approx(0.1, abs=1e-4)]
    driver.give(Resumed())
    assert len(driver.responses()) == 0
    for expected in (1, 1, 1):
        driver.now = driver.pauses[-1]
        driver.give(Resumed())
        assert len(driver.responses()) == expected
    assert driver.server.wants_input and driver.end is None


def test_allowance_of_a_peer_outlives_its_sessions():
    bucket = TokenBucket(2_000, 2_000, 0.0)
    first = ServerDriver(LOG, bucket=bucket)
    assert len(first.ask(*[GetRoot()] * 2_000)) == 2_000
    second = ServerDriver(LOG, bucket=bucket)
    assert second.ask(GetRoot()) == []
    assert second.pauses


def test_requests_that_are_put_off_cost_nothing_yet():
    bucket = TokenBucket(1, 100, 0.0)
    entries = dict(make_entry(bytes([index]) * 60_000) for index in range(60))
    driver = ServerDriver(SmallLog(entries), bucket=bucket)
    assert len(driver.ask(*[GetValues(sorted(entries))] * 20)) == 20
    assert bucket.take(1_000, 0.0) == 80


def test_session_that_outlives_its_share_is_aborted_in_place_of_an_answer():
    driver = ServerDriver(LOG, limits=ServerLimits(cooldown_ms=250))
    driver.now = 9.9
    assert driver.ask(GetRoot()) == [RootResponse(LOG.root)]
    driver.now = 10.0
    assert driver.ask(GetRoot()) == [AbortResponse(250)]
    assert driver.end == Finish()


def test_session_that_asks_nothing_does_not_keep_its_snapshot():
    driver = ServerDriver(LOG)
    assert driver.server.deadline == 10.0
    driver.now = 10.0
    driver.give(Resumed())
    assert driver.responses() == [AbortResponse(0)]
    assert driver.end == Finish()


def test_idle_session_is_ended_however_long_its_share_is():
    driver = ServerDriver(LOG, limits=ServerLimits(share_s=1e9))
    driver.ask(GetRoot())
    driver.now = 30.0
    # Bytes alone are no activity: a request of a byte a second is idleness.
    driver.give(Received(b"\x02"))
    driver.now = 59.9
    driver.give(Resumed())
    assert driver.end is None
    driver.now = driver.server.deadline
    driver.give(Resumed())
    assert driver.now == 60.0 and driver.end == Finish()


def test_flood_of_small_requests_stays_bytes_until_its_turn():
    server = SyncServer(0.0)
    server.handle(Received(frame(encode_request(GetRoot())) * 20_000), 0.0)
    assert len(server._queue) == ServerLimits().run_requests
    assert not server.wants_input


def test_driver_that_feeds_what_is_not_wanted_is_told():
    server = SyncServer(0.0)
    server.handle(Received(frame(encode_request(GetRoot()))), 0.0)
    with pytest.raises(LocalProtocolError):
        for _ in range(6):
            server.handle(Received(bytes(2**20)), 0.0)
    with pytest.raises(LocalProtocolError):
        SyncServer(0.0).handle(Answered(None), 0.0)


def test_empty_log_serves_its_root():
    driver = ServerDriver(SmallLog())
    assert driver.ask(GetRoot(), GetNode(0, None)) == [RootResponse(MemoryTree().root), NodeResponse(MemoryTree().root)]
