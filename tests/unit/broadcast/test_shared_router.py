"""Two logs of one process with one router."""

from random import Random
from typing import Any

from broadcast_support import TOPIC, chain, forged, insert_of

from gossiplog.broadcast.actions import Ban, EntryDecided, InsertEntry
from gossiplog.broadcast.broadcast import Broadcast
from gossiplog.broadcast.events import Connected, Disconnected, PeerKind, PubsubChanged, StartBroadcast
from gossiplog.broadcast.shared_router import SharedRouter
from gossiplog.entry.validation import Outcome, Verdict
from gossiplog.pubsub.actions import Connect, SendRpc, Validate
from gossiplog.pubsub.events import PeerConnected, RpcReceived, Start
from gossiplog.pubsub.params import FloodsubParams
from gossiplog.pubsub.protocol_ids import FLOODSUB
from gossiplog.pubsub.routers.floodsub import Floodsub
from gossiplog.pubsub.rpc import Message, Rpc, Subscription

ONE, TWO = TOPIC, "two.example.com"


class Process:
    """Two logs, their router, and what the router was told."""

    def __init__(self) -> None:
        self.router = Floodsub(FloodsubParams(), Random(1))
        self.shared = SharedRouter(self.router)
        self.logs = {topic: Broadcast(self.shared, topic, Random(number)) for number, topic in enumerate((ONE, TWO))}
        self.shared.handle(Start("me"), 0.0)
        for log in self.logs.values():
            log.handle(StartBroadcast(), 0.0)

    def connect(self, topic: str, peer: str, kind: PeerKind = PeerKind.MESH, origin: str | None = None) -> list[Any]:
        protocol = FLOODSUB if kind is PeerKind.MESH else None
        return self.logs[topic].handle(Connected(peer, kind, False, protocol, origin=origin), 0.0)

    def neighbours(self) -> list[str]:
        return [peer.peer for peer in self.router.state().peers]

    def offend(self, topic: str, peer: str, count: int) -> list[Any]:
        """Have a peer bring entries that do not verify; return all that follows."""
        out: list[Any] = []
        for entry in map(forged, chain(count)):
            data = insert_of(entry)
            for action in self.shared.handle(RpcReceived(peer, Rpc((Message(data[-32:], topic, data),))), 0.0):
                if isinstance(action, Validate):
                    for one in self.logs[topic].handle(action, 0.0):
                        if isinstance(one, InsertEntry):
                            verdict = Verdict(Outcome.REJECT, "signature", "planted", entry)
                            out += self.logs[topic].spreading.handle(EntryDecided(one, verdict), 0.0)
        return out


def test_a_peer_is_one_neighbour_from_the_first_log_that_knows_it_to_the_last() -> None:
    process = Process()
    (introduction,) = process.connect(ONE, "a")
    assert isinstance(introduction, SendRpc)
    assert introduction.rpc.subscriptions == (Subscription(ONE, True), Subscription(TWO, True))
    assert process.connect(TWO, "a") == []
    process.logs[ONE].handle(Disconnected("a"), 0.0)
    assert process.neighbours() == ["a"]
    process.logs[TWO].handle(Disconnected("a"), 0.0)
    assert process.neighbours() == []


def test_a_message_is_asked_of_the_log_of_its_topic_whatever_others_know_the_peer() -> None:
    process = Process()
    process.connect(ONE, "a")
    (asked,) = process.shared.handle(RpcReceived("a", Rpc((Message(b"id", TWO, b"data"),))), 0.0)
    assert isinstance(asked, Validate) and asked.message.topic == TWO


def test_offences_in_different_logs_add_up_to_a_ban_from_all_also_in_a_log_that_does_not_know_the_peer() -> None:
    process = Process()
    process.connect(ONE, "a")
    assert not [action for action in process.offend(ONE, "a", 3) if isinstance(action, Ban)]
    (ban,) = [action for action in process.offend(TWO, "a", 2) if isinstance(action, Ban)]
    assert ban.peer == "a" and process.neighbours() == []
    assert process.shared.banned_until("a", 1.0) == ban.until
    (again,) = process.connect(TWO, "a")
    assert isinstance(again, Ban)
    process.logs[ONE].handle(Disconnected("a"), 0.0)
    assert process.logs[ONE].state().kinds == {}


def test_a_place_is_not_banned_where_another_log_has_an_honest_peer_of_it() -> None:
    for topic, is_banned in ((TWO, False), (None, True)):
        process = Process()
        process.connect(ONE, "liar", origin="place")
        process.connect(TWO, "liar", origin="place")
        if topic is not None:
            process.connect(topic, "honest", origin="place")
        (ban,) = [action for action in process.offend(ONE, "liar", 5) if isinstance(action, Ban)]
        assert (ban.origin == "place") is is_banned


def test_pubsub_begins_and_ends_for_all_logs_at_once() -> None:
    process = Process()
    process.logs[ONE].handle(Connected("a", PeerKind.MESH, True, None), 0.0)
    assert process.neighbours() == []
    assert process.shared.handle(PubsubChanged("a", FLOODSUB), 0.0) and process.neighbours() == ["a"]
    assert process.shared.handle(PubsubChanged("a", None), 0.0) == [] and process.neighbours() == []
    assert process.shared.handle(PubsubChanged("nobody", FLOODSUB), 0.0) == []
    process.connect(TWO, "client", PeerKind.CLIENT)
    assert process.shared.handle(PubsubChanged("client", FLOODSUB), 0.0) == [] and process.neighbours() == []


def test_nobody_is_dialled_who_is_connected_with_any_log() -> None:
    process = Process()
    process.connect(TWO, "client", PeerKind.CLIENT)
    handle = process.router.handle
    process.router.handle = (  # type: ignore[method-assign]
        lambda event, now: [Connect("client"), Connect("new")] if isinstance(event, PeerConnected) else handle(event, now)
    )
    assert process.connect(ONE, "a") == [Connect("new")]
