import pytest
from broadcast_support import BOB, FRUITFUL, TOPIC, Harness, chain, forged, insert_of, message_of

from gossiplog.broadcast.actions import EntriesAppended, EntryDecided, InsertEntry
from gossiplog.broadcast.events import Disconnected, PeerKind
from gossiplog.broadcast.orphans import ORPHANS_BYTES_MAX, ORPHANS_MAX, PEER_BYTES_MAX, PEER_ORPHANS_MAX
from gossiplog.codec import pcf
from gossiplog.entry.message import Entry
from gossiplog.entry.signing import sign_entry
from gossiplog.entry.validation import Outcome, Verdict
from gossiplog.log.access import AccessRule
from gossiplog.log.requests import Quarantined, WriteQuarantine
from gossiplog.plan import ask
from gossiplog.pubsub.actions import SendRpc
from gossiplog.pubsub.events import RpcReceived
from gossiplog.pubsub.rpc import Rpc
from gossiplog.sync.result import Ending, SyncResult


def harness(*peers: str) -> Harness:
    """Peers that speak pubsub alone: no sync with them brings anything."""
    made = Harness()
    for peer in peers:
        made.connect(peer, push=False)
    return made


def has(node: Harness, *entries: Entry) -> bool:
    return all(node.log.insert(entry).accepted and not node.log.insert(entry).is_new for entry in entries)


def held(node: Harness) -> int:
    return node.sizes()["orphans"]


def orphan(name: object, clock: int = 2, *, parents: tuple[bytes, ...] = (b"\1" + bytes(19),), filler: int = 0) -> Entry:
    return sign_entry(BOB, TOPIC, clock, list(parents), pcf.encode([name, bytes(filler)]))


def test_child_published_before_its_parent_is_taken_and_forwarded_when_that_comes():
    node = harness("a", "b")
    parent, child = chain(2)
    node.receive("a", child)
    assert node.forwarded_to() == [] and held(node) == 1
    node.receive("a", parent)
    assert has(node, parent, child) and held(node) == 0
    sent = [message for action in node.of(SendRpc) if "b" in action.peers for message in action.rpc.messages]
    assert sent == [message_of(insert_of(parent)), message_of(insert_of(child))]


def test_whole_chain_published_backwards_is_taken():
    node = harness("a")
    entries = chain(20)
    for entry in reversed(entries):
        node.receive("a", entry)
    assert has(node, *entries) and held(node) == 0
    assert node.sizes()["offenders"] == 0


def test_pushed_child_is_taken_when_a_peer_of_the_mesh_brings_its_parent():
    node = harness("a", "b")
    node.connect("client", PeerKind.CLIENT)
    parent, child = chain(2)
    node.push("client", child)
    node.receive("a", parent)
    assert has(node, parent, child)
    assert node.forwarded_to() == ["a", "b", "b"]


def test_child_whose_publisher_has_left_is_taken_when_its_parent_comes():
    node = harness("a", "b")
    parent, child = chain(2)
    node.receive("a", child)
    node.tell(Disconnected("a"))
    node.receive("b", parent)
    assert has(node, parent, child)


def test_child_is_taken_when_a_sync_with_somebody_else_brings_its_parent():
    node = harness("a")
    node.connect("b")
    parent, child = chain(2)
    node.receive("a", child)
    node.announce("b", parent.key)
    node.log.insert(parent)
    node.finish("b", FRUITFUL)
    assert has(node, parent, child) and held(node) == 0


def test_child_is_taken_when_its_parent_is_posted_to_us():
    node = harness("a")
    parent, child = chain(2)
    node.receive("a", child)
    node.log.insert(parent)
    node.tell(EntriesAppended([parent]))
    assert has(node, child) and held(node) == 0


def test_child_and_parent_of_one_burst_need_no_sync():
    node = harness("a", "b")
    node.holds = True
    parent, child = chain(2)
    first, second = node.tell(RpcReceived("a", Rpc((message_of(insert_of(child)), message_of(insert_of(parent))))))
    node.holds = False
    node.tell(EntryDecided(first, node.log.take(first.key, first.value)))
    assert node.actions == []
    node.tell(EntryDecided(second, node.log.take(second.key, second.value)))
    assert node.started() == []
    assert has(node, parent, child)


def test_parent_that_is_stored_while_the_child_is_judged_is_found():
    node = harness("a", "b")
    node.holds = True
    parent, child = chain(2)
    (insert,) = node.receive("a", child)
    verdict = node.log.take(insert.key, insert.value)
    node.log.insert(parent)
    node.holds = False
    node.tell(EntryDecided(insert, verdict))
    assert node.started() == []
    assert has(node, child)


@pytest.mark.parametrize("is_forged", [True, False])
def test_sync_is_wanted_when_what_came_under_the_parents_key_was_not_the_parent(is_forged):
    node = harness("a", "b")
    node.holds = True
    parent, child = chain(2)
    (first,) = node.receive("a", child)
    wrong = Entry(parent.key, forged(parent).value if is_forged else chain(1, start="other")[0].value)
    (second,) = node.receive("b", insert_of(wrong))
    node.holds = False
    node.tell(EntryDecided(first, node.log.take(first.key, first.value)))
    assert node.started() == []
    node.tell(EntryDecided(second, node.log.take(second.key, second.value)))
    assert node.started() == ["a"]
    node.receive("a", parent)
    assert has(node, child)


