from random import Random

import pytest
from sync_support import ClientDriver, FakeVerdict, Keyed, SmallLog, converse, make_entry, make_history, parents_of, pull, serve_one

from gossiplog.codec.framing import FrameDecoder
from gossiplog.codec.framing import encode_frame as frame
from gossiplog.errors import LocalProtocolError
from gossiplog.sync.client import SyncClient
from gossiplog.sync.compare_plan import Compared
from gossiplog.sync.events import Answered, Ask, Closed, Done, EntriesStored, Finish, Received, Send, StoreEntries
from gossiplog.sync.limits import ClientLimits
from gossiplog.sync.result import Ending
from gossiplog.sync.rpc import AbortResponse, GetChildren, GetRoot, GetValues
from gossiplog.sync.source import Source
from gossiplog.sync.wire import decode_request, encode_request, encode_response

ENTRIES = make_history(Random(3), 2_000)


def serve_in_waves(driver, source):
    """Answer everything that was sent before anything more is sent, as a line with a long delay would; return the number of waves."""
    frames, waves = FrameDecoder(), 0
    driver.start()
    while driver.result is None:
        frames.feed(driver.take_sent())
        answers = []
        while (message := frames.next()) is not None:
            answers.append(frame(encode_response(serve_one(source, decode_request(message)))))
        waves += 1
        driver.feed(b"".join(answers))
    return waves


def test_empty_source_needs_one_request():
    result = converse(ClientDriver(SyncClient(), SmallLog(dict(ENTRIES))), SmallLog())
    assert result.complete
    assert (result.requests, result.entries, result.bytes_sent) == (1, 0, 3)


def test_equal_logs_need_one_request():
    result = converse(ClientDriver(SyncClient(), SmallLog(dict(ENTRIES))), SmallLog(ENTRIES))
    assert result.complete
    assert (result.requests, result.entries) == (1, 0)


@pytest.mark.parametrize("count", [1, 2, 40, 2_000])
def test_empty_log_gets_everything_in_key_order(count):
    entries = dict(list(ENTRIES.items())[:count])
    target = SmallLog()
    result = converse(ClientDriver(SyncClient(), target), SmallLog(entries))
    assert result.complete
    assert target.inserted == sorted(entries)
    assert result.entries == count


def test_missing_entries_alone_travel():
    held = {key: ENTRIES[key] for key in sorted(ENTRIES)[::2]}
    asked = []

    def watch(request, response):
        if isinstance(request, GetValues):
            asked.extend(request.keys)
        return response

    target = SmallLog(dict(held))
    converse(ClientDriver(SyncClient(), target), SmallLog(ENTRIES), watch)
    assert asked == sorted(set(ENTRIES) - set(held))


def test_ten_thousand_entries_take_a_handful_of_round_trips():
    entries = make_history(Random(4), 10_000)
    driver = ClientDriver(SyncClient(), CountingLog())
    waves = serve_in_waves(driver, SmallLog(entries))
    assert driver.result.complete and driver.result.entries == 10_000
    assert waves <= 12
    assert driver.result.waits == waves
    assert max(driver.log.batches) <= 1_000


class CountingLog(SmallLog):
    """Takes whatever comes, at no cost."""

    def insert(self, entries):
        self.batches.append(len(entries))
        return [FakeVerdict(Keyed(key)) for key, _ in entries]


@pytest.mark.parametrize("missing", [1, 10, 100, 1_000])
def test_scattered_differences_take_at_most_twelve_round_trips(missing):
    entries = make_history(Random(5), 10_000)
    lacking = set(Random(6).sample(sorted(entries), missing))
    target = CountingLog({key: value for key, value in entries.items() if key not in lacking})
    result = pull(target, SmallLog(entries))
    assert result.complete and result.entries == missing
    assert result.waits <= 12


