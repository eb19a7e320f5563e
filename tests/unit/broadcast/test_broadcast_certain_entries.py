import pytest
from broadcast_support import BOB, Harness, Log, chain, insert_of
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.broadcast import certain_entries as foresight_module
from gossiplog.broadcast.actions import EntryDecided, EntryForeseen, InsertEntry
from gossiplog.broadcast.certain_entries import CertainEntries
from gossiplog.broadcast.events import PeerKind
from gossiplog.entry.message import Entry
from gossiplog.entry.validation import Outcome, Rule, Verdict
from gossiplog.log.requests import ReadHeads, ReadLeaves


@pytest.fixture
def node() -> Harness:
    """A hub with three peers, whose insertions the tests answer."""
    node = Harness()
    node.connect("mesh")
    node.connect("other")
    node.connect("browser", PeerKind.CLIENT)
    node.holds = True
    return node


def inserting(node: Harness) -> InsertEntry:
    (action,) = node.of(InsertEntry)
    return action


def accepted(entry: Entry) -> Verdict:
    return Verdict(Outcome.ACCEPT, entry=entry, is_new=True)


def test_foreseen_message_is_forwarded_and_pushed_before_it_is_stored_and_only_once(node: Harness) -> None:
    (entry,) = chain(1)
    node.receive("mesh", entry)
    insert = inserting(node)
    assert node.forwarded_to() == [] and node.pushed() == {}
    node.tell(EntryForeseen(insert, entry))
    assert node.forwarded_to() == ["other"]
    assert node.pushed() == {"browser": [entry.key]}
    for event in (EntryForeseen(insert, entry), EntryDecided(insert, accepted(entry)), EntryForeseen(insert, entry)):
        node.tell(event)
        assert node.forwarded_to() == [] and node.pushed() == {}


def test_foreseen_push_is_published_and_does_not_go_back(node: Harness) -> None:
    (entry,) = chain(1)
    node.push("browser", entry)
    insert = inserting(node)
    node.tell(EntryForeseen(insert, entry))
    assert node.forwarded_to() == ["mesh", "other"]
    assert node.pushed() == {}
    assert node.sizes()["pushed_per_peer"] == 1
    node.tell(EntryDecided(insert, accepted(entry)))
    assert node.actions == []
    assert node.sizes()["pushed_per_peer"] == 0


def test_foreseen_entry_in_an_odd_wrapping_is_passed_on_in_the_usual_one(node: Harness) -> None:
    (entry,) = chain(1)
    odd = insert_of(entry) + b"\x1a\x00"
    node.receive("mesh", odd)
    insert = inserting(node)
    node.tell(EntryForeseen(insert, entry))
    # As something new of its own, so that its source, who may have it in that form alone, gets it too.
    assert node.forwarded_to() == ["mesh", "other"]
    node.tell(EntryDecided(insert, accepted(entry)))
    assert node.forwarded_to() == []


def test_entry_that_was_passed_on_and_not_stored_is_asked_for_again(node: Harness) -> None:
    (entry,) = chain(1)
    node.receive("mesh", entry)
    insert = inserting(node)
    node.tell(EntryForeseen(insert, entry))
    node.holds = False
    node.tell(EntryDecided(insert, Verdict(Outcome.IGNORE, Rule.STORAGE, "the disk is full", entry)))
    assert node.started() == ["mesh"]
    assert node.machine.state().offences == {}


# CertainEntries itself


def knowing(log: Log) -> CertainEntries:
    certain = CertainEntries()
    certain.learn(log.state.answer(ReadHeads()))
    return certain


def test_children_of_heads_are_foreseen_one_upon_the_other() -> None:
    log, entries = Log(), chain(4)
    log.insert(entries[0])
    certain = knowing(log)
    assert [certain.foresees(entry) for entry in entries[1:]] == [True, True, True]
    certain.on_commit(entries[1:])
    assert not certain.foresees(entries[3])


def test_nothing_is_foreseen_that_may_be_known_or_an_orphan() -> None:
    log, entries = Log(), chain(4)
    for entry in entries[:2]:
        log.insert(entry)
    certain = knowing(log)
    root = Log().append("a log's first entry has no parents")
    for entry in (entries[0], entries[1], entries[3], root):
        assert not certain.foresees(entry)
        certain.on_decided(Verdict(Outcome.ACCEPT, entry=entry))
    assert certain.foresees(entries[2])
    assert not certain.foresees(entries[2])


