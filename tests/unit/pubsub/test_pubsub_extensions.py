"""The handshake of extensions: what is said first, what counts, and what is ignored."""

import random

import pytest
from unit.pubsub.gossipsub_driver import SCORED, solo
from unit.pubsub.network import Network, T, controls, message, said

from gossiplog.pubsub import GossipsubParams, Topic
from gossiplog.pubsub.events import PeerConnected, PeerDisconnected, RpcReceived, SendFailed, Subscribe
from gossiplog.pubsub.routers.gossipsub import Gossipsub
from gossiplog.pubsub.rpc import Control, Extensions, Rpc, Subscription
from gossiplog.pubsub.wire.rpc_codec import Wire

NEWEST, BEFORE = "/meshsub/1.3.0", "/meshsub/1.2.0"
TEST = Extensions(test=True)


def hello(extensions=None):
    return Rpc(subscriptions=(Subscription(T, True),), control=Control(extensions=extensions))


def connect(driver, peer="p", protocol=NEWEST):
    return driver.tell(PeerConnected(peer, protocol, False))


def peer_state(driver):
    (state,) = driver.router.state().peers
    return state


def test_extensions_are_in_the_first_rpc_with_all_that_is_said_then():
    driver = solo(test_extension=True)
    driver.tell(Subscribe(T))
    driver.tell(Subscribe(Topic("u")))
    (first,) = said(connect(driver))
    assert first.control.extensions == Extensions(test=True)
    assert len(first.subscriptions) == 2
    assert said(driver.tell(Subscribe(Topic("v"))))[0].control is None


def test_extensions_come_in_the_first_frame_of_a_long_first_rpc():
    driver = solo(test_extension=True)
    for number in range(100):
        driver.tell(Subscribe(Topic(f"{number:0900}")))
    (first,) = said(connect(driver))
    frames = Wire().encode(first)
    assert len(frames) == 6
    assert b"\x90\x91\xe2\x18\x01" in frames[0]
    assert all(len(frame) <= 64 * 1024 for frame in frames)


@pytest.mark.parametrize(
    ("params", "protocol"), [({}, NEWEST), ({"test_extension": True}, BEFORE), ({"test_extension": True}, "/floodsub/1.0.0")]
)
def test_who_has_none_and_who_speaks_to_an_older_peer_says_none(params, protocol):
    driver = solo(**params)
    assert connect(driver, protocol=protocol) == []
    driver.tell(Subscribe(T))
    driver.say("p", hello(TEST))
    driver.run(2)
    assert all(rpc.control is None or rpc.control.extensions is None for rpc in said(driver.actions))
    assert not any(rpc.is_test for rpc in said(driver.actions))


def test_what_was_dropped_is_not_said_later():
    driver = solo(test_extension=True)
    driver.tell(Subscribe(T))
    (first,) = said(connect(driver))
    driver.tell(SendFailed("p", first))
    (again,) = said(driver.run(2))[:1]
    assert again.subscriptions == first.subscriptions
    assert again.control is None or again.control.extensions is None


def test_first_rpc_alone_tells_what_a_peer_can_do():
    driver = solo(score=SCORED)
    connect(driver)
    assert peer_state(driver).extensions is None
    driver.say("p", hello(TEST))
    assert peer_state(driver).extensions == TEST
    assert driver.score("p") == 0


@pytest.mark.parametrize("first", [hello(), hello(Extensions()), hello(TEST), Rpc()])
def test_extensions_said_later_are_misbehaviour_and_change_nothing(first):
    driver = solo(score=SCORED)
    connect(driver)
    driver.say("p", first)
    before = peer_state(driver).extensions
    for _ in range(10):
        driver.say("p", Rpc(control=Control(extensions=Extensions(test=True))))
    assert peer_state(driver).extensions == before
    assert driver.score("p") < 0


def test_new_stream_says_it_anew():
    driver = solo(score=SCORED)
    connect(driver)
    for extensions in (TEST, TEST, None, Extensions(test=True)):
        driver.tell(RpcReceived("p", hello(extensions), is_first=True))
        assert peer_state(driver).extensions == (extensions or Extensions())
    assert driver.score("p") == 0


def test_extensions_of_an_older_peer_are_ignored():
    driver = solo(score=SCORED, test_extension=True)
    connect(driver, protocol=BEFORE)
    for _ in range(10):
        driver.say("p", hello(TEST))
    assert peer_state(driver).extensions is None
    assert driver.score("p") == 0


def test_first_rpc_that_is_a_known_message_is_the_first_all_the_same():
    driver = solo(score=SCORED)
    driver.tell(Subscribe(T))
    for peer in ("p", "q"):
        connect(driver, peer)
        driver.tell(RpcReceived(peer, hello(), is_first=True))
    driver.push("q", message("m"))
    driver.tell(RpcReceived("p", Rpc((message("m"),)), is_first=True))
    driver.say("p", hello(TEST))
    state = next(one for one in driver.router.state().peers if one.peer == "p")
    assert state.extensions == Extensions()


def test_test_extension_is_said_once_by_both_who_have_it():
    net = Network(lambda rng: Gossipsub(GossipsubParams(test_extension=True), rng), 2)
    net.add(Gossipsub(GossipsubParams(), random.Random(3)))
    net.connect_all()
    net.subscribe()
    net.run(5)
    tests = [(source, target) for _, source, target, rpc in net.sent if rpc.is_test]
    assert sorted(tests) == [("n000", "n001"), ("n001", "n000")]
    tested = {name: [peer.peer for peer in router.state().peers if peer.is_tested] for name, router in net.routers.items()}
    assert tested == {"n000": ["n001"], "n001": ["n000"], "n002": []}


def test_peer_that_comes_back_is_asked_anew():
    driver = solo(test_extension=True)
    for _ in range(2):
        assert len(controls(connect(driver), "graft")) == 0
        assert [rpc.is_test for rpc in said(driver.say("p", hello(TEST)))] == [True]
        driver.tell(PeerDisconnected("p"))
