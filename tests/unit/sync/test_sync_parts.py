"""Nodes with more children than one answer holds: told in parts where both sides speak our protocol."""

from random import Random

import pytest
from sync_support import ClientDriver, ServerDriver, SmallLog, make_entry, pull

from gossiplog.codec.framing import FrameDecoder, encode_frame
from gossiplog.sync.client import SyncClient
from gossiplog.sync.events import Reset
from gossiplog.sync.limits import ServerLimits
from gossiplog.sync.result import Ending
from gossiplog.sync.rpc import ChildrenResponse, GetChildren, GetRoot
from gossiplog.sync.wire import decode_request, encode_response
from gossiplog.tree.node import FANOUT, boundary_limit, leaf_hash

PARTS = ServerLimits(requests_per_s=1e12, requests_burst=2**62, share_s=float("inf"), idle_s=float("inf"), part_children=100)


def ground(count, seed=1):
    """Entries that all stand in one node: those whose hash makes a boundary, by the real rule, are left out."""
    random, entries = Random(seed), {}
    while len(entries) < count:
        key, value = make_entry(random.randbytes(12))
        if leaf_hash(key, value) >= boundary_limit(FANOUT):
            entries[key] = value
    return entries


def widest(log):
    return max(len(run.children) for run in log.tree.runs(1, sorted(log.values)))


@pytest.mark.parametrize("count", [98, 99, 100, 101, 1_000, 2_345])
def test_node_with_many_children_is_pulled_in_parts(count):
    origin, target = SmallLog(ground(count)), SmallLog()
    assert widest(origin) == count + 1
    result = pull(target, origin, server_limits=PARTS)
    assert result.complete
    assert target.values == origin.values
    assert target.inserted == sorted(origin.values), "in key order"
    assert result.sessions == 1


def test_of_a_wide_node_only_what_is_missing_is_fetched():
    entries = ground(1_000)
    origin = SmallLog(entries)
    target = SmallLog({key: value for key, value in entries.items() if Random(key).random() < 0.9})
    lacking = len(origin.values) - len(target.values)
    result = pull(target, origin, server_limits=PARTS)
    assert result.complete and result.entries == lacking
    assert target.root == origin.root


def test_what_fits_a_frame_comes_whole_where_parts_are_unknown():
    log = SmallLog(ground(1_000))
    server = ServerDriver(log, limits=PARTS)
    ((children, has_more),) = server.ask(GetChildren(1, None))
    assert len(children) == 1_001 and not has_more
    server.ask(GetChildren(1, None, children[10].key))
    assert isinstance(server.end, Reset) and server.end.is_violation


def test_part_that_starts_nowhere_is_refused():
    log = SmallLog(ground(300))
    server = ServerDriver(log, limits=PARTS, in_parts=True)
    ((children, has_more),) = server.ask(GetChildren(1, None))
    assert len(children) == 100 and has_more
    ((following, _),) = server.ask(GetChildren(1, None, children[-1].key))
    assert following[0] == children[-1]
    server.ask(GetChildren(1, None, bytes(20)))
    assert isinstance(server.end, Reset) and server.end.is_violation


def converse(lie, *, in_parts=True):
    """Pull 1,000 siblings from a server whose parts `lie` changes; returns the result and what was stored."""
    origin, target = SmallLog(ground(1_000)), SmallLog()
    server = ServerDriver(origin, limits=PARTS, in_parts=True)
    driver = ClientDriver(SyncClient(in_parts=in_parts), target)
    driver.start()
    parts = 0
    frames = FrameDecoder()
    while driver.result is None:
        frames.feed(driver.take_sent())
        request = decode_request(frames.next())
        (response,) = server.ask(request)
        if isinstance(response, ChildrenResponse):
            parts += 1
            response = lie(parts, response)
        driver.feed(encode_frame(encode_response(response)))
    return driver.result, target


def drop_one(part, response):
    return ChildrenResponse([*response.children[:5], *response.children[6:]], response.has_more)


LIES = {
    "a hole in the second part": lambda part, response: drop_one(part, response) if part == 2 else response,
    "the end in the middle": lambda part, response: ChildrenResponse(response.children, part != 3),
    "no end": lambda part, response: ChildrenResponse(response.children, True),
    "a part that holds nothing": lambda part, response: ChildrenResponse(response.children[:1], True) if part == 2 else response,
    "a part from elsewhere": lambda part, response: ChildrenResponse(response.children[1:], True) if part == 2 else response,
    "an empty part": lambda part, response: ChildrenResponse([], False) if part == 2 else response,
}


@pytest.mark.parametrize("name", LIES)
def test_lie_in_the_parts_ends_the_session(name):
    result, target = converse(LIES[name])
    assert result.ending is Ending.VIOLATION
    assert len(target.values) < 1_000


def test_part_that_was_not_agreed_upon_is_a_violation():
    result, _ = converse(lambda part, response: response, in_parts=False)
    assert result.ending is Ending.VIOLATION


def test_requests_for_parts_are_paced_like_others():
    log = SmallLog(ground(300))
    server = ServerDriver(log, limits=ServerLimits(requests_burst=2, part_children=100), in_parts=True)
    ((children, _),) = server.ask(GetChildren(1, None))
    server.ask(GetRoot(), GetChildren(1, None, children[-1].key))
    assert server.pauses