@pytest.mark.parametrize("is_synced", [False, True])
@pytest.mark.parametrize("is_quarantined", [False, True])
def test_no_orphan_waits_for_what_is_out_for_good(is_quarantined, is_synced):
    """Its parent came later than itself, and was refused, as a message or in a sync that brought nothing else."""
    node = harness("a", "b")
    parent, child, grandchild = chain(3)
    node.receive("a", grandchild)
    node.receive("a", child)
    assert held(node) == 2
    if is_quarantined:
        node.log.run(ask(WriteQuarantine([Quarantined(parent.key, parent.value, "damaged", "", 0.0)], [])))
    else:
        node.log.rule = AccessRule(lambda message, did: message.clock != 1, asks_past=False)
    if is_synced:
        node.log.insert(parent)
        node.finish("a", SyncResult(ending=Ending.COMPLETE, quarantined=1))
    else:
        node.receive("b", parent)
    assert held(node) == 0 and not has(node, child) and not has(node, grandchild)
    assert node.sizes()["offenders"] == 0 and node.forwarded_to() == []


def test_child_of_several_is_tried_once_when_the_last_of_them_comes():
    node = harness("a")
    parents = [chain(1, start=f"start {number}")[0] for number in range(5)]
    child = orphan("merge", parents=tuple(sorted(entry.key for entry in parents)))
    node.receive("a", child)
    tried = []
    node.verdict, judge = lambda action: (tried.append(action.key), judge(action))[1], node.verdict
    for parent in parents:
        assert child.key not in tried
        node.receive("a", parent)
    assert tried.count(child.key) == 1
    assert has(node, child)


def test_orphan_that_our_disk_refuses_when_it_is_tried_again_is_synced_for():
    node = harness("a")
    node.connect("b")
    parent, child = chain(2)
    node.receive("b", child)
    node.finish("b")
    node.holds = True
    (insert,) = node.receive("a", parent)
    actions = node.tell(EntryDecided(insert, node.log.take(insert.key, insert.value)))
    (again,) = (action for action in actions if type(action) is InsertEntry)
    node.holds = False
    node.tell(EntryDecided(again, Verdict(Outcome.IGNORE, "storage", "disk full", child)))
    assert node.started() == ["b"] and held(node) == 0


def test_orphans_of_one_peer_are_bounded_and_each_is_synced_for():
    node = harness("a")
    for number in range(PEER_ORPHANS_MAX + 10):
        node.receive("a", orphan(number))
    assert held(node) == PEER_ORPHANS_MAX
    for number in range(20):
        node.receive("a", orphan(number, filler=50_000))
    assert node.sizes()["orphan_bytes"] <= PEER_BYTES_MAX
    before = held(node)
    node.receive("a", orphan("large", filler=PEER_BYTES_MAX))
    assert held(node) == before
    assert node.sizes()["keys_per_peer"] > PEER_ORPHANS_MAX


def test_many_names_of_parents_count_as_much_as_many_bytes():
    node = harness("a")
    names = tuple(b"\1" + number.to_bytes(19) for number in range(1_000))
    for number in range(10):
        node.receive("a", orphan(number, parents=names))
    assert held(node) == 1


def test_crowd_of_orphans_does_not_push_out_the_only_one_of_somebody_else():
    node = harness("honest", *(f"p{number}" for number in range(10)))
    parent, child = chain(2)
    node.receive("honest", child)
    for number in range(10):
        for filler in (0, 40_000):
            for count in range(PEER_ORPHANS_MAX):
                node.receive(f"p{number}", orphan([number, count], filler=filler))
                assert held(node) <= ORPHANS_MAX and node.sizes()["orphan_bytes"] <= ORPHANS_BYTES_MAX
    node.receive("p1", parent)
    assert has(node, child)


def test_orphans_that_are_being_tried_again_count_as_kept():
    node = harness("a", "b", "c", "d", "e")
    parent = chain(1)[0]
    for number in range(ORPHANS_MAX):
        node.receive("abcd"[number % 4], orphan(number, parents=(parent.key,)))
    assert held(node) == ORPHANS_MAX
    node.holds = True
    (insert,) = node.receive("e", parent)
    again = node.tell(EntryDecided(insert, node.log.take(insert.key, insert.value)))
    again = [action for action in again if type(action) is InsertEntry]
    assert len(again) == ORPHANS_MAX == held(node)
    (late,) = [action for action in node.receive("e", orphan("late")) if type(action) is InsertEntry]
    node.tell(EntryDecided(late, node.log.take(late.key, late.value)))
    assert held(node) == ORPHANS_MAX
    node.holds = False
    for action in again:
        node.tell(EntryDecided(action, node.log.take(action.key, action.value)))
    assert held(node) == 0