def reference_traffic(target, source):
    """The bytes and round trips of the reference's walk (`sync/driver.js` of gossiplog 0.13): depth first, a request at a time."""
    up = down = trips = 0

    def get(request):
        nonlocal up, down, trips
        response = serve_one(source, request)
        up, down, trips = up + len(frame(encode_request(request))), down + len(frame(encode_response(response))), trips + 1
        return response

    root = get(GetRoot()).root
    todo = [root] if root != target.root and root.level else []
    while todo:
        node = todo.pop()
        if node.level <= target.root.level and target.tree.node(node.level, node.key) == node:
            continue
        children = get(GetChildren(node.level, node.key)).children
        if node.level > 1:
            todo += reversed(children)
        else:
            get(GetValues([leaf.key for leaf in children if leaf.key and target.tree.node(0, leaf.key) is None]))
    return up, down, trips


@pytest.mark.parametrize("missing", [1, 10, 100, 1_000, 3_000])
def test_never_more_bytes_than_the_reference_sends(missing):
    entries = make_history(Random(8), 3_000)
    lacking = set(Random(9).sample(sorted(entries), missing))
    target, source = CountingLog({key: value for key, value in entries.items() if key not in lacking}), SmallLog(entries)
    up, down, trips = reference_traffic(target, source)
    result = pull(target, source)
    assert result.entries == missing
    assert result.bytes_sent <= up
    assert result.bytes_received <= down
    assert result.requests <= trips


def test_nothing_is_asked_for_twice():
    held = {key: value for key, value in ENTRIES.items() if Random(key).random() < 0.9}
    asked = []

    def watch(request, response):
        asked.append(request if not isinstance(request, GetValues) else tuple(request.keys))
        return response

    target = CountingLog(held)
    converse(ClientDriver(SyncClient(), target), SmallLog(ENTRIES), watch)
    assert len(set(asked)) == len(asked)


@pytest.mark.parametrize("cut", [1, 2, 17, 1_000])
def test_fragments_of_any_size_give_the_same_result(cut):
    entries = dict(list(ENTRIES.items())[:200])
    target = SmallLog()
    driver = ClientDriver(SyncClient(), target)

    def feed_slowly(request, response):
        data = frame(encode_response(response))
        for start in range(0, len(data), cut):
            driver.feed(data[start : start + cut])
        return b""

    result = converse(driver, SmallLog(entries), feed_slowly)
    assert result.complete and target.inserted == sorted(entries)


def test_session_that_breaks_anywhere_goes_on_where_it_was():
    """Every answer in turn is the last of its session."""
    source_log, entries = SmallLog(dict(list(ENTRIES.items())[:400])), dict(list(ENTRIES.items())[:400])
    for broken in range(60):
        target, source = SmallLog(), Source()
        for session in range(100):
            left = [broken if session == 0 else 100_000]

            def lie(request, response, left=left):
                left[0] -= 1
                return AbortResponse(0) if left[0] < 0 else response

            result = converse(ClientDriver(SyncClient(source), target), source_log, lie)
            if result.ending is Ending.COMPLETE:
                break
            assert result.ending is Ending.ABORTED
        assert target.root == source_log.root
        assert target.inserted == sorted(entries)


def test_what_had_arrived_before_the_end_is_inserted():
    target = SmallLog()
    served = []

    def lie(request, response):
        if isinstance(request, GetValues):
            if served:
                return None
            served.extend(request.keys)
        return response

    result = converse(ClientDriver(SyncClient(), target), SmallLog(ENTRIES), lie)
    assert result.ending is Ending.CLOSED
    assert target.inserted == served
    assert result.entries == len(served)


def test_entries_in_quarantine_are_not_fetched_again():
    first, second = make_entry(b"a"), make_entry(b"b")
    target = SmallLog(quarantined=dict([first]))
    result = converse(ClientDriver(SyncClient(), target), SmallLog(dict([first, second])))
    assert result.complete
    assert (result.entries, result.quarantined) == (1, 1)
    assert set(target.values) == {second[0]}


def test_descendants_of_quarantined_entries_are_no_orphans():
    first = make_entry(b"a")
    second = make_entry(b"b", [first[0]])
    target = SmallLog(quarantined=dict([first]))
    result = converse(ClientDriver(SyncClient(), target), SmallLog(dict([first, second])))
    assert result.complete
    assert (result.entries, result.quarantined) == (0, 2)


def test_entry_that_came_another_way_meanwhile_is_a_duplicate():
    entry = make_entry(b"a")

    class Racing(SmallLog):
        def insert(self, entries):
            self.values.update(entries)
            return super().insert(entries)

    result = converse(ClientDriver(SyncClient(), Racing()), SmallLog(dict([entry])))
    assert result.complete
    assert (result.entries, result.duplicates) == (0, 1)


