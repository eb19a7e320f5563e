import pytest
from broadcast_support import BOB, FRUITFUL, TOPIC, Harness, Log, chain, forged, insert_of

from gossiplog.broadcast.actions import ClosePush, EntriesAppended, EntryDecided, OpenPush
from gossiplog.broadcast.events import Connected, Disconnected, PeerKind, PushClosed, PushDropped, PushOpened, SyncServed
from gossiplog.codec.clock import encode_clock
from gossiplog.entry.signing import sign_entry
from gossiplog.entry.validation import Outcome, Verdict
from gossiplog.log.requests import ReadHeads
from gossiplog.plan import ask
from gossiplog.sync.result import BROUGHT_BYTES_MAX, BROUGHT_MAX, Ending, SyncResult
from gossiplog.sync.rpc import HEADS_MAX

TIMER = "broadcast.push"
AGAIN_TIMER = "broadcast.heads"


def test_heads_are_pushed_on_every_new_connection():
    node = Harness()
    entry = node.append()
    for kind in PeerKind:
        node.connect(kind.value, kind)
        assert node.pushed() == {kind.value: [[entry.key]]}


def test_heads_of_an_empty_log_are_pushed_as_an_empty_update():
    node = Harness()
    node.connect("a")
    assert node.pushed() == {"a": [[]]}


def test_nothing_is_pushed_before_the_stream_stands():
    node = Harness()
    node.connect("browser", PeerKind.CLIENT, push=False)
    node.append()
    assert node.pushed() == {}


def test_whoever_dialled_opens_the_push_stream_and_never_to_a_websocket_client():
    node = Harness()
    opened = []
    for kind in PeerKind:
        for outbound in (True, False):
            for has_push in (True, False):
                peer = f"{kind.value} {outbound} {has_push}"
                if node.tell(Connected(peer, kind, outbound, has_push=has_push)):
                    opened += [action.peer for action in node.of(OpenPush)]
    assert opened == ["mesh True True", "hub True True", "hub False True"]


def test_new_peer_of_the_mesh_is_told_our_heads_once_more_when_it_has_settled():
    node = Harness()
    node.connect("a")
    entry = node.append()
    node.wait(TIMER)
    assert (node.now, node.pushed()) == (3.0, {"a": [[entry.key]]})
    assert TIMER not in node.timers


def test_new_peer_is_told_nothing_more_when_nothing_was_published_meanwhile():
    node = Harness()
    node.append()
    node.connect("a")
    node.wait(TIMER)
    assert node.pushed() == {}


def test_websocket_client_needs_no_second_update_for_it_was_sent_everything():
    node = Harness()
    node.connect("browser", PeerKind.CLIENT)
    node.append()
    assert TIMER not in node.timers


def test_router_is_handed_entries_for_a_mesh_and_for_nobody_else():
    node = Harness()
    node.connect("browser", PeerKind.CLIENT)
    node.append()
    assert node.machine.state().router.sizes["seen"] == 0
    node.connect("a")
    node.append()
    assert node.machine.state().router.sizes["seen"] == 1


def test_peer_whose_stream_closed_before_it_settled_is_told_when_it_opens_again():
    node = Harness()
    node.connect("a")
    entry = node.append()
    node.tell(PushClosed("a"))
    node.wait(TIMER)
    assert node.pushed() == {}
    node.tell(PushOpened("a"))
    assert node.pushed() == {"a": [[entry.key]]}


def test_heads_are_told_again_after_a_change_and_less_and_less_often():
    node = Harness()
    for peer, kind in (("a", PeerKind.MESH), ("browser", PeerKind.CLIENT), ("hub", PeerKind.HUB)):
        node.connect(peer, kind)
    entry = node.append()
    told = {peer: [[entry.key]] for peer in ("a", "browser", "hub")}
    last, waits = 0.0, []
    for _ in range(9):
        node.wait(AGAIN_TIMER)
        assert node.pushed() == told
        waits.append(node.now - last)
        last = node.now
    assert waits[0] == 15.0
    for wait, shortest in zip(waits[1:], (30, 60, 120, 240, 300, 300, 300, 300), strict=True):
        assert shortest <= wait <= 1.25 * shortest
    node.append()
    assert node.timers[AGAIN_TIMER] == node.now + 15.0
    node.now += 10.0
    node.append()
    assert node.timers[AGAIN_TIMER] == node.now + 5.0


