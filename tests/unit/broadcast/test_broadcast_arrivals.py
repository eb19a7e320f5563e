"""An entry that is being inserted, and that something else stores first: it goes to nobody who brought it, and to nobody twice."""

import pytest
from broadcast_support import ALICE, BOB, Harness, chain

from gossiplog.broadcast.actions import EntriesAppended, EntryDecided, EntryForeseen, InsertEntry
from gossiplog.broadcast.events import Disconnected, PeerKind
from gossiplog.broadcast.pending import ARRIVALS_MAX, SOURCES_MAX, Arrival, PendingInserts
from gossiplog.entry.message import Entry
from gossiplog.entry.validation import Outcome, Rule, Verdict
from gossiplog.sync.result import Ending, SyncResult

KNOWN, NEW, FULL = "known", "new", "full"


@pytest.fixture
def hub() -> Harness:
    """A hub with clients, one of which it syncs with, whose insertions the tests answer."""
    node = Harness()
    for client in ("a", "b", "source"):
        node.connect(client, PeerKind.CLIENT)
    return node


def inserting(node: Harness) -> InsertEntry:
    (action,) = node.of(InsertEntry)
    return action


def decide(node: Harness, insert: InsertEntry, entry: Entry, what: str) -> dict[str, list[object]]:
    verdicts = {
        KNOWN: Verdict(Outcome.ACCEPT, entry=entry),
        NEW: Verdict(Outcome.ACCEPT, entry=entry, is_new=True),
        FULL: Verdict(Outcome.IGNORE, Rule.STORAGE, "the disk is full", entry),
    }
    node.tell(EntryDecided(insert, verdicts[what]))
    return node.pushed()


def sync(node: Harness, *entries: Entry) -> dict[str, list[object]]:
    """A sync has brought these."""
    result = SyncResult(ending=Ending.COMPLETE)
    for entry in entries:
        node.log.insert(entry)
        result.note_stored(Verdict(Outcome.ACCEPT, entry=entry, is_new=True))
    node.holds = False
    node.finish("source", result)
    return node.pushed()


@pytest.mark.parametrize("is_early", [False, True])
def test_retried_orphan_that_was_passed_on_is_not_pushed_again_when_a_sync_stored_it_first(hub: Harness, is_early: bool) -> None:
    parent, child = chain(2)
    hub.push("a", child)
    hub.log.insert(parent)
    hub.holds = True
    hub.tell(EntriesAppended([parent]))
    insert = inserting(hub)
    hub.tell(EntryForeseen(insert, child))
    assert hub.pushed() == {"b": [child.key], "source": [child.key]}
    if is_early:
        assert decide(hub, insert, child, KNOWN) == {}
    # Whom its push did not reach hears of it by our heads.
    assert sync(hub, child) == {"a": [[child.key]], "b": [[child.key]]}
    if not is_early:
        assert decide(hub, insert, child, KNOWN) == {}


@pytest.mark.parametrize("is_early", [False, True])
def test_entry_that_a_sync_stored_first_goes_to_nobody_who_pushed_it(hub: Harness, is_early: bool) -> None:
    first, second = chain(2)
    hub.holds = True
    hub.push("a", first)
    insert = inserting(hub)
    if is_early:
        assert decide(hub, insert, first, KNOWN) == {}
    assert sync(hub, first, second) == {"a": [second.key], "b": [first.key, second.key]}
    if not is_early:
        assert decide(hub, insert, first, KNOWN) == {}


def test_entry_that_is_posted_to_us_while_it_is_inserted_is_passed_on_once(hub: Harness) -> None:
    first, second = chain(1)[0], chain(1, signer=ALICE)[0]
    hub.holds = True
    hub.push("a", first)
    hub.tell(EntryForeseen(inserting(hub), first))
    hub.push("b", second)
    hub.holds = False
    hub.log.insert(first)
    hub.tell(EntriesAppended([first]))
    assert hub.pushed() == {peer: [[first.key]] for peer in ("a", "b", "source")}
    hub.tell(EntriesAppended([second]))
    assert hub.pushed() == {"a": [second.key], "source": [second.key]}


