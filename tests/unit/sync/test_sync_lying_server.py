"""One test a lie: each ends the session with a violation (or as something to resume), and nothing false is inserted."""

from random import Random

import pytest
from sync_support import ClientDriver, SmallLog, converse, lie_to, make_entry, make_history, parents_of

from gossiplog.codec.framing import FrameDecoder
from gossiplog.codec.framing import encode_frame as frame
from gossiplog.sync.client import SyncClient
from gossiplog.sync.events import Resumed
from gossiplog.sync.limits import ClientLimits
from gossiplog.sync.result import Ending
from gossiplog.sync.rpc import (
    AbortResponse,
    ChildrenResponse,
    GetChildren,
    GetRoot,
    GetValues,
    NodeResponse,
    RootResponse,
    ValuesResponse,
)
from gossiplog.sync.source import Source
from gossiplog.sync.wire import decode_request, encode_response
from gossiplog.tree.memory import MemoryTree
from gossiplog.tree.node import ANCHOR_HASH, Node, leaf_hash, node_hash

ENTRIES = make_history(Random(7), 300)


def change_children(change):
    """A lie about the children of every node."""

    def lie(request, response):
        if not isinstance(request, GetChildren):
            return response
        return ChildrenResponse(change(request, list(response.children)))

    return lie


def change_values(change):
    def lie(request, response):
        return ValuesResponse(change(list(response.values))) if isinstance(request, GetValues) else response

    return lie


def replaced(nodes, index, node):
    return [*nodes[:index], node, *nodes[index + 1 :]]


CHILDREN_LIES = {
    "a hash that is not its own": lambda _, nodes: replaced(nodes, -1, nodes[-1]._replace(hash=bytes(15) + b"\xff")),
    "a hash of 15 bytes": lambda _, nodes: replaced(nodes, -1, nodes[-1]._replace(hash=nodes[-1].hash[:15])),
    "a hash of no bytes": lambda _, nodes: replaced(nodes, -1, nodes[-1]._replace(hash=b"")),
    "a child of its own level": lambda request, nodes: replaced(nodes, -1, nodes[-1]._replace(level=request.level)),
    "a child of the highest level": lambda _, nodes: replaced(nodes, -1, nodes[-1]._replace(level=2**32 - 1)),
    "children in reverse": lambda _, nodes: nodes[::-1],
    "the last child twice": lambda _, nodes: [*nodes, nodes[-1]],
    "the first child missing": lambda _, nodes: nodes[1:],
    "the last child missing": lambda _, nodes: nodes[:-1],
    "no children": lambda _, nodes: [],
    "a key of 19 bytes": lambda _, nodes: replaced(nodes, -1, nodes[-1]._replace(key=(nodes[-1].key or b"")[:19])),
    "a key of 21 bytes": lambda _, nodes: replaced(nodes, -1, nodes[-1]._replace(key=(nodes[-1].key or b"") + b"\0")),
    "an anchor in the middle": lambda _, nodes: replaced(nodes, -1, nodes[-1]._replace(key=None)),
    "a key beyond its range": lambda _, nodes: replaced(nodes, -1, nodes[-1]._replace(key=b"\xff" * 20)),
    "a key before its range": lambda _, nodes: replaced(nodes, -1, nodes[-1]._replace(key=bytes(20))),
}


@pytest.mark.parametrize("name", CHILDREN_LIES)
def test_children_with_a_flaw_end_the_session(name):
    result, target = lie_to(ENTRIES, change_children(CHILDREN_LIES[name]))
    assert result.ending is Ending.VIOLATION, result
    assert result.reason
    assert not target.values


@pytest.mark.parametrize("name", CHILDREN_LIES)
def test_children_with_a_flaw_at_the_leaves_end_the_session(name):
    def lie(request, nodes):
        return CHILDREN_LIES[name](request, nodes) if request.level == 1 else nodes

    result, _ = lie_to(ENTRIES, change_children(lie))
    assert result.ending is Ending.VIOLATION


@pytest.mark.parametrize(
    "root",
    [
        Node(33, None, bytes(16)),
        Node(2**32 - 1, None, bytes(16)),
        Node(3, b"k" * 20, bytes(16)),
        Node(3, None, bytes(15)),
        Node(3, None, bytes(17)),
        Node(0, None, bytes(16)),
    ],
)
def test_impossible_root_ends_the_session(root):
    result, _ = lie_to(ENTRIES, lambda request, response: RootResponse(root))
    assert result.ending is Ending.VIOLATION
    assert result.requests == 1


def test_invented_root_is_found_out_by_its_children():
    def lie(request, response):
        return RootResponse(response.root._replace(hash=b"\x55" * 16)) if isinstance(request, GetRoot) else response

    assert lie_to(ENTRIES, lie)[0].ending is Ending.VIOLATION


