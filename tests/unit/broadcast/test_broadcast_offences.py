"""Who has to answer for what is invalid: peers, and the places that they come from; and who has not."""

from random import Random

import pytest
from broadcast_support import Harness, chain, forged

from gossiplog.broadcast.actions import Ban, EntryDecided, InsertEntry, PushRefused, StartSync, Unwelcome
from gossiplog.broadcast.allowance import Bringer
from gossiplog.broadcast.events import Connected, Disconnected, Misbehaved, PeerKind, PushOpened
from gossiplog.broadcast.offences import BROKEN_STREAMS_MAX
from gossiplog.broadcast.wanted_syncs import SYNC_TIMER
from gossiplog.codec.varint import encode_varint
from gossiplog.entry.validation import Outcome, Verdict
from gossiplog.pubsub.events import TimerFired
from gossiplog.pubsub.params import MESH_PARAMS
from gossiplog.pubsub.registry import make_router
from gossiplog.sync.result import Ending, SyncResult

ORIGIN = "203.0.113.7"


def connect(node: Harness, peer: str, kind: PeerKind = PeerKind.CLIENT, *, shared: bool = False) -> None:
    protocol = "/floodsub/1.0.0" if kind is PeerKind.MESH else None
    node.tell(Connected(peer, kind, False, protocol, None, origin=ORIGIN, is_origin_shared=shared))
    node.tell(PushOpened(peer))


def forge_from(node: Harness, peer: str, count: int, start: int = 0) -> list[Ban]:
    bans = []
    for entry in chain(start + count)[start:]:
        node.push(peer, forged(entry))
        bans += node.of(Ban)
    return bans


@pytest.mark.parametrize("kind", [PeerKind.CLIENT, PeerKind.MESH])
def test_forgeries_count_over_connections_and_names_from_one_place(kind: PeerKind):
    node = Harness()
    connect(node, "one", kind)
    assert forge_from(node, "one", 4) == []
    node.tell(Disconnected("one"))
    connect(node, "two", kind)
    (ban,) = forge_from(node, "two", 1, start=4)
    assert (ban.peer, ban.origin, ban.until) == ("two", ORIGIN, 600.0)
    # It is banned by its name as well, for it may come back from elsewhere.
    assert node.shared.banned_until("two", node.now) == 600.0
    assert node.shared.banned_until("one", node.now) is None


def test_forger_by_pubsub_is_banned_once_nothing_more_of_it_is_read():
    """Else what it sends from there on would not be counted, and it would stay until its score has faded."""
    node = Harness()
    node.begin(make_router("gossipsub", MESH_PARAMS["gossipsub"], Random(1)))
    for peer in ("forger", "honest"):
        node.tell(Connected(peer, PeerKind.MESH, False, "/meshsub/1.1.0", None, origin=ORIGIN))
    bans = list[Ban]()
    for number, entry in enumerate(chain(5), 1):
        node.receive("forger", forged(entry))
        bans = node.of(Ban)
        if bans:
            break
        assert node.shared.router.is_heeded("forger")
    assert (number, [ban.peer for ban in bans], bans[0].origin) == (3, ["forger"], None)


def test_leaving_before_the_verdict_saves_nobody():
    node = Harness()
    for number, entry in enumerate(chain(5)):
        connect(node, f"c{number}")
        node.holds = True
        (insert,) = node.push(f"c{number}", forged(entry))
        node.holds = False
        node.tell(Disconnected(f"c{number}"))
        node.tell(EntryDecided(insert, Verdict(Outcome.REJECT, "signature", "it does not verify", entry)))
    assert node.of(Ban)[0].origin == ORIGIN


def test_place_of_honest_neighbours_is_slowed_and_not_banned():
    node = Harness()
    connect(node, "honest")
    connect(node, "forger")
    (ban,) = forge_from(node, "forger", 5)
    assert (ban.peer, ban.origin) == ("forger", None)
    assert node.shared.is_slowed("honest", node.now)
    connect(node, "stranger")
    assert node.shared.is_slowed("stranger", node.now)
    for entry in chain(20):
        node.push("honest", entry)
    assert not node.shared.is_slowed("honest", node.now)
    node.now = 600.0
    assert not node.shared.is_slowed("stranger", node.now)