def test_nobody_is_told_again_when_nobody_is_there():
    node = Harness()
    node.append()
    node.wait(AGAIN_TIMER)
    assert node.pushed() == {} and AGAIN_TIMER not in node.timers


def test_peer_that_pulled_from_an_older_state_is_told_our_heads_a_second_later():
    node = Harness()
    node.connect("browser", PeerKind.CLIENT)
    entry = node.append()
    node.tell(SyncServed("browser"))
    node.tell(SyncServed("nobody"))
    node.wait(TIMER)
    assert (node.now, node.pushed()) == (1.0, {"browser": [[entry.key]]})


def test_update_has_a_thousand_heads_the_highest_among_them_and_each_other_one_now_and_then():
    node = Harness()
    keys = [node.log.insert(Log().append(number)).entry.key for number in range(1_100)]
    told = set()
    for number in range(20):
        node.connect(f"peer-{number}")
        ((heads,),) = node.pushed().values()
        assert len(heads) == 1_000 and heads == sorted(set(heads)) and heads[500:] == sorted(keys)[-500:]
        told.update(heads)
    assert told == set(keys)


def test_hub_pushes_its_own_appends_to_its_clients():
    node = Harness()
    node.connect("one", PeerKind.CLIENT)
    node.connect("two", PeerKind.CLIENT)
    entry = node.append()
    assert node.pushed() == {"one": [entry.key], "two": [entry.key]}


def test_hub_pushes_entries_from_pubsub_to_its_clients():
    node = Harness()
    node.connect("a")
    node.connect("browser", PeerKind.CLIENT)
    (entry,) = chain(1)
    node.receive("a", entry)
    assert node.pushed() == {"browser": [entry.key]}


def test_hub_pushes_what_a_client_pushed_to_the_others_and_publishes_it():
    node = Harness()
    node.connect("a")
    for browser in ("one", "two", "three"):
        node.connect(browser, PeerKind.CLIENT)
    (entry,) = chain(1)
    node.push("two", entry)
    assert node.pushed() == {"one": [entry.key], "three": [entry.key]}
    assert node.forwarded_to() == ["a"]


def test_hub_pushes_nothing_that_it_had_already():
    node = Harness()
    node.connect("a")
    node.connect("one", PeerKind.CLIENT)
    node.connect("two", PeerKind.CLIENT)
    (entry,) = chain(1)
    node.push("one", entry)
    node.push("two", entry)
    assert node.pushed() == {} and node.forwarded_to() == []
    node.receive("a", entry)
    assert node.pushed() == {}


def test_client_of_hubs_pushes_to_each_what_it_appended_and_what_others_brought():
    node = Harness()
    node.connect("hub", PeerKind.HUB)
    node.connect("other hub", PeerKind.HUB)
    mine = node.append()
    assert node.pushed() == {"hub": [mine.key], "other hub": [mine.key]}
    (theirs,) = chain(1)
    node.push("hub", theirs)
    assert node.pushed() == {"other hub": [theirs.key]}


def test_sync_that_brought_entries_is_told_to_all_but_its_source():
    node = Harness()
    for peer, kind in (("a", PeerKind.MESH), ("b", PeerKind.MESH), ("browser", PeerKind.CLIENT), ("hub", PeerKind.HUB)):
        node.connect(peer, kind)
    node.connect("deaf", push=False)
    (entry,) = chain(1)
    node.announce("a", entry.key)
    node.log.insert(entry)
    node.finish("a", FRUITFUL)
    assert node.pushed() == {"b": [[entry.key]], "browser": [[entry.key]], "hub": [[entry.key]]}
    assert node.forwarded_to() == []