def test_invented_root_equal_to_ours_costs_one_round_trip_and_nothing_else():
    target = SmallLog(dict(list(ENTRIES.items())[:100]))
    result, _ = lie_to(ENTRIES, lambda request, response: RootResponse(target.root), target)
    assert result.ending is Ending.COMPLETE
    assert (result.entries, result.requests) == (0, 1)


def test_empty_root_costs_one_round_trip_and_nothing_else():
    result, _ = lie_to(ENTRIES, lambda request, response: RootResponse(Node(0, None, ANCHOR_HASH)), SmallLog(dict(ENTRIES)))
    assert (result.ending, result.entries, result.requests) == (Ending.COMPLETE, 0, 1)


def test_tree_that_never_ends_ends_at_level_32():
    """A chain of honest hashes, 32 levels of it, over leaves of which no value exists."""
    boundary = b"k" * 20
    at: dict[tuple[int, bytes | None], list[Node]] = {}
    low = [Node(0, None, ANCHOR_HASH), Node(0, boundary, b"\x00" * 16)]
    for level in range(1, 33):
        at[level, None], at[level, boundary] = [low[0]], [low[1]]
        salt = Random(level)
        # Only the highest level joins the two; a boundary's hash has to be low at every level, which a grinder can reach.
        low = [Node(level, None, node_hash([low[0]])), Node(level, boundary, node_hash([low[1]]))]
        if low[1].hash[:4] >= b"\x08\0\0\0":
            at[level, None] = [*at[level, None], *at.pop((level, boundary))]
            low = [Node(level, None, node_hash(at[level, None])), Node(level, boundary, b"\x00" + salt.randbytes(15))]
    root = Node(32, None, node_hash(at[32, None]))

    def lie(request, response):
        if isinstance(request, GetRoot):
            return RootResponse(root)
        return ChildrenResponse(at.get((request.level, request.key), []))

    driver = ClientDriver(SyncClient(), SmallLog())
    result = converse_blindly(driver, lie)
    assert result.ending is Ending.VIOLATION
    assert result.requests <= 2 * 33


def converse_blindly(driver, respond, requests_max=10_000):
    """Like `converse`, with a server that has no log at all."""
    frames = FrameDecoder()
    driver.start()
    for _ in range(requests_max):
        frames.feed(driver.take_sent())
        if driver.result is not None:
            return driver.result
        message = frames.next()
        if message is None:
            driver.close()
            continue
        response = respond(decode_request(message), None)
        driver.feed(frame(encode_response(response))) if response is not None else driver.close()
    raise AssertionError("the session does not end")


def test_giant_list_of_children_is_refused_by_its_length():
    def lie(request, response):
        if not isinstance(request, GetChildren):
            return response
        children = b"\x0a\x00" * 100_001
        message = b"\x1a\xc2\x9a\x0c" + children
        return frame(message)

    assert lie_to(ENTRIES, lie)[0].ending is Ending.VIOLATION


def test_ground_tree_that_is_too_wide_to_hold_stops_to_be_resumed():
    """Many honest nodes: with a limit of 50, the first level-1 node alone is too many. Nothing is the source's fault."""
    source = SmallLog(ENTRIES)
    driver = ClientDriver(SyncClient(limits=ClientLimits(held=20)), SmallLog())
    result = converse(driver, source)
    assert result.ending is Ending.LIMIT
    assert result.is_resumable


VALUES_LIES = {
    "another value": lambda values: [b"other", *values[1:]],
    "an empty value": lambda values: [b"", *values[1:]],
    "values in another order": lambda values: values[::-1],
    "a value missing": lambda values: values[:-1],
    "no values": lambda values: [],
    "a value too many": lambda values: [*values, values[0]],
    "one bit changed": lambda values: [*values[:-1], bytes([values[-1][0] ^ 1]) + values[-1][1:]],
}


@pytest.mark.parametrize("name", VALUES_LIES)
def test_values_that_are_not_those_of_the_keys_end_the_session(name):
    result, target = lie_to(ENTRIES, change_values(VALUES_LIES[name]))
    assert result.ending is Ending.VIOLATION
    assert not target.values


def test_leaf_hash_that_is_not_its_values_is_found_when_the_value_comes():
    key, value = make_entry(b"real")
    tree = MemoryTree.build([Node(0, key, leaf_hash(key, b"not it"))])
    driver = ClientDriver(SyncClient(), SmallLog())
    source = SmallLog({key: value})
    source.tree = tree
    result = converse(driver, source)
    assert result.ending is Ending.VIOLATION
    assert "leaf" in result.reason


