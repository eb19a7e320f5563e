from random import Random

from broadcast_support import BOB, FRUITFUL, TOPIC, Harness, Log, chain, forged, insert_of, message_of

from gossiplog.broadcast.actions import EntriesAppended, EntryDecided, InsertEntry, Push, StartSync, Unwelcome
from gossiplog.broadcast.events import Connected, Disconnected, LogAnswered, PeerKind, PushReceived
from gossiplog.codec.varint import encode_varint
from gossiplog.entry.message import Entry
from gossiplog.entry.validation import Outcome, Verdict
from gossiplog.pubsub.actions import Connect, Deliver, SendRpc, SetTimer
from gossiplog.pubsub.events import AppScored, RpcReceived, TimerFired
from gossiplog.pubsub.params import EpisubParams
from gossiplog.pubsub.protocol_ids import EPISUB
from gossiplog.pubsub.routers.episub import Episub
from gossiplog.pubsub.rpc import Rpc, WalkJoin
from gossiplog.sync.rpc import Update
from gossiplog.sync.wire import encode_event


def harness(*mesh: str) -> Harness:
    made = Harness()
    for peer in mesh:
        made.connect(peer)
    return made


def rewrap(data: bytes) -> bytes:
    """The same insert with a field that nobody knows after it."""
    inner = data[2:] if data[1] < 0x80 else data[3:]
    body = inner + b"\x7a\x01x"
    return data[:1] + encode_varint(len(body)) + body


def test_append_is_published_to_the_mesh_and_pushed_to_nobody_there():
    node = harness("a", "b")
    node.append()
    assert node.forwarded_to() == ["a", "b"]
    assert not node.of(Push)


def test_published_message_is_a_bare_event_with_the_hash_of_its_data_for_an_id():
    node = harness("a")
    entry = node.append()
    (message,) = node.of(SendRpc)[0].rpc.messages
    assert message == message_of(insert_of(entry))


def test_several_appends_are_published_in_their_order():
    node = harness("a")
    entries = [node.log.append(number) for number in range(3)]
    node.tell(EntriesAppended(entries))
    assert [action.rpc.messages[0].data for action in node.of(SendRpc)] == [insert_of(entry) for entry in entries]


def test_new_entry_is_inserted_before_it_is_forwarded():
    node = harness("a", "b", "c")
    node.holds = True
    (entry,) = chain(1)
    (insert,) = node.receive("a", entry)
    assert isinstance(insert, InsertEntry) and (insert.key, insert.value, insert.source) == (entry.key, entry.value, "a")
    node.tell(EntryDecided(insert, node.log.take(insert.key, insert.value)))
    assert node.forwarded_to() == ["b", "c"]
    assert len(node.of(Deliver)) == 1


def test_entry_that_the_log_had_already_is_forwarded_all_the_same():
    node = harness("a", "b")
    (entry,) = chain(1)
    node.log.insert(entry)
    node.receive("a", entry)
    assert node.forwarded_to() == ["b"]


def test_orphan_is_ignored_and_starts_sync():
    node = harness("a", "b")
    orphan = chain(2)[1]
    node.receive("a", orphan)
    assert node.started() == ["a"]
    assert node.forwarded_to() == []
    assert node.sizes()["offenders"] == 0


def test_entry_that_our_disk_refused_is_fetched_again_and_nobody_blamed():
    node = harness("a")
    node.holds = True
    (entry,) = chain(1)
    (insert,) = node.receive("a", entry)
    node.holds = False
    node.tell(EntryDecided(insert, Verdict(Outcome.IGNORE, "storage", "disk full", entry)))
    assert node.started() == ["a"]
    assert node.sizes()["offenders"] == 0


def test_quarantined_entry_is_neither_forwarded_nor_fetched():
    node = harness("a", "b")
    node.holds = True
    (entry,) = chain(1)
    (insert,) = node.receive("a", entry)
    node.tell(EntryDecided(insert, Verdict(Outcome.IGNORE, "quarantined", "no", entry)))
    assert node.actions == []


def test_orphan_of_a_peer_that_has_left_starts_no_sync():
    node = harness("a")
    node.holds = True
    (insert,) = node.receive("a", chain(2)[1])
    node.tell(Disconnected("a"))
    node.tell(EntryDecided(insert, node.log.take(insert.key, insert.value)))
    assert node.started() == []


def test_further_source_of_an_orphan_is_synced_with_when_the_first_has_not_brought_it():
    node = harness("a", "b")
    orphan = chain(2)[1]
    node.receive("a", orphan)
    node.receive("b", orphan)
    assert node.started() == []
    node.finish("a")
    assert node.started() == ["b"]


def test_further_source_of_an_orphan_that_came_meanwhile_is_left_alone():
    node = harness("a", "b")
    parent, orphan = chain(2)
    node.receive("a", orphan)
    node.receive("b", orphan)
    node.log.insert(parent)
    node.log.insert(orphan)
    node.finish("a", FRUITFUL)
    assert node.started() == []


def test_rejected_entry_is_not_forwarded_and_counts_against_its_source():
    node = harness("a", "b")
    node.receive("a", forged(chain(1)[0]))
    assert node.actions == []
    assert node.machine.state().offences == {"a": 1}


def test_rejected_entry_is_not_validated_again_in_any_wrapping():
    node = harness("a", "b", "c")
    bad = forged(chain(1)[0])
    node.receive("a", bad)
    node.holds = True
    assert node.receive("b", rewrap(insert_of(bad))) == []
    assert node.push("c", bad) == []
    assert node.push("c", rewrap(insert_of(bad))) == []
    assert node.sizes()["offenders"] == 3


