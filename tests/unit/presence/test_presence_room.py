"""The presence machine: the newest of each name, its end, who is told, and who tells too much."""

from __future__ import annotations

from typing import Any

import pytest
from presence_support import NOW_MS, TOPIC, World, author, frames_of, make, seat

from gossiplog.codec.framing import FrameDecoder
from gossiplog.errors import DecodeError, LocalProtocolError
from gossiplog.presence.messages import Departed, Statement, decode_frame
from gossiplog.presence.room import (
    AUTHOR_BURST,
    CLIENT_BURST,
    GATHER_S,
    MARKS_MAX,
    OVER_MAX,
    SESSIONS_MAX,
    SESSIONS_OF_AUTHOR_MAX,
    SESSIONS_OF_CLIENT_MAX,
    WINDOW_MS,
    FaultyPeer,
    FrameReceived,
    MembersRead,
    PeerBlocked,
    PeerEntered,
    PeerGone,
    PresenceRoom,
    SendFrames,
    StatementMade,
    TimePassed,
)

ANN, BEN = author(1), author(2)


def bring(room: PresenceRoom, peer: str, said: Statement | Departed, now: float = 0.0, age_ms: int = 0, unix_ms: int = NOW_MS) -> list[Any]:
    body = FrameDecoder().take(said.frame(age_ms) if isinstance(said, Statement) else said.frame())[0]
    return room.handle(FrameReceived(peer, body, unix_ms), now)


def sent(actions: list[Any], peer: str) -> list[Any]:
    return [said for action in actions if isinstance(action, SendFrames) and peer in action.peers for said in frames_of(action.data)]


def test_the_newest_of_each_name_counts_and_is_over_after_its_time() -> None:
    room = seat("a", "b")
    bring(room, "a", make(ANN, 1, {"cursor": 1, "typing": True}, 5_000))
    bring(room, "a", make(ANN, 2, {"cursor": 2}, 2_000))
    assert room.states() == {ANN.did: {"cursor": 2, "typing": True}}
    room.handle(TimePassed(), 2.0)
    assert room.states() == {ANN.did: {"typing": True}}
    bring(room, "a", make(ANN, 3, {"typing": None}, 2_000), 2.0)
    assert room.states() == {}
    room.handle(TimePassed(), 9.0)
    assert room.sizes()["sessions"] == 0
    assert room.next_at == float("inf") or room.next_at > 9.0


def test_what_was_made_some_time_ago_lives_for_the_rest() -> None:
    room = seat("a")
    bring(room, "a", make(ANN, 1, {"cursor": 1}, 5_000), now=10.0, age_ms=4_000)
    bring(room, "a", make(BEN, 1, {"cursor": 1}, 5_000), now=10.0, age_ms=5_001)
    room.handle(TimePassed(), 10.9)
    assert room.states() == {ANN.did: {"cursor": 1}}
    room.handle(TimePassed(), 11.0)
    assert room.states() == {}


def test_each_statement_goes_once_to_all_but_its_bringer() -> None:
    room = seat("a", "b", "c")
    one = make(ANN, 1, {"cursor": 1})
    actions = bring(room, "a", one)
    assert sent(actions, "b") == sent(actions, "c") == [one]
    assert sent(actions, "a") == []
    assert bring(room, "b", one, 1.0) == bring(room, "a", one, 1.0) == []


def test_a_crowd_is_told_in_one_write_and_only_of_what_is_still_the_newest() -> None:
    room = seat("a", "b", "c")
    bring(room, "a", make(ANN, 1, {"cursor": 1}))
    last, other = make(ANN, 9, {"cursor": 9}), make(BEN, 1, {"cursor": 1})
    assert not [
        action for number in range(2, 9) for action in bring(room, "a", make(ANN, number, {"cursor": number}), 0.001) if sent([action], "c")
    ]
    bring(room, "b", other, 0.002)
    bring(room, "a", last, 0.003)
    assert room.next_at == GATHER_S
    actions = room.handle(TimePassed(), GATHER_S)
    assert sent(actions, "c") == [other, last]
    assert (sent(actions, "a"), sent(actions, "b")) == ([other], [last])