def test_blind_until_it_learns_and_after_one_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    log, entries = Log(), chain(3)
    certain = CertainEntries()
    certain.on_commit(entries[:1])
    assert certain.is_blind and not certain.foresees(entries[1])
    certain = knowing(log)
    certain.on_commit(entries[:1])
    assert certain.foresees(entries[1])
    for verdict in (accepted(entries[1]), Verdict(Outcome.IGNORE, Rule.PARENTS, entry=entries[2]), Verdict(Outcome.REJECT, Rule.SHAPE)):
        certain.on_decided(verdict)
        assert not certain.is_blind
    certain.on_decided(Verdict(Outcome.IGNORE, Rule.STORAGE, entry=entries[1]))
    assert certain.is_blind and not certain.foresees(entries[2])
    monkeypatch.setattr(foresight_module, "HEADS_MAX", 2)
    certain.learn([bytes(20), bytes(19) + b"\1", bytes(19) + b"\2"])
    assert certain.is_blind
    certain.learn([bytes(20), bytes(19) + b"\1"])
    certain.on_commit([Log().append("a third head")])
    assert certain.is_blind


@st.composite
def arrivals(draw: st.DrawFn) -> list[Entry]:
    """Entries of a graph that forks and merges, as they arrive: in any order, some of them twice, some never."""
    replicas = [Log(), Log()]
    entries: list[Entry] = []
    for number in range(draw(st.integers(1, 12))):
        log = draw(st.sampled_from(replicas))
        if draw(st.booleans()):
            for entry in entries:
                log.insert(entry)
        entries.append(log.append(number, BOB))
    return draw(st.one_of(st.just(entries), st.lists(st.sampled_from(entries), max_size=30)))


def test_child_of_an_entry_that_is_stored_and_not_yet_passed_on_waits_for_it() -> None:
    certain = knowing(Log())
    first, second, third = chain(3)
    assert not certain.foresees(first)
    certain.on_commit([first])
    assert not certain.foresees(second)
    certain.on_commit([second])
    certain.on_decided(accepted(first))
    assert not certain.foresees(third)
    certain.on_decided(accepted(second))
    certain.on_decided(accepted(third))
    assert certain.foresees(third)


def test_child_of_an_entry_that_came_twice_at_first_as_an_orphan_waits_for_the_second() -> None:
    first, second, third = chain(3)
    certain = knowing(Log())
    assert not certain.foresees(second) and not certain.foresees(first)
    certain.on_commit([first])
    assert not certain.foresees(second)
    certain.on_commit([second])
    certain.on_decided(Verdict(Outcome.IGNORE, Rule.PARENTS, entry=second))
    certain.on_decided(accepted(first))
    assert not certain.foresees(third), "the second is stored, and nobody has been told of it"
    certain.on_decided(accepted(second))
    certain.on_decided(accepted(third))
    assert not certain._waiting


@given(arrivals(), st.lists(st.sampled_from(["", "store", "decide"]), min_size=60, max_size=60))
def test_what_is_foreseen_is_accepted_as_new_and_all_is_passed_on_in_causal_order(order: list[Entry], steps: list[str]) -> None:
    """Entries are asked about, stored and decided upon one after the other, while others are at an earlier one of these steps."""
    log = Log()
    certain = knowing(log)
    asked: list[tuple[Entry, bool]] = []
    stored: list[tuple[Verdict, bool]] = []
    passed_on: set[bytes] = set()

    def pass_on(entry: Entry) -> None:
        assert entry.key not in passed_on and passed_on.issuperset(entry.parent_keys)
        passed_on.add(entry.key)

    def store() -> None:
        entry, was_foreseen = asked.pop(0)
        verdict = log.insert(entry)
        assert verdict.is_new or not was_foreseen
        if verdict.is_new:
            certain.on_commit([entry])
        stored.append((verdict, was_foreseen))

    def decide() -> None:
        verdict, was_foreseen = stored.pop(0)
        if verdict.is_new and not was_foreseen:
            assert verdict.entry is not None
            pass_on(verdict.entry)
        certain.on_decided(verdict)

    for entry in order:
        was_foreseen = certain.foresees(entry)
        if was_foreseen:
            pass_on(entry)
        asked.append((entry, was_foreseen))
        for step in (steps.pop(), steps.pop()):
            if step == "store" and asked:
                store()
            elif step == "decide" and stored:
                decide()
    while asked:
        store()
    while stored:
        decide()
    assert passed_on == set(log.state.answer(ReadLeaves([entry.key for entry in order])))
    assert certain._heads == set(log.state.answer(ReadHeads()))
    assert not certain._waiting and not certain._foreseen
