import pytest
from broadcast_support import BOB, COMPLETE, FRUITFUL, TOPIC, Harness, chain, forged, insert_of, message_of

from gossiplog.broadcast import offences as offences_module
from gossiplog.broadcast.actions import Ban, EntryDecided
from gossiplog.broadcast.events import Connected, Disconnected, PeerKind, PushReceived, SyncFinished
from gossiplog.broadcast.offences import Offences, RejectedIds
from gossiplog.broadcast.orphans import MESSAGES_MAX
from gossiplog.broadcast.wanted_syncs import DEFER_S
from gossiplog.codec import pcf
from gossiplog.entry.signing import sign_entry
from gossiplog.entry.validation import Outcome, Rule, Verdict
from gossiplog.log.requests import Quarantined, WriteQuarantine
from gossiplog.pubsub.events import RpcReceived
from gossiplog.pubsub.params import FloodsubParams
from gossiplog.pubsub.rpc import Rpc
from gossiplog.sync.result import Ending, SyncResult
from gossiplog.sync.rpc import Update
from gossiplog.sync.wire import encode_event

FIRST, SECOND, THIRD = (chain(1, start=name)[0] for name in ("first", "second", "third"))
INVENTED = [bytes([1]) + bytes([number // 256, number % 256]) + bytes(17) for number in range(5_000)]


def harness(*peers: str) -> Harness:
    made = Harness()
    for peer in peers:
        made.connect(peer)
    return made


def test_update_with_a_missing_head_starts_sync_with_its_sender():
    node = harness("a", "b")
    mine = node.append()
    node.announce("a", mine.key, FIRST.key)
    assert node.started() == ["a"]


def test_update_without_missing_heads_starts_nothing():
    node = harness("a")
    mine = node.append()
    node.announce("a", mine.key)
    assert node.actions == []
    node.announce("a")
    assert node.actions == []


def test_update_of_a_rejected_entry_starts_nothing():
    node = harness("a", "b")
    bad = forged(FIRST)
    node.receive("a", bad)
    node.announce("b", bad.key)
    assert node.actions == []


def test_entries_that_a_sync_found_invalid_are_remembered():
    node = harness("a", "b")
    node.announce("a", FIRST.key)
    node.finish("a", SyncResult(ending=Ending.COMPLETE, rejected=1, rejected_keys=(FIRST.key,)))
    node.announce("b", FIRST.key)
    assert node.actions == []


def test_second_peer_that_announces_the_same_head_waits_for_the_first_sync():
    node = harness("a", "b")
    node.announce("a", FIRST.key)
    node.announce("b", FIRST.key)
    assert node.started() == []
    node.log.insert(FIRST)
    node.finish("a", FRUITFUL)
    assert node.started() == []


def test_second_peer_is_synced_with_when_the_first_did_not_bring_the_head():
    node = harness("a", "b")
    node.announce("a", FIRST.key)
    node.announce("b", FIRST.key)
    node.finish("a")
    assert node.started() == ["b"]


def test_second_peer_is_synced_with_when_the_first_leaves():
    node = harness("a", "b")
    node.announce("a", FIRST.key)
    node.announce("b", FIRST.key)
    node.tell(Disconnected("a"))
    assert node.started() == ["b"]


def test_what_a_peer_named_before_it_left_is_asked_of_the_others_a_little_later():
    node = harness("a", "b", "c")
    node.connect("client", PeerKind.CLIENT)
    node.connect("stranger", push=False)
    node.announce("a", FIRST.key)
    node.tell(Disconnected("a"))
    assert node.started() == []
    node.wait("broadcast.sync")
    assert node.now == DEFER_S and node.started() == ["b", "c"]
    node.finish("b")
    assert node.started() == [] and node.sizes()["keys_per_peer"] == 0


def test_what_came_by_another_way_is_asked_of_nobody_after_its_source_left():
    node = harness("a", "b")
    node.announce("a", FIRST.key)
    node.tell(Disconnected("a"))
    node.receive("b", FIRST)
    node.wait("broadcast.sync")
    assert node.started() == []


def test_peer_that_announces_what_another_named_before_it_left_is_synced_with_at_once():
    node = harness("a", "b")
    node.announce("a", FIRST.key)
    node.tell(Disconnected("a"))
    node.announce("b", FIRST.key)
    assert node.started() == ["b"]


def test_nobody_is_asked_for_what_a_client_named_before_it_left():
    node = harness("a")
    node.connect("client", PeerKind.CLIENT)
    node.announce("client", FIRST.key)
    node.tell(Disconnected("client"))
    assert "broadcast.sync" not in node.timers and node.sizes()["keys_per_peer"] == 0


def test_what_our_disk_refused_after_its_source_left_is_asked_of_the_others():
    node = harness("a", "b")
    node.holds = True
    (insert,) = node.receive("a", FIRST)
    node.holds = False
    node.tell(Disconnected("a"))
    node.tell(EntryDecided(insert, Verdict(Outcome.IGNORE, Rule.STORAGE, "disk full", FIRST)))
    node.wait("broadcast.sync")
    assert node.started() == ["b"]


def test_peers_are_not_blamed_for_lacking_what_others_invented_and_left():
    node = harness("b")
    for number in range(10):
        node.connect("a")
        node.announce("a", INVENTED[number])
        node.tell(Disconnected("a"))
        node.wait("broadcast.sync")
        assert node.started() == ["b"]
        node.finish("b")
    node.announce("b", FIRST.key)
    assert node.started() == ["b"]


def test_second_peer_waits_no_longer_than_one_answer_may_take():
    node = harness("a", "b")
    node.announce("a", FIRST.key)
    node.announce("b", FIRST.key)
    node.announce("b", FIRST.key)
    node.wait("broadcast.sync")
    assert node.now == DEFER_S
    assert node.started() == ["b"]


def test_second_peer_is_synced_with_at_once_when_it_has_more():
    node = harness("a", "b")
    node.announce("a", FIRST.key)
    node.announce("b", FIRST.key, SECOND.key)
    assert node.started() == ["b"]


def test_peer_that_waits_for_two_syncs_waits_for_both():
    node = harness("a", "b", "c")
    node.announce("a", FIRST.key)
    node.announce("b", SECOND.key)
    node.announce("c", FIRST.key, SECOND.key)
    assert node.started() == []
    node.log.insert(FIRST)
    node.finish("a", FRUITFUL)
    assert node.started() == ["c"]


def test_peer_that_waits_goes_on_waiting_while_another_sync_covers_it():
    node = harness("a", "b", "c")
    node.announce("a", FIRST.key)
    node.announce("b", FIRST.key, SECOND.key)
    node.announce("c", SECOND.key)
    node.finish("a")
    assert node.started() == []
    node.finish("b")
    assert node.started() == ["c"]


def test_one_more_sync_is_pending_while_one_runs():
    node = harness("a")
    node.announce("a", FIRST.key)
    node.announce("a", SECOND.key)
    node.announce("a", THIRD.key)
    assert node.started() == []
    node.finish("a", FRUITFUL)
    assert node.started() == ["a"]
    node.finish("a", FRUITFUL)
    assert node.started() == []


def test_pending_sync_for_what_came_meanwhile_is_not_started():
    node = harness("a")
    node.announce("a", FIRST.key)
    node.announce("a", SECOND.key)
    node.log.insert(FIRST)
    node.log.insert(SECOND)
    node.finish("a", FRUITFUL)
    assert node.started() == []


def test_four_syncs_run_at_a_time():
    node = harness(*"abcdef")
    started = []
    for peer, key in zip("abcdef", INVENTED, strict=False):
        node.announce(peer, key)
        started += node.started()
    assert started == list("abcd")
    assert node.sizes()["syncs"] == 4
    node.finish("b", FRUITFUL)
    assert node.started() == ["e"]


def test_latest_update_is_looked_at_when_the_log_was_slow():
    node = harness("a")
    node.holds = True
    (question,) = node.announce("a", INVENTED[0])
    assert node.announce("a", INVENTED[1]) == []
    node.append()
    node.announce("a", FIRST.key)
    actions = node.answer(question)
    assert len(actions) == 2
    node.log.insert(FIRST)
    assert node.answer(actions[1]) == []


def test_answer_about_a_peer_that_has_left_is_of_no_interest():
    node = harness("a")
    node.holds = True
    (question,) = node.announce("a", FIRST.key)
    node.tell(Disconnected("a"))
    assert node.answer(question) == []
    assert node.sizes()["asked"] == 0


def test_three_fruitless_syncs_are_followed_by_a_wait():
    node = harness("a")
    for key in INVENTED[:3]:
        node.announce("a", key)
        assert node.started() == ["a"]
        node.finish("a")
    node.announce("a", INVENTED[3])
    assert node.started() == []
    node.wait("broadcast.sync")
    assert 1 <= node.now <= 1.25 and node.started() == ["a"]


def test_head_that_came_by_another_way_is_not_held_against_its_announcer():
    node = harness("a", "b")
    for number in range(5):
        (entry,) = chain(1, start=str(number))
        node.announce("a", entry.key)
        assert node.started() == ["a"]
        node.receive("b", entry)
        node.finish("a")
    node.announce("a", FIRST.key)
    assert node.started() == ["a"]


def test_head_in_our_quarantine_is_not_missing():
    node = harness("a")
    node.log.state.write(WriteQuarantine([Quarantined(FIRST.key, FIRST.value, "parents", "no", 0.0)], []))
    node.announce("a", FIRST.key)
    assert node.actions == []


def test_session_that_was_cut_off_is_taken_up_again_for_what_is_still_missing():
    node = harness("a")
    node.announce("a", FIRST.key, SECOND.key)
    node.log.insert(FIRST)
    node.finish("a", SyncResult(ending=Ending.ABORTED, entries=1))
    assert node.started() == ["a"]
    node.log.insert(SECOND)
    node.finish("a", SyncResult(ending=Ending.ABORTED, entries=1))
    assert node.started() == ["a"]
    node.finish("a", COMPLETE)
    assert node.started() == []


def test_result_of_a_sync_that_nobody_started_changes_nothing():
    node = harness("a", "b")
    assert node.finish("a") == []
    assert node.finish("x") == []


def test_late_result_of_an_earlier_connection_does_not_end_the_sync_of_the_next():
    node = harness("a", "b")
    node.announce("a", FIRST.key)
    late = node.sessions["a"]
    node.tell(Disconnected("a"))
    node.connect("a")
    node.announce("a", FIRST.key)
    assert node.started() == ["a"]
    node.tell(SyncFinished("a", FRUITFUL, late))
    assert node.sizes()["syncs"] == 1
    assert list(node.pushed()) == ["b"]
    node.finish("a", FRUITFUL)
    assert node.sizes()["syncs"] == 0


def test_peer_that_leaves_while_we_look_what_is_missing_is_not_synced_with():
    node = harness("a", "b")
    node.holds = True
    (question,) = node.announce("a", FIRST.key)
    (second,) = node.answer(question)
    node.tell(Disconnected("a"))
    assert node.answer(second) == []


def test_lie_in_a_sync_counts_as_a_reject_and_ends_syncs_with_the_peer():
    node = harness("a", "b")
    node.announce("a", FIRST.key)
    node.finish("a", SyncResult(ending=Ending.VIOLATION, reason="lies"))
    assert node.sizes()["offenders"] == 1
    node.announce("a", SECOND.key)
    assert node.started() == []


def test_forgeries_that_come_by_sync_count_like_pushed_ones():
    node = harness("a", "b")
    for count, offenders in ((2, 1), (3, 0)):
        node.announce("a", FIRST.key)
        node.finish("a", SyncResult(ending=Ending.COMPLETE, entries=1, rejected=count, rejected_keys=(SECOND.key,)))
        assert node.sizes()["offenders"] == offenders
    assert node.sizes()["banned"] == 1
    assert [action.peer for action in node.of(Ban)] == ["a"]


@pytest.mark.parametrize("kind", list(PeerKind))
def test_five_rejects_ban_a_peer_for_ten_minutes(kind):
    node = Harness()
    node.connect("a", kind)
    for entry in chain(5):
        assert not node.of(Ban)
        node.push("a", forged(entry))
    (ban,) = node.of(Ban)
    assert (ban.peer, ban.until) == ("a", 600.0)
    assert node.machine.state().kinds == {}
    node.now = 599.0
    node.tell(Connected("a", kind, False))
    assert [action.until for action in node.of(Ban)] == [600.0]
    assert node.tell(PushReceived("a", insert_of(FIRST))) == []
    node.now = 600.0
    node.connect("a", kind)
    assert list(node.machine.state().kinds) == ["a"]


def test_peer_that_is_banned_in_the_middle_of_an_rpc_is_done_with():
    node = harness("a", "b")
    node.tell(RpcReceived("a", Rpc(tuple(message_of(bytes([255, number])) for number in range(12)))))
    assert len(node.of(Ban)) == 1


def test_rejects_count_across_connections_but_not_over_hours():
    node = harness("a")
    for number, entry in enumerate(chain(8)):
        node.push("a", forged(entry))
        node.tell(Disconnected("a"))
        node.now += 10.0 if number != 3 else 700.0
        node.connect("a")
    assert node.sizes()["offenders"] == 1
    node.push("a", forged(FIRST))
    assert node.of(Ban)


def test_rejected_ids_are_bounded_and_the_least_recently_met_goes_first(monkeypatch):
    assert offences_module.REJECTED_MAX == 100_000
    monkeypatch.setattr(offences_module, "REJECTED_MAX", 3)
    ids = RejectedIds()
    for id in (b"a", b"b", b"c"):
        ids.add(id)
    assert b"a" in ids
    ids.add(b"d")
    assert (len(ids), b"a" in ids, b"b" in ids) == (3, True, False)


def test_offenders_and_the_banned_are_bounded(monkeypatch):
    monkeypatch.setattr(offences_module, "OFFENDERS_MAX", 10)
    offences = Offences()
    for _ in range(5):
        until = offences.add("worst", 0.0)
    assert until == 600.0
    assert offences.add("worst", 1.0) is None
    for number in range(100):
        assert offences.add(f"p{number}", 1.0) is None
    assert len(offences) == 10
    assert offences.banned_until("worst", 599.0) == 600.0
    for number in range(100):
        for _ in range(5):
            offences.add(f"q{number}", 2.0)
    assert (len(offences), offences.banned) == (9, 10)
    assert offences.banned_until("worst", 3.0) is None


def test_keys_held_for_a_peer_are_bounded():
    node = harness("a")
    node.announce("a", INVENTED[0])
    for low in range(0, 5_000, 1_000):
        node.tell(PushReceived("a", encode_event(Update(INVENTED[low : low + 1_000]))))
    assert node.sizes()["keys_per_peer"] == 1_000


def test_orphans_are_bounded():
    node = harness("a")
    for number in range(MESSAGES_MAX + 20):
        node.receive("a", sign_entry(BOB, TOPIC, 2, [FIRST.key], pcf.encode(number)))
    assert node.sizes()["orphan_messages"] == MESSAGES_MAX


def test_messages_under_validation_are_bounded_by_the_router():
    node = Harness(params=FloodsubParams(pending_max=10))
    node.connect("a")
    node.holds = True
    for entry in chain(20):
        node.receive("a", entry)
    assert node.sizes()["pending"] == 10


def test_hostile_peers_that_come_and_go_leave_nothing_behind():
    node = Harness()
    for number in range(300):
        peer = f"p{number}"
        node.connect(peer)
        node.holds = True
        node.announce(peer, INVENTED[number])
        node.announce(peer, INVENTED[number + 1])
        node.push(peer, chain(2)[1])
        node.holds = False
        node.tell(Disconnected(peer))
    sizes = node.sizes()
    assert (sizes["asked"], sizes["syncs"], sizes["keys_per_peer"]) == (0, 0, 0)
