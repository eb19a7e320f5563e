"""What either side of a reconciliation reads of its values at once, and holds while values go over."""

import sys
import weakref

import pytest
from log_support import SIGNERS, make
from reconcile_support import Log, Pump

from gossiplog.codec.framing import FrameDecoder
from gossiplog.entry.validation import Rule
from gossiplog.log.page import PAGE_BYTES_MAX, cut_page
from gossiplog.log.requests import ReadPage
from gossiplog.plan import run_plan
from gossiplog.reconcile import Wishes, client, messages, reconcile, serve, steps
from gossiplog.reconcile.messages import FRAME_BYTES
from gossiplog.reconcile.steps import give_all, give_keys
from gossiplog.sketch import Decoder
from gossiplog.sync.events import Ask
from gossiplog.sync.result import Ending
from gossiplog.sync.source import Source


def read_as_a_store_does(values, request):
    if isinstance(request, ReadPage):
        return cut_page([(key, value) for key, value in values.items() if key > (request.after or b"")][: request.limit])
    return dict(cut_page([(key, values[key]) for key in request.keys if key in values]))


def give(steps, values):
    """Run the steps; return what was sent, the bytes of each read, and how many references to values were held at most during a send."""
    references = sum(map(sys.getrefcount, values.values()))
    sent, read, held, answer = [], [], 0, None
    while True:
        try:
            step, answer = steps.send(answer), None
        except StopIteration:
            return sent, read, held
        if isinstance(step, Ask):
            assert step.of_snapshot
            answer = run_plan(step.plan, lambda request: read_as_a_store_does(values, request))
            read.append(sum(map(len, answer.values() if isinstance(answer, dict) else dict(answer).values())))
        else:
            held = max(held, sum(map(sys.getrefcount, values.values())) - references)
            frames = FrameDecoder()
            frames.feed(step.data)
            sent += messages.decode(frames.next()).values


@pytest.mark.parametrize("size", [100, 2_000, 200_000])
@pytest.mark.parametrize("by_keys", [True, False])
def test_whoever_gives_reads_a_frame_at_a_time_and_holds_nothing_else_while_it_is_sent(size, by_keys):
    values = {number.to_bytes(20): number.to_bytes(4) * (size // 4) for number in range(900)}
    sent, read, held = give(give_keys(list(values)) if by_keys else give_all(None, len(values)), values)
    assert sent == list(values.values())
    # A name for the last of them is left.
    assert held <= 1
    assert read[0] <= PAGE_BYTES_MAX + size
    # Values of another size are noticed with the first answer; by keys, an answer that was cut is asked for again.
    later = [each for each in read[1:] if each < PAGE_BYTES_MAX // 2]
    assert max(later) <= FRAME_BYTES
    assert len(read) - len(later) <= 2
    assert len(read) <= 6 + 2 * sum(map(len, values.values())) // FRAME_BYTES


def test_keys_that_are_not_in_the_log_end_the_giving_and_keys_named_twice_do_not():
    values = {number.to_bytes(20): bytes([number % 256]) * 300 for number in range(500)}
    keys = list(values)
    sent, _, _ = give(give_keys([*keys[:300], bytes(19) + b"\xff" + b"!", *keys[300:]]), values)
    assert sent == list(values.values())[:300]
    sent, read, _ = give(give_keys([key for key in keys for _ in range(2)]), values)
    assert sent == [value for value in values.values() for _ in range(2)]
    assert len(read) <= 3 * len(sent)


def test_what_it_took_to_find_the_difference_is_gone_when_values_go_over(monkeypatch):
    made, alive = [], []

    class Watched(Decoder):
        def __init__(self, ours):
            super().__init__(ours)
            made.append(weakref.ref(self))

    def watch(side, frame):
        frames = FrameDecoder()
        frames.feed(frame)
        if isinstance(messages.decode(frames.next()), messages.Values):
            alive.append([decoder() is not None for decoder in made])
        return frame

    monkeypatch.setattr(client, "Decoder", Watched)
    common, theirs = ([make((name, number), [], SIGNERS[0]) for number in range(30)] for name in ("common", "theirs"))
    ours = Log(common)
    Pump(ours, Log([*common, *theirs]), tamper=watch).run()
    assert len(ours.keys) == 60
    assert alive
    assert all(each == [False] for each in alive)


@pytest.mark.parametrize("is_given", [False, True])
def test_log_that_grew_by_an_import_since_it_was_counted_is_no_liar(is_given, monkeypatch):
    monkeypatch.setattr(steps, "SLACK", 20)
    entries = sorted((make(number) for number in range(60)), key=lambda entry: entry.key)
    grown, empty, counted = Log(entries), Log(), Log(entries[:10]).view()
    if is_given:
        pump = Pump(grown, empty, sessions=(reconcile(counted, Source(), 0.0, Wishes()), None))
    else:
        pump = Pump(empty, grown, sessions=(None, serve(counted)))
    outcome, served = pump.run()
    assert (served.fault, outcome.fallback, outcome.result.ending) == ("", "", Ending.COMPLETE)
    assert empty.keys == {entry.key for entry in entries[:30]}, "the rest comes with the next sync"
    assert is_given or served.has_moved


@pytest.mark.parametrize("rule", [Rule.STORAGE, Rule.QUOTA])
@pytest.mark.parametrize("is_given", [False, True])
def test_what_was_stored_beside_an_entry_that_has_to_wait_is_told(rule, is_given):
    entries = sorted((make(number) for number in range(5)), key=lambda entry: entry.key)
    full, empty = Log(entries), Log()
    empty.postponed[entries[0].key] = rule
    client, server = (full, empty) if is_given else (empty, full)
    outcome, served = Pump(client, server).run()
    assert empty.keys == {entry.key for entry in entries[1:]}
    taken, brought = (served.taken, served.brought) if is_given else (outcome.result.entries, outcome.result.brought)
    assert taken == 4
    assert {entry.key for entry in brought.entries} == empty.keys


def test_child_of_an_entry_that_has_to_wait_is_no_fault_of_the_other_side():
    parent = make("parent")
    full, empty = Log([parent, make("child", [parent])]), Log()
    empty.postponed[parent.key] = Rule.STORAGE
    outcome, _ = Pump(empty, full).run()
    assert (outcome.fallback, outcome.result.ending, outcome.result.orphans) == ("", Ending.STORAGE, 1)