def open_session(limits=None):
    """A client whose actions the test performs itself."""
    client = SyncClient(limits=limits)
    (first,) = client.start(0.0)
    assert isinstance(first, Send)
    return client, first


def test_reading_goes_on_while_the_log_is_busy():
    """An Ask and a StoreEntries may be outstanding together, and answers arrive meanwhile."""
    source = SmallLog(dict(list(ENTRIES.items())[:500]))
    target = SmallLog()
    client, first = open_session(ClientLimits(probes_in_flight=1, batch_entries=30))
    wire, frames, jobs, done = [first.data], FrameDecoder(), [], None
    both = 0
    while done is None:
        # Local work is done as late as possible: only when there is nothing to read.
        for data in wire:
            frames.feed(data)
        wire.clear()
        message = frames.next()
        if message is not None:
            actions = client.handle(Received(frame(encode_response(serve_one(source, decode_request(message))))), 0.0)
        else:
            job = jobs.pop(0)
            if isinstance(job, Ask):
                actions = client.handle(Answered(target.run(job.plan)), 0.0)
            else:
                actions = client.handle(EntriesStored(target.insert(job.entries)), 0.0)
        for action in actions:
            if isinstance(action, Send):
                wire.append(action.data)
            elif isinstance(action, Done):
                done = action.result
            elif not isinstance(action, Finish):
                jobs.append(action)
        both = max(both, len(jobs))
        assert sum(isinstance(job, Ask) for job in jobs) <= 1
        assert sum(isinstance(job, StoreEntries) for job in jobs) <= 1
    assert done.complete and target.inserted == sorted(source.values)
    assert both == 2


def test_slow_store_stops_the_reading_before_memory_fills():
    entries = dict(make_entry(bytes([index]) * 50_000) for index in range(200))
    source, target = SmallLog(entries), SmallLog()
    limits = ClientLimits(ready_bytes=2**19, batch_bytes=2**17)
    client, first = open_session(limits)
    frames, pending, inserting, held_most = FrameDecoder(), [first], None, 0
    result = None
    while result is None:
        for action in pending:
            if isinstance(action, Send):
                frames.feed(action.data)
            elif isinstance(action, StoreEntries):
                inserting = action.entries
            elif isinstance(action, Done):
                result = action.result
        asks = [action for action in pending if isinstance(action, Ask)]
        held_most = max(held_most, client._ready_bytes)
        if asks:
            pending = client.handle(Answered(target.run(asks[0].plan)), 0.0)
        elif client.wants_input and (message := frames.next()) is not None:
            pending = client.handle(Received(frame(encode_response(serve_one(source, decode_request(message))))), 0.0)
        elif inserting is not None:
            entries_now, inserting = inserting, None
            pending = client.handle(EntriesStored(target.insert(entries_now)), 0.0)
    assert result.complete and len(target.values) == 200
    # One answer may arrive when the limit is nearly reached; it is at most a frame, and the first ones are of 60 keys.
    assert held_most <= 2**19 + 60 * 50_010