def test_leaf_with_our_key_and_another_hash_is_a_violation():
    target = SmallLog(dict(ENTRIES))
    key = sorted(ENTRIES)[150]
    source = SmallLog(dict(ENTRIES))
    source.tree = MemoryTree.build(Node(0, k, leaf_hash(k, ENTRIES[k] if k != key else b"conflict")) for k in sorted(ENTRIES))
    result = converse(ClientDriver(SyncClient(), target), source)
    assert result.ending is Ending.VIOLATION
    assert key.hex() in result.reason


@pytest.mark.parametrize("first", [0xFF, 0x80, 0xC0])
def test_key_whose_clock_is_none_is_a_violation(first):
    value = b"\0\0x"
    key = bytes([first]) + bytes(19)
    source = SmallLog({key: value})
    result = converse(ClientDriver(SyncClient(), SmallLog()), source)
    assert result.ending is Ending.VIOLATION


def test_key_with_another_clock_than_its_entrys_is_a_violation():
    key, value = make_entry(b"x", clock=9)
    result = converse(ClientDriver(SyncClient(), SmallLog()), SmallLog({key: value}))
    assert result.ending is Ending.VIOLATION
    assert "has the key" in result.reason


@pytest.mark.parametrize("extra", [NodeResponse(None), ValuesResponse([]), ChildrenResponse([]), RootResponse(Node(0, None, ANCHOR_HASH))])
def test_answer_of_another_type_ends_the_session(extra):
    for kind in (GetRoot, GetChildren, GetValues):
        if (kind, type(extra)) in {(GetRoot, RootResponse), (GetChildren, ChildrenResponse), (GetValues, ValuesResponse)}:
            continue
        result, _ = lie_to(ENTRIES, lambda request, response, kind=kind: extra if isinstance(request, kind) else response)
        assert result.ending is Ending.VIOLATION


def test_answer_to_no_request_ends_the_session():
    driver = ClientDriver(SyncClient(), SmallLog())
    driver.start()
    root = encode_response(RootResponse(SmallLog(ENTRIES).root))
    driver.feed(frame(root) + frame(encode_response(ChildrenResponse([]))) + frame(root))
    assert driver.result is not None and driver.result.ending is Ending.VIOLATION


@pytest.mark.parametrize("junk", [b"\xff\xff\xff\xff\xff", b"\x81\x80\x80\x02", b"\x00", b"\x02\x0a\x00", b"\x01\x07", b"\x80\x00"])
def test_bytes_that_are_no_frame_of_ours_end_the_session(junk):
    result, _ = lie_to(ENTRIES, lambda request, response: junk)
    assert result.ending is Ending.VIOLATION


def test_half_a_frame_and_then_the_end_can_be_resumed():
    for kind in (GetRoot, GetChildren, GetValues):
        result, target = lie_to(ENTRIES, half_a_frame_on(kind))
        assert result.ending is Ending.CLOSED
        assert result.is_resumable
        assert not target.values


def half_a_frame_on(kind):
    seen = []

    def lie(request, response):
        if seen:
            return None
        if isinstance(request, kind):
            seen.append(request)
            return frame(encode_response(response))[:-3]
        return response

    return lie


@pytest.mark.parametrize("kind", [GetRoot, GetChildren, GetValues])
def test_silence_is_ended_by_the_deadline(kind):
    """One byte a second is silence too: only whole answers move the deadline."""
    driver = ClientDriver(SyncClient(), SmallLog())
    source = SmallLog(ENTRIES)

    def lie(request, response):
        if isinstance(request, kind):
            for byte in frame(encode_response(response)):
                deadline = driver.client.deadline
                if driver.now + 1 >= deadline:
                    driver.now = deadline
                    driver.give(Resumed())
                    return b""
                driver.now += 1
                driver.feed(bytes([byte]))
        return response

    result = converse(driver, source, lie)
    assert result.ending is Ending.TIMED_OUT
    assert driver.now <= 6


def test_deadline_that_is_given_too_early_does_nothing():
    driver = ClientDriver(SyncClient(), SmallLog())
    driver.start()
    driver.now = 4.9
    driver.give(Resumed())
    assert driver.result is None


def test_abort_in_place_of_any_answer_can_be_resumed_after_its_cooldown():
    for kind in (GetRoot, GetChildren, GetValues):
        result, _ = lie_to(ENTRIES, lambda request, response, kind=kind: AbortResponse(1500) if isinstance(request, kind) else response)
        assert result.ending is Ending.ABORTED
        assert result.is_resumable
        assert result.cooldown_s == 1.5