def test_two_sessions_of_an_author_are_one_author_and_the_newest_counts() -> None:
    room = seat("a", "b")
    bring(room, "a", make(ANN, 1, {"cursor": 1}, 2_000, session=b"1" * 8))
    bring(room, "b", make(ANN, 2, {"cursor": 2}, 1_000, session=b"2" * 8))
    assert room.states() == {ANN.did: {"cursor": 2}}
    room.handle(TimePassed(), 1.0)
    assert room.states() == {ANN.did: {"cursor": 1}}
    for number in range(SESSIONS_OF_AUTHOR_MAX):
        bring(room, "b", make(ANN, 2, {"tab": number}, session=bytes([number]) * 8), 1.0)
    assert room.states() == {ANN.did: {"tab": SESSIONS_OF_AUTHOR_MAX - 1}}


def test_goodbye_ends_a_session_and_goes_to_the_others() -> None:
    room = seat("a", "b")
    bring(room, "a", make(ANN, 1, {"cursor": 1, "name": "Ann"}))
    goodbye = make(ANN, 2, {}, 0)
    assert sent(bring(room, "a", goodbye, 1.0, age_ms=5), "b") == [goodbye]
    assert room.states() == {}
    bring(room, "b", make(ANN, 1, {"cursor": 1, "name": "Ann"}), 2.0)
    assert room.states() == {}


def test_nothing_old_can_be_brought_back() -> None:
    room = seat("a", "b")
    one, two = make(ANN, 1, {"cursor": 1}, 1_000), make(ANN, 2, {"cursor": 2}, 1_000)
    bring(room, "a", one)
    bring(room, "a", two)
    room.handle(TimePassed(), 1.0)
    room.handle(TimePassed(), 5_000.0)
    for said in (one, two):
        assert bring(room, "b", said, 5_000.0) == []
    assert room.states() == {}


def test_clocks_may_be_off_by_hours_and_what_is_of_another_day_is_a_replay() -> None:
    room = seat("a")
    for off, is_taken in ((WINDOW_MS - 1, True), (-WINDOW_MS + 1, True), (WINDOW_MS + 1, False), (-WINDOW_MS - 1, False)):
        who = author(off % 251)
        bring(room, "a", make(who, 0, {"cursor": 1}, 1_000), unix_ms=NOW_MS + off)
        assert (who.did in room.states()) == is_taken, off
    room.handle(TimePassed(), 1.0)
    assert room.states() == {}


def test_a_lost_connection_takes_its_authors_along_and_brings_them_back_unsigned() -> None:
    room = seat("a", "b")
    one, two = make(ANN, 1, {"name": "Ann"}, 9_000), make(ANN, 2, {"cursor": 2}, 9_000)
    bring(room, "a", one)
    bring(room, "a", two, 0.1)
    actions = room.handle(PeerGone("a"), 1.0)
    assert sent(actions, "b") == [Departed(one.id, two.seq)]
    assert room.states() == {}
    room.handle(PeerEntered("c"), 1.5)
    bring(room, "c", Statement(two.id, two.seq, 60_000, two.signature, two.states), 1.9)
    assert room.states() == {}, "only the very same statement brings it back"
    actions = bring(room, "c", one, 2.0) + bring(room, "c", two, 2.0)
    assert room.states() == {ANN.did: {"name": "Ann", "cursor": 2}}
    assert sent(actions, "b") == [one, two]
    room.handle(PeerGone("c"), 3.0)
    room.handle(TimePassed(), 9.5)
    room.handle(PeerEntered("c"), 9.5)
    bring(room, "c", two, 9.5)
    assert room.states() == {}


def test_only_who_brought_a_session_can_say_that_it_has_gone() -> None:
    room = seat("a", "b")
    one = make(ANN, 1, {"cursor": 1})
    bring(room, "a", one)
    bring(room, "b", Departed(one.id, one.seq))
    bring(room, "a", Departed(one.id, one.seq - 1))
    assert room.states() == {ANN.did: {"cursor": 1}}
    assert sent(bring(room, "a", Departed(one.id, one.seq), 1.0), "b") == [Departed(one.id, one.seq)]
    assert room.states() == {}