def test_rejected_message_is_remembered_longer_than_the_router_remembers_it():
    node = harness("a", "b")
    bad = forged(chain(1)[0])
    node.receive("a", bad)
    node.now = 1_000.0
    node.holds = True
    assert node.receive("b", bad) == []


def test_wrong_value_under_an_honest_key_does_not_keep_the_honest_entry_out():
    node = harness("a", "b", "c")
    first, second = chain(1)[0], chain(1, start="another")[0]
    node.receive("a", insert_of(Entry(first.key, second.value)))
    node.push("a", insert_of(Entry(second.key, forged(second).value)))
    for entry in (first, second):
        node.receive("b", entry)
        assert node.forwarded_to() == ["a", "c"]


def test_malformed_message_is_rejected():
    node = harness("a", "b")
    for data in (b"", b"\xff", b"\x0a\x02\x0a\x00"):
        node.receive("a", data)
        assert [type(action) for action in node.actions] == [Unwelcome]
    assert node.machine.state().sizes["offenders"] == 1


def test_heads_in_pubsub_are_ignored_without_blame():
    node = harness("a", "b")
    node.receive("a", encode_event(Update([bytes(20)])))
    node.receive("b", encode_event(Update([bytes(20)])))
    assert node.actions == [] and node.sizes()["offenders"] == 0


def test_entry_in_an_unusual_wrapping_is_taken_and_published_in_the_usual_one_once():
    node = harness("a", "b")
    (entry,) = chain(1)
    node.receive("a", rewrap(insert_of(entry)))
    assert [action.rpc.messages[0] for action in node.of(SendRpc)] == [message_of(insert_of(entry))]
    node.receive("a", rewrap(rewrap(insert_of(entry))))
    assert node.forwarded_to() == []


def test_verdict_that_comes_twice_changes_nothing():
    node = harness("a")
    node.holds = True
    (insert,) = node.receive("a", chain(1)[0])
    verdict = node.log.take(insert.key, insert.value)
    node.tell(EntryDecided(insert, verdict))
    assert node.tell(EntryDecided(insert, verdict)) == []
    assert node.tell(LogAnswered(99, [])) == []


def test_rpc_and_push_of_a_stranger_are_ignored():
    node = harness()
    assert node.tell(RpcReceived("x", Rpc((message_of(insert_of(chain(1)[0])),)))) == []
    assert node.push("x", chain(1)[0]) == []
    assert node.tell(PushReceived("x", b"")) == []


def test_second_connection_and_second_end_change_nothing():
    node = harness("a")
    assert node.tell(Connected("a", PeerKind.MESH, True, "/floodsub/1.0.0")) == []
    node.tell(Disconnected("a"))
    assert node.tell(Disconnected("a")) == []


def test_router_gets_its_own_events_and_timers():
    node = harness("a")
    assert node.tell(AppScored("a", 1.0)) == []
    assert node.tell(TimerFired("retry")) == []
    assert node.shared.protocols == node.shared.router.protocols


def test_websocket_peers_are_no_business_of_the_router():
    node = harness("a")
    node.connect("browser", PeerKind.CLIENT)
    assert [peer.peer for peer in node.machine.state().router.peers] == ["a"]
    node.tell(Disconnected("browser"))
    assert node.machine.state().kinds == {"a": PeerKind.MESH}


def test_peer_that_is_there_without_pubsub_is_no_neighbour_and_keeps_no_dial_open():
    node = Harness()
    node.begin(Episub(EpisubParams(), Random(1)))
    node.tell(Connected("a", PeerKind.MESH, False, EPISUB))
    node.connect("browser", PeerKind.CLIENT)
    node.tell(Connected("mute", PeerKind.MESH, False, None))
    for peer in ("browser", "mute"):
        assert not node.tell(RpcReceived("a", Rpc(overlay=(WalkJoin(TOPIC, peer, 0),))))
    state = node.machine.state().router
    assert (state.sizes["dials"], state.sizes["joining"]) == (0, 0)
    assert node.tell(RpcReceived("a", Rpc(overlay=(WalkJoin(TOPIC, "new", 0),)))) == [Connect("new")]


def test_state_shows_peers_by_kind_and_open_push_streams():
    node = harness("a")
    node.connect("hub", PeerKind.HUB, push=False)
    state = node.machine.state()
    assert state.kinds == {"a": PeerKind.MESH, "hub": PeerKind.HUB}
    assert state.pushing == ("a",)
    assert state.router.router == "floodsub"


def test_peer_exchange_does_not_bring_a_banned_peer_back():
    node = harness("a")
    bad = [forged(entry) for entry in chain(5)]
    for entry in bad:
        node.receive("a", entry)

    class Dialling:
        """A router that wants to dial."""

        def handle(self, event, now):
            return [Connect("a"), Connect("b")] if isinstance(event, TimerFired) else []

        def state(self):
            return node.shared.router.state()

    real, node.shared.router = node.shared.router, Dialling()
    assert [action.peer for action in node.tell(TimerFired("dial")) if isinstance(action, Connect)] == ["b"]
    node.shared.router = real


def test_entry_of_another_topic_is_rejected():
    node = harness("a", "b")
    log = Log()
    entry = log.append("x", BOB)
    other = Entry.decode(entry.value.replace(TOPIC.encode(), TOPIC[::-1].encode()))
    node.receive("a", other)
    assert node.actions == [] and node.sizes()["offenders"] == 1


def test_no_timer_is_set_twice_for_the_same_time():
    node = harness("a", "b")
    first, second = chain(2)[1], chain(3)[2]
    node.receive("a", first)
    node.receive("b", first)
    assert len(node.of(SetTimer)) == 1
    node.receive("a", second)
    assert not node.of(SetTimer)
    assert not node.of(StartSync)