@pytest.mark.parametrize("by_sync", [False, True])
def test_entry_that_was_passed_on_and_not_stored_is_told_by_our_heads_once_it_is(hub: Harness, by_sync: bool) -> None:
    (entry,) = chain(1)
    hub.holds = True
    hub.push("a", entry)
    insert = inserting(hub)
    hub.tell(EntryForeseen(insert, entry))
    assert hub.pushed() == {"b": [entry.key], "source": [entry.key]}
    assert decide(hub, insert, entry, FULL) == {}
    if by_sync:
        # Peers that have it start nothing.
        assert sync(hub, entry) == {"a": [[entry.key]], "b": [[entry.key]]}
        return
    hub.push("b", entry)
    insert = inserting(hub)
    hub.log.insert(entry)
    hub.holds = False
    # Both others brought it.
    assert decide(hub, insert, entry, NEW) == {"source": [[entry.key]]}


def test_arrivals_are_bounded_and_so_are_their_sources() -> None:
    pending = PendingInserts(lambda action: None)
    entry = chain(1, signer=BOB)[0]
    for number in range(2 * SOURCES_MAX):
        pending.insert(InsertEntry(0, entry.key, entry.value, f"p{number}"))
    assert pending.take_arrival(entry.key) == Arrival({f"p{number}": 0 for number in range(SOURCES_MAX)})
    assert pending.take_arrival(entry.key) is None
    for number in range(ARRIVALS_MAX + 10):
        pending.insert(InsertEntry(0, number.to_bytes(20, "big"), b"", "p"))
    assert pending.arrivals == ARRIVALS_MAX and pending.take_arrival(bytes(20)) is None


def test_stream_that_was_opened_between_passing_on_and_storing_is_told_our_heads_again(hub: Harness) -> None:
    (entry,) = chain(1)
    hub.holds = True
    hub.push("a", entry)
    insert = inserting(hub)
    hub.tell(EntryForeseen(insert, entry))
    hub.holds = False
    hub.connect("late", PeerKind.CLIENT)
    assert hub.pushed() == {"late": [[]]}
    hub.log.insert(entry)
    assert decide(hub, insert, entry, NEW) == {"late": [[entry.key]]}


def test_orphan_goes_to_nobody_who_brought_it_when_it_is_tried_again(hub: Harness) -> None:
    parent, child = chain(2)
    hub.push("a", child)
    hub.push("b", child)
    hub.log.insert(parent)
    hub.tell(EntriesAppended([parent]))
    assert hub.pushed() == {"a": [parent.key], "b": [parent.key], "source": [parent.key, child.key]}


@pytest.mark.parametrize("way", ["orphan", "in the queue", "pushed again", "by a sync"])
def test_who_crashed_and_came_back_since_it_brought_an_entry_is_sent_it(hub: Harness, way: str) -> None:
    """It may have passed the entry on before it stored it, and its stream began with heads of ours that lack the entry."""
    parent, entry = chain(2)
    hub.holds = way != "orphan"
    hub.push("a", entry)
    insert = None if way == "orphan" else inserting(hub)
    hub.tell(Disconnected("a"))
    hub.holds = False
    hub.connect("a", PeerKind.CLIENT)
    hub.holds = way != "orphan"
    if way == "pushed again":
        hub.push("a", entry)
    hub.log.insert(parent)
    if way == "orphan":
        hub.tell(EntriesAppended([parent]))
        assert hub.pushed() == {peer: [parent.key, entry.key] for peer in ("a", "b", "source")}
    elif way == "by a sync":
        assert sync(hub, entry) == {"a": [entry.key], "b": [entry.key]}
    else:
        rest = {} if way == "pushed again" else {"a": [entry.key]}
        assert decide(hub, insert, entry, NEW) == {"b": [entry.key], "source": [entry.key], **rest}