def test_place_that_others_stand_behind_is_slowed_and_never_banned():
    node = Harness()
    for number in range(3):
        connect(node, f"c{number}", shared=True)
        assert all(ban.origin is None for ban in forge_from(node, f"c{number}", 4, start=4 * number))
        node.tell(Disconnected(f"c{number}"))
    connect(node, "next", shared=True)
    assert node.shared.is_slowed("next", node.now)


@pytest.mark.parametrize("rule", ["size", "nesting", "scheme", "quarantined", "storage", "parents"])
def test_what_is_unwelcome_is_no_offence_and_is_not_forwarded(rule: str):
    node = Harness()
    node.connect("mesh")
    connect(node, "a")
    for entry in chain(30):
        for give in (node.push, node.receive):
            node.holds = True
            inserts = give("mesh" if give == node.receive else "a", entry)
            node.holds = False
            for insert in inserts:
                node.tell(EntryDecided(insert, Verdict(Outcome.IGNORE, rule, "no", entry)))
                assert not node.of(Ban) and node.forwarded_to() == [] and node.pushed() == {}
    assert node.machine.state().offences == {}


def test_message_of_a_later_protocol_is_left_alone_and_told_of():
    node = Harness()
    node.connect("mesh")
    connect(node, "a")
    later = b"\x1a" + encode_varint(3) + b"new"
    for _ in range(10):
        (told,) = node.push("a", later)
        assert isinstance(told, Unwelcome)
    node.receive("mesh", later)
    assert node.of(Unwelcome)
    assert node.machine.state().offences == {}
    node.push("a", b"")
    assert node.machine.state().offences == {"a": 1}


def test_forgeries_by_sync_are_offences():
    node = Harness()
    node.connect("forger")
    node.announce("forger", chain(1)[0].key)
    node.finish("forger", SyncResult(ending=Ending.COMPLETE, rejected=3))
    assert node.machine.state().offences == {"forger": 3}


def test_bad_streams_are_offences_too():
    node = Harness()
    node.connect("a")
    for _ in range(5 * BROKEN_STREAMS_MAX - 1):
        node.tell(Misbehaved("a", "no frame"))
    assert node.machine.state().offences == {"a": 4}
    assert not node.of(Ban)
    node.tell(Misbehaved("a", "no frame"))
    assert node.of(Ban)[0].reason == "500 sync streams that break the protocol: no frame"


def test_unknown_peer_is_not_blamed():
    node = Harness()
    node.tell(Misbehaved("nobody", "nothing"))
    assert node.machine.state().offences == {}


def test_bans_are_shown_with_their_reason_until_they_end():
    node = Harness()
    connect(node, "one")
    (ban,) = forge_from(node, "one", 5)
    assert node.machine.state().bans == [("one", ban.until, ban.reason)]
    assert node.shared.banned_until("one", ban.until - 1) == ban.until
    assert node.shared.banned_until("one", ban.until) is None
    assert node.machine.state().bans == []


def test_strangers_of_a_suspect_place_share_ten_entries_a_second():
    node = Harness()
    connect(node, "one", shared=True)
    connect(node, "two", shared=True)
    connect(node, "three", shared=True)
    assert node.shared.take_turn("two", 1_000, node.now) == (0, node.now)
    forge_from(node, "one", 5)
    assert node.shared.take_turn("two", 8, node.now) == (0, node.now)
    waiting, ready_at = node.shared.take_turn("three", 8, node.now)
    assert waiting == 6
    assert node.now < ready_at <= node.now + 0.11
    assert node.shared.take_turn("nobody", 1_000, node.now) == (0, node.now)


def test_client_that_may_not_push_is_told_what_is_not_taken_and_nothing_is_fetched():
    node, lacking = Harness(), chain(3)
    node.tell(Connected("reader", PeerKind.CLIENT, False, None, None, bringer=Bringer(may_push=False, is_client=True)))
    node.tell(PushOpened("reader"))
    node.push("reader", lacking[0])
    assert [refused.keys for refused in node.of(PushRefused)] == [[lacking[0].key]]
    node.announce("reader", lacking[2].key, node.append().key)
    assert [refused.keys for refused in node.of(PushRefused)] == [[lacking[2].key]]
    node.tell(TimerFired(SYNC_TIMER))
    assert not node.of(StartSync)
    assert not node.of(InsertEntry)
    assert node.machine.state().offences == {}