def test_large_values_are_asked_for_a_megabyte_at_a_time():
    entries = dict(make_entry(bytes([index % 256, index // 256]) * 25_000) for index in range(300))
    sizes = []

    def watch(request, response):
        if isinstance(request, GetValues):
            sizes.append(sum(map(len, response.values)))
        return response

    result = converse(ClientDriver(SyncClient(), CountingLog()), SmallLog(entries), watch)
    assert result.complete
    probes = ClientLimits().probes_in_flight
    assert max(sizes) < 4 * 2**20
    assert max(sizes[probes:], default=0) <= 2**20


def test_finish_comes_before_the_last_batch_is_stored_and_done_after():
    client, first = open_session()
    source, target = SmallLog(dict([make_entry(b"a")])), SmallLog()
    frames, actions, seen = FrameDecoder(), [first], []
    while True:
        seen += [type(action).__name__ for action in actions]
        last = actions[-1]
        if isinstance(last, Done):
            break
        send = next((action for action in actions if isinstance(action, Send)), None)
        ask = next((action for action in actions if isinstance(action, Ask)), None)
        insert = next((action for action in actions if isinstance(action, StoreEntries)), None)
        if send is not None:
            frames.feed(send.data)
            actions = client.handle(Received(frame(encode_response(serve_one(source, decode_request(frames.next()))))), 0.0)
        elif ask is not None:
            actions = client.handle(Answered(target.run(ask.plan)), 0.0)
        else:
            # The stream may end here: everything is in hand, and there is nothing left to read while it is being inserted.
            assert client.handle(Closed(""), 0.0) == []
            assert not client.wants_input
            actions = client.handle(EntriesStored(target.insert(insert.entries)), 0.0)
    assert seen[-3:] == ["StoreEntries", "Finish", "Done"]
    assert client.result.complete


def test_impatient_abort_after_the_last_answer_changes_nothing():
    source = SmallLog(dict([make_entry(b"a")]))

    def lie(request, response):
        if isinstance(request, GetValues):
            return frame(encode_response(response)) + frame(encode_response(AbortResponse(0)))
        return response

    target = SmallLog()
    result = converse(ClientDriver(SyncClient(), target), source, lie)
    assert result.ending in (Ending.COMPLETE, Ending.ABORTED)
    assert target.root == source.root


def test_driver_that_answers_what_was_not_asked_is_told():
    client, _ = open_session()
    with pytest.raises(LocalProtocolError):
        client.handle(Answered(Compared()), 0.0)
    with pytest.raises(LocalProtocolError):
        client.handle(EntriesStored([]), 0.0)
    with pytest.raises(LocalProtocolError):
        client.start(0.0)


def test_driver_that_feeds_what_is_not_wanted_is_told_before_memory_fills():
    entries = dict(make_entry(bytes([index]) * 1_000) for index in range(20))
    client, first = open_session(ClientLimits(ready_bytes=1, probes_in_flight=1))
    source, target, frames, actions = SmallLog(entries), SmallLog(), FrameDecoder(), [first]
    while client.wants_input:
        ask = next((action for action in actions if isinstance(action, Ask)), None)
        if ask is not None:
            actions = client.handle(Answered(target.run(ask.plan)), 0.0)
            continue
        frames.feed(b"".join(action.data for action in actions if isinstance(action, Send)))
        actions = client.handle(Received(frame(encode_response(serve_one(source, decode_request(frames.next()))))), 0.0)
    with pytest.raises(LocalProtocolError):
        for _ in range(8):
            client.handle(Received(bytes(2**20)), 0.0)


def test_events_after_the_end_are_ignored():
    client, _ = open_session()
    assert [type(action) for action in client.handle(Closed("gone"), 0.0)] == [Finish, Done]
    assert client.handle(Received(b"\xff"), 0.0) == []
    assert client.handle(Closed("gone"), 0.0) == []
    assert not client.wants_input and client.deadline is None


def test_parents_come_before_children_in_every_batch():
    target = SmallLog()
    driver = ClientDriver(SyncClient(limits=ClientLimits(batch_entries=7)), target)
    converse(driver, SmallLog(ENTRIES))
    seen = set()
    for key in target.inserted:
        assert seen.issuperset(parents_of(ENTRIES[key]))
        seen.add(key)
    assert max(target.batches) == 7


def test_key_that_was_asked_for_when_the_connection_was_lost_is_not_left_alone():
    key, value = make_entry(b"a")
    origin, source = SmallLog({key: value}), Source()

    def break_at_the_value(*, is_connection_lost: bool) -> bool:
        driver, frames = ClientDriver(SyncClient(source), SmallLog()), FrameDecoder()
        driver.start()
        while driver.result is None:
            frames.feed(driver.take_sent())
            request = decode_request(frames.next())
            if isinstance(request, GetValues):
                driver.give(Closed("gone", is_connection_lost))
            else:
                driver.feed(frame(encode_response(serve_one(origin, request))))
        assert driver.result.ending is Ending.CLOSED
        return source.is_aside(key, 0.0)

    assert [break_at_the_value(is_connection_lost=True) for _ in range(4)] == [False] * 4
    assert [break_at_the_value(is_connection_lost=False) for _ in range(2)] == [False, True]