@pytest.mark.parametrize(("count", "size"), [(1, 10), (BROUGHT_MAX, 10), (BROUGHT_MAX + 1, 10), (2, BROUGHT_BYTES_MAX // 2 + 1)])
def test_what_a_sync_brought_is_pushed_if_it_is_little_so_that_clients_need_not_sync_for_it(count: int, size: int) -> None:
    is_little = count * size <= BROUGHT_BYTES_MAX and count <= BROUGHT_MAX
    node = Harness()
    node.connect("source", PeerKind.CLIENT)
    node.connect("browser", PeerKind.CLIENT)
    node.connect("hub", PeerKind.HUB)
    node.connect("mesh")
    result = SyncResult(ending=Ending.COMPLETE)
    for entry in chain(count, start="x" * size):
        node.log.insert(entry)
        result.note_stored(Verdict(Outcome.ACCEPT, entry=entry, is_new=True))
    heads = node.log.run(ask(ReadHeads(HEADS_MAX)))
    brought = [entry.key for entry in chain(count, start="x" * size)]
    assert result.entries == count
    node.finish("source", result)
    if is_little:
        assert node.pushed() == {"browser": brought, "hub": brought, "mesh": [heads]}
    else:
        assert node.pushed() == {"browser": [heads], "hub": [heads], "mesh": [heads]}


def test_entry_too_large_for_pubsub_is_told_to_the_mesh_by_our_heads_and_pushed_to_websocket_peers():
    node = Harness()
    for peer, kind in (("a", PeerKind.MESH), ("b", PeerKind.MESH), ("browser", PeerKind.CLIENT), ("hub", PeerKind.HUB)):
        node.connect(peer, kind)
    mine = node.append("x" * 65_200)
    assert node.pushed() == {"a": [[mine.key]], "b": [[mine.key]], "browser": [mine.key], "hub": [mine.key]}
    assert node.forwarded_to() == []
    theirs = Log().append("y" * 65_200, BOB)
    node.receive("a", theirs)
    heads = sorted([mine.key, theirs.key])
    assert node.pushed() == {"b": [heads], "browser": [theirs.key], "hub": [theirs.key]}
    assert node.forwarded_to() == []


def test_entry_too_large_for_a_push_is_told_by_our_heads():
    node = Harness()
    node.connect("browser", PeerKind.CLIENT)
    mine = node.log.insert(sign_entry(BOB, TOPIC, 1, [], b"\x5a" + (4_194_130).to_bytes(4, "big") + bytes(4_194_130))).entry
    node.tell(EntriesAppended([mine]))
    assert 4_194_272 < len(mine.value) <= 4_194_294
    assert node.pushed() == {"browser": [[mine.key]]}


def test_sync_that_brought_nothing_is_told_to_nobody():
    node = Harness()
    node.connect("a")
    node.connect("b")
    node.announce("a", chain(1)[0].key)
    node.finish("a")
    assert node.pushed() == {}


def test_sync_that_ended_after_its_source_left_is_told_to_the_others():
    node = Harness()
    node.connect("a")
    node.connect("b")
    (entry,) = chain(1)
    node.announce("a", entry.key)
    node.tell(Disconnected("a"))
    node.log.insert(entry)
    node.finish("a", FRUITFUL)
    assert node.pushed() == {"b": [[entry.key]]}


def test_heads_are_read_once_for_those_who_wait_and_again_for_those_who_came_later():
    node = Harness()
    node.connect("a", push=False)
    node.connect("b", push=False)
    node.connect("c", push=False)
    node.holds = True
    first = node.tell(PushOpened("a"))[0]
    assert node.tell(PushOpened("b")) == [] and node.tell(PushOpened("c")) == []
    node.tell(Disconnected("c"))
    push, second = node.answer(first)
    assert push.peers == ("a",)
    (push,) = node.answer(second)
    assert push.peers == ("b",)


def test_heads_that_nobody_waits_for_any_more_are_not_pushed():
    node = Harness()
    node.connect("a", push=False)
    node.holds = True
    question = node.tell(PushOpened("a"))[0]
    node.tell(PushClosed("a"))
    assert node.answer(question) == []


def test_pushed_orphan_starts_sync_with_its_sender():
    node = Harness()
    node.connect("browser", PeerKind.CLIENT)
    node.connect("other", PeerKind.CLIENT)
    node.push("browser", chain(2)[1])
    assert node.started() == ["browser"] and node.pushed() == {}


def test_malformed_push_closes_the_stream_and_counts():
    node = Harness()
    node.connect("a")
    node.push("a", b"\xff")
    assert [action.peer for action in node.of(ClosePush)] == ["a"]
    assert node.sizes()["offenders"] == 1


def test_rejected_push_counts_and_is_pushed_to_nobody():
    node = Harness()
    node.connect("one", PeerKind.CLIENT)
    node.connect("two", PeerKind.CLIENT)
    node.push("one", forged(chain(1)[0]))
    assert node.actions == [] and node.sizes()["offenders"] == 1


def test_pushes_that_come_faster_than_they_are_inserted_become_a_sync():
    node = Harness()
    node.connect("a")
    node.holds = True
    entries = chain(70)
    inserts = [action for entry in entries for action in node.push("a", entry)]
    assert len([action for action in inserts if hasattr(action, "value")]) == 64
    assert node.sizes()["pushed_per_peer"] == 64
    node.holds = False
    question = next(action for action in inserts if hasattr(action, "plan"))
    assert [action.peer for action in node.answer(question)] == ["a"]
    for insert in inserts[:64]:
        node.tell(EntryDecided(insert, node.log.take(insert.key, insert.value)))
    assert node.sizes()["pushed_per_peer"] == 0


def test_verdicts_on_pushes_of_an_earlier_connection_do_not_count_for_the_next():
    node = Harness()
    node.connect("a")
    node.holds = True
    (insert,) = node.push("a", chain(1)[0])
    node.tell(Disconnected("a"))
    node.connect("a")
    node.tell(EntryDecided(insert, node.log.take(insert.key, insert.value)))
    assert node.sizes()["pushed_per_peer"] == 0


def test_dropped_push_is_made_good_by_an_update_a_second_later():
    node = Harness()
    node.connect("browser", PeerKind.CLIENT)
    node.connect("other", PeerKind.CLIENT)
    entry = node.append()
    node.tell(PushDropped("browser"))
    assert node.tell(PushDropped("browser")) == []
    node.wait(TIMER)
    assert node.now == 1.0
    assert node.pushed() == {"browser": [[entry.key]]}


def test_push_stream_that_ended_is_opened_again_later_and_later():
    node = Harness()
    node.connect("hub", PeerKind.HUB)
    waits = []
    for _ in range(4):
        node.tell(PushClosed("hub"))
        waits.append(node.timers[TIMER] - node.now)
        assert node.tell(PushClosed("hub")) == []
        node.wait(TIMER)
        assert [action.peer for action in node.of(OpenPush)] == ["hub"]
    assert waits == sorted(waits) and 1 <= waits[0] <= 1.25 and waits[3] >= 8


def test_push_stream_that_the_peer_opens_is_left_to_the_peer():
    node = Harness()
    node.connect("browser", PeerKind.CLIENT)
    assert node.tell(PushClosed("browser")) == []
    node.append()
    assert node.pushed() == {}
    node.tell(PushOpened("browser"))
    assert len(node.pushed()["browser"]) == 1


def test_push_stream_that_stands_again_is_not_opened_again():
    node = Harness()
    node.connect("hub", PeerKind.HUB)
    node.connect("other", PeerKind.HUB)
    node.tell(PushClosed("hub"))
    node.tell(PushOpened("hub"))
    node.wait(TIMER)
    assert node.actions == []


def test_later_of_two_push_timers_is_set_after_the_earlier_fired():
    node = Harness()
    node.connect("hub", PeerKind.HUB)
    node.tell(PushClosed("hub"))
    node.connect("browser", PeerKind.CLIENT)
    node.tell(PushDropped("browser"))
    node.wait(TIMER)
    assert node.now == 1.0 and node.pushed().keys() == {"browser"}
    node.wait(TIMER)
    assert [action.peer for action in node.of(OpenPush)] == ["hub"]


def test_events_of_streams_of_strangers_change_nothing():
    node = Harness()
    for event in (PushOpened("x"), PushClosed("x"), PushDropped("x")):
        assert node.tell(event) == []


def test_insert_of_an_entry_with_a_huge_clock_is_only_an_orphan():
    node = Harness()
    node.connect("a")
    far = (encode_clock(2**53 - 2) + bytes(20))[:20]

    entry = sign_entry(BOB, TOPIC, 2**53 - 1, [far], b"\x01")
    node.push("a", insert_of(entry))
    assert node.started() == ["a"]