def test_what_a_relay_brought_stays_if_another_one_brought_it_too() -> None:
    room = seat("a", "b", "c", is_client=False)
    one = make(ANN, 1, {"cursor": 1})
    bring(room, "a", one)
    bring(room, "b", one)
    assert sent(room.handle(PeerGone("a"), 1.0), "c") == []
    assert room.states() == {ANN.did: {"cursor": 1}}
    room.handle(PeerGone("b"), 2.0)
    assert room.states() == {}


def test_newcomers_get_what_is_true_in_order_with_its_age() -> None:
    room = seat("a")
    one, two = make(ANN, 1, {"name": "Ann"}, 9_000), make(ANN, 2, {"cursor": 2}, 1_000)
    bring(room, "a", one, 0.0)
    bring(room, "a", two, 0.5)
    actions = room.handle(PeerEntered("late"), 3.0)
    (data,) = [action.data for action in actions if isinstance(action, SendFrames)]
    assert [decode_frame(body) for body in FrameDecoder().take(data)] == [(one, 3_000), (two, 2_500)]


def test_a_peer_that_reads_nothing_is_owed_the_newest_alone() -> None:
    room = seat("a", "slow")
    room.handle(PeerBlocked("slow"), 0.0)
    for number in range(50):
        bring(room, "a", make(ANN, number, {"cursor": number}), 0.1 * number)
        room.handle(TimePassed(), 0.1 * number + GATHER_S)
    assert sent(room.handle(PeerBlocked("slow", is_blocked=False), 10.0), "slow") == [make(ANN, 49, {"cursor": 49})]


def test_a_hub_is_sent_no_more_than_it_takes_from_a_client() -> None:
    world = World(["client", "hub"], seed=1)
    world.rooms["client"].handle(PeerEntered("hub", is_hub=True), 0.0)
    authors = [author(number) for number in range(60)]
    brought = 0
    for step in range(500):
        now = step * 0.02
        for number in range(8):
            said = make(authors[(8 * step + number) % 60], step, {"cursor": step}, 5_000)
            world.rooms["client"].handle(StatementMade(said), now)
        brought += len(sent(world.rooms["client"].handle(TimePassed(), now + 0.0199), "hub"))
    assert 900 <= brought <= CLIENT_BURST / 2 + 10 * 100 + 1


def test_forgers_and_writers_of_nonsense_are_named() -> None:
    room = seat("a")
    good = make(ANN, 1, {"cursor": 1})
    forged = Statement(good.id, good.seq, good.ttl_ms, bytes(64), good.states)
    other_topic = make(ANN, 1, {"cursor": 1}, topic="other.example.com")
    for said in (forged, other_topic, make(ANN, 2, {}, 500, checked=False), make(ANN, 2, {"a": 1}, 0, checked=False)):
        assert [type(action) for action in bring(room, "a", said)] == [FaultyPeer]
    for body in (b"", b"\x01", b"\x03" + bytes(60), b"\x02" + bytes(47)):
        (fault,) = room.handle(FrameReceived("a", body, NOW_MS), 0.0)
        assert isinstance(fault, FaultyPeer)
    assert room.states() == {}


def test_a_flood_costs_the_flooder_alone() -> None:
    room = seat("flooder", "honest", "c")
    actions = [action for number in range(2_000) for action in bring(room, "flooder", make(BEN, number, {"x": number}, checked=False), 0.0)]
    assert any(isinstance(action, FaultyPeer) and action.peer == "flooder" for action in actions)
    # What it names somebody else by is not held against that one.
    for number in range(AUTHOR_BURST):
        bring(room, "honest", make(ANN, number, {"cursor": number}), 0.0)
    assert room.states()[ANN.did] == {"cursor": AUTHOR_BURST - 1}
    assert not [action for action in bring(room, "honest", make(ANN, 999, {"cursor": 0}), 0.0) if isinstance(action, FaultyPeer)]
    assert room.states()[ANN.did] == {"cursor": AUTHOR_BURST - 1}, "an author over its limit waits"
    bring(room, "honest", make(ANN, 1_000, {"cursor": 7}), 1.0)
    assert room.states()[ANN.did] == {"cursor": 7}
    assert OVER_MAX + CLIENT_BURST <= 2_000