@pytest.mark.parametrize("kind", [GetRoot, GetChildren, GetValues])
def test_abort_loop_stops_counting_as_progress(kind):
    """Three sessions may look less far ahead than the one before; then there is nothing more to change."""
    source, progress = Source(), []
    for _ in range(6):
        driver = ClientDriver(SyncClient(source), SmallLog())
        result = converse(driver, SmallLog(ENTRIES), lambda request, response: AbortResponse(0) if isinstance(request, kind) else response)
        progress.append(result.has_progressed)
    assert not any(progress[3:])


def test_cooldown_of_years_is_five_minutes():
    result, _ = lie_to(ENTRIES, lambda request, response: AbortResponse(2**32 - 1))
    assert result.cooldown_s == 300


def test_orphan_from_a_source_that_has_no_gap_is_a_violation():
    """The source's tree is consistent, but it lacks an ancestor of what it offers."""
    first = make_entry(b"first")
    second = make_entry(b"second", [first[0]])
    result, target = lie_to(dict([second]), lambda request, response: response)
    assert result.ending is Ending.VIOLATION
    assert "without its parents" in result.reason
    assert not target.values


def test_invalid_entry_is_left_out_with_its_descendants_and_the_rest_comes():
    bad = make_entry(b"bad")
    child = make_entry(b"child", [bad[0]])
    good = make_entry(b"good", clock=None)
    target = SmallLog(invalid={bad[0]})
    source = Source()
    driver = ClientDriver(SyncClient(source), target)
    result = converse(driver, SmallLog(dict([bad, child, good])))
    assert result.ending is Ending.COMPLETE
    assert (result.entries, result.rejected, result.orphans) == (1, 1, 1)
    assert result.rejected_keys == (bad[0],)
    assert not result.complete
    assert set(target.values) == {good[0]}
    again = converse(ClientDriver(SyncClient(source), target, now=10), SmallLog(dict([bad, child, good])))
    assert (again.skipped, again.rejected, again.orphans) == (1, 0, 1)


def test_source_of_nothing_but_invalid_entries_is_a_violation_at_last():
    entries = dict(make_entry(bytes([index])) for index in range(150))
    target = SmallLog(invalid=set(entries))
    result = converse(ClientDriver(SyncClient(), target), SmallLog(entries))
    assert result.ending is Ending.VIOLATION
    assert result.rejected == 101


def test_endless_orphans_stop_at_a_limit():
    bad = make_entry(b"bad")
    entries = dict([bad] + [make_entry(b"child%d" % index, [bad[0]]) for index in range(200)])
    driver = ClientDriver(SyncClient(limits=ClientLimits(orphans=50, batch_entries=20)), SmallLog(invalid={bad[0]}))
    result = converse(driver, SmallLog(entries))
    assert result.ending is Ending.LIMIT
    assert result.orphans <= 70


def test_key_that_is_never_served_is_found_by_halving_and_left_for_an_hour():
    source_log = SmallLog(ENTRIES)
    never = sorted(ENTRIES)[200]
    descendants = {never}
    for key in sorted(ENTRIES):
        if any(parent in descendants for parent in parents_of(ENTRIES[key])):
            descendants.add(key)
    target, source = SmallLog(), Source()

    def lie(request, response):
        return None if isinstance(request, GetValues) and never in request.keys else response

    sessions = 0
    while True:
        sessions += 1
        result = converse(ClientDriver(SyncClient(source), target), source_log, lie)
        if result.ending is Ending.COMPLETE:
            break
        assert result.ending is Ending.CLOSED
        assert result.has_progressed
        assert sessions < 20
    assert set(target.values) == set(ENTRIES) - descendants
    assert result.skipped == 1 and not result.complete
    assert source.retry_at() == 60
    # After a minute the key is asked for again; this time it is served, and so are the entries that descend from it.
    result = converse(ClientDriver(SyncClient(source), target, now=60.0), source_log)
    assert result.complete
    assert target.root == source_log.root
    assert source.retry_at() is None


def test_storage_fault_of_ours_is_not_the_sources():
    result = converse(ClientDriver(SyncClient(), SmallLog(has_full_disk=True)), SmallLog(ENTRIES))
    assert result.ending is Ending.STORAGE
    assert result.reason == "the disk is full"


def test_what_descends_from_an_entry_that_our_disk_refuses_is_not_the_sources_fault_either():
    child = next(key for key, value in ENTRIES.items() if parents_of(value))
    target = SmallLog()
    target.refused = set(parents_of(ENTRIES[child]))
    result = converse(ClientDriver(SyncClient(), target), SmallLog(ENTRIES))
    assert (result.ending, result.reason) == (Ending.STORAGE, "the disk is full")
    assert result.orphans > 0
    target.refused.clear()
    assert converse(ClientDriver(SyncClient(), target), SmallLog(ENTRIES)).complete
    assert set(target.values) == set(ENTRIES)