def test_a_client_brings_so_many_statements_whoever_states_them() -> None:
    room = seat("a")
    for number in range(CLIENT_BURST + 50):
        bring(room, "a", make(author(number % 20), number, {"x": number}))
    assert max(states["x"] for states in room.states().values()) == CLIENT_BURST - 1


def test_a_client_brings_so_many_authors_and_no_more() -> None:
    room = seat("a", "b")
    room.handle(PeerEntered("mesh"), 0.0)
    for number in range(SESSIONS_OF_CLIENT_MAX):
        bring(room, "b", make(author(number), 0, {"x": 1}), number / 100)
    for number in range(200):
        bring(room, "a", make(author(1_000 + number), 0, {"x": 1}), 1.0)
    assert room.sizes()["sessions"] == 2 * SESSIONS_OF_CLIENT_MAX
    assert room.sizes()["buckets"] <= SESSIONS_OF_CLIENT_MAX


@pytest.mark.slow
def test_a_full_room_takes_place_from_who_brought_most() -> None:
    room = seat("a")
    room.handle(PeerEntered("mesh"), 0.0)
    for number in range(SESSIONS_MAX + 300):
        bring(room, "mesh", make(author(5_000 + number), 0, {"x": 1}), 1.0)
    assert room.sizes()["sessions"] == SESSIONS_MAX
    bring(room, "a", make(ANN, 1, {"cursor": 1}), 2.0)
    assert room.states()[ANN.did] == {"cursor": 1}
    assert room.sizes()["sessions"] == SESSIONS_MAX
    room.handle(TimePassed(), 100.0)
    assert room.sizes()["sessions"] == 0
    for number in range(MARKS_MAX + 10):
        now = 100.0 + number / 500
        bring(room, "mesh", make(author(10_000 + number % 700), number, {"x": 1}, session=number.to_bytes(8, "big")), now)
        bring(room, "mesh", make(author(10_000 + number % 700), number + 1, {}, 0, session=number.to_bytes(8, "big")), now)
    assert room.sizes()["marks"] == MARKS_MAX


def test_a_session_has_so_many_names_and_bytes() -> None:
    room = seat("a")
    for number in range(40):
        bring(room, "a", make(ANN, number, {f"name {number}": 1}), now=number)
    assert len(room.states()[ANN.did]) == 16
    assert room.states()[ANN.did]["name 39"] == 1
    for number in range(8):
        bring(room, "a", make(BEN, number, {f"name {number}": "x" * 900}), now=50.0 + number)
    assert list(room.states()[BEN.did]) == [f"name {number}" for number in range(4, 8)]


def test_only_members_are_heard_and_readers_say_nothing() -> None:
    room = seat("a", "b")
    room.handle(PeerEntered("reader", is_client=True, may_speak=False), 0.0)
    bring(room, "reader", make(ANN, 1, {"cursor": 1}))
    assert room.states() == {}
    room.handle(MembersRead(frozenset({ANN.did})), 0.0)
    bring(room, "a", make(BEN, 1, {"cursor": 1}))
    bring(room, "a", make(ANN, 1, {"cursor": 1}))
    assert room.states() == {ANN.did: {"cursor": 1}}
    room.handle(MembersRead(frozenset({BEN.did})), 0.0)
    assert room.states() == {}


def test_what_cannot_be_said_is_refused_where_it_is_signed() -> None:
    for states in ({}, {"": 1}, {"x" * 65: 1}, {f"{number}": 1 for number in range(17)}):
        with pytest.raises(LocalProtocolError, match="presence is stated"):
            make(ANN, 1, states)
    with pytest.raises(LocalProtocolError, match="60 s"):
        make(ANN, 1, {"x": 1}, 60_001)
    assert make(ANN, 1, {"x": 1}).is_signed(TOPIC)
    with pytest.raises(DecodeError):
        make(ANN, 1, {"deep": [[[[[[[[[1]]]]]]]]]}, checked=False).read()
