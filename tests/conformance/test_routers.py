"""One suite for every router: the door, determinism under any PYTHONHASHSEED, and what all of them owe their driver."""

import hashlib
import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from unit.pubsub.network import Network, Solo, T, controls, message, of, recipients

from gossiplog.errors import LocalProtocolError
from gossiplog.pubsub import (
    ChokeParams,
    EpisubParams,
    FloodsubParams,
    GossipsubParams,
    MeshsubParams,
    Outcome,
    RandomsubParams,
    Router,
    Rpc,
    ScoreParams,
    Topic,
)
from gossiplog.pubsub.actions import AnotherSource, Deliver, Published, SlowPeer, Validate
from gossiplog.pubsub.events import (
    AppScored,
    ConnectFailed,
    PeerDisconnected,
    PeerRecordLearned,
    Probed,
    Publish,
    SendFailed,
    Subscribe,
    TimerFired,
    Unsubscribe,
    Validated,
)
from gossiplog.pubsub.registry import ROUTERS, default_params, make_router
from gossiplog.pubsub.rpc import Control, Subscription

PARAMS = {
    "floodsub": FloodsubParams(),
    "randomsub": RandomsubParams(),
    "meshsub": MeshsubParams(),
    "gossipsub": GossipsubParams(score=ScoreParams(), px_enabled=True),
    "choke": ChokeParams(choke_threshold=1, choke_ticks=2, choke_samples_min=1),
    "episub": EpisubParams(),
}
MAKERS = {name: partial(make_router, name, PARAMS[name]) for name in ROUTERS}
every_router = pytest.mark.parametrize("name", MAKERS)


def joined(name, *peers):
    driver = Solo(MAKERS[name](random.Random(1)))
    driver.connect(*peers)
    driver.tell(Subscribe(T))
    if name == "episub":
        from gossiplog.pubsub.rpc import Neighbor, NeighborKind

        for peer in peers:
            driver.say(peer, Rpc(overlay=(Neighbor(T, NeighborKind.REQUEST, True, 0, ()),)))
    return driver


def trace(name: str) -> str:
    """Run one scenario and digest everything that was sent, with its time."""
    net = Network(MAKERS[name], 16, seed=5)
    net.connect_some(5)
    net.subscribe()
    net.run(5)
    for number in range(8):
        net.publish(net.names[number], f"message {number}" * 60)
        net.run(0.3)
    net.kill(net.names[12:])
    net.publish(net.names[0], "after")
    net.unsubscribe(net.names[1])
    net.run(8)
    return hashlib.sha256(repr(net.sent).encode()).hexdigest()


@every_router
def test_router_has_the_protocol_s_door(name):
    router: Router = MAKERS[name](random.Random(1))
    assert router.protocols
    assert router.state().router == name


@every_router
def test_registry_takes_a_router_s_own_parameters_alone(name):
    assert make_router(name, default_params(name), random.Random(1)).state().router == name
    others = GossipsubParams() if name == "choke" else ChokeParams()
    with pytest.raises(LocalProtocolError, match=f"{type(others).__name__}, which are not {name}'s parameters"):
        make_router(name, others, random.Random(1))


def test_registry_names_the_routers_that_it_knows():
    with pytest.raises(LocalProtocolError, match=r"router 'gossip', expected one of floodsub, .*, episub"):
        make_router("gossip", GossipsubParams(), random.Random(1))


@every_router
def test_same_seed_gives_the_same_trace(name):
    assert trace(name) == trace(name)


def test_trace_does_not_depend_on_the_hash_seed():
    root = Path(__file__).parents[2]
    code = "from conformance.test_routers import MAKERS, trace; print([trace(name) for name in MAKERS])"
    outputs = []
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join((str(root), str(root / "tests")))}
        outputs.append(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout)
    assert outputs[0] == outputs[1] != ""


@every_router
def test_accepted_message_is_delivered_once_and_forwarded_to_others(name):
    driver = joined(name, "a", "b", "c")
    actions = driver.push("a", message("m"))
    assert of(actions, Deliver) == [Deliver(message("m"), "a")]
    assert sorted(recipients(actions, message("m"))) == ["b", "c"]
    assert not of(driver.push("b", message("m")), Deliver)


@every_router
@pytest.mark.parametrize("outcome", [Outcome.IGNORE, Outcome.REJECT])
def test_message_that_is_not_accepted_goes_nowhere(name, outcome):
    driver = joined(name, "a", "b", "c")
    actions = driver.push("a", message("m"), outcome=outcome)
    assert not of(actions, Deliver)
    assert not recipients(actions, message("m"))
    copies = of(driver.say("b", Rpc((message("m"),))), AnotherSource)
    assert bool(copies) is (outcome is Outcome.IGNORE)


@every_router
def test_what_one_topic_refuses_keeps_no_message_out_of_another_and_nobody_pays_for_having_it(name):
    """The same bytes have the same id in every topic, and whoever is first could say them in the wrong one."""
    driver, wrong = joined(name, "a", "b"), Topic("wrong")
    driver.tell(Subscribe(wrong))
    driver.connect("liar", topics=(wrong,))
    before = driver.score("b") if name == "gossipsub" else 0.0
    assert of(driver.push("liar", message("m", wrong), outcome=None), Validate)
    assert not of(driver.push("b", message("m")), Validate), "it comes again once the other topic has decided"
    driver.tell(Validated(message("m").id, Outcome.REJECT))
    assert of(driver.push("b", message("m")), Deliver) == [Deliver(message("m"), "b")]
    assert name != "gossipsub" or driver.score("b") >= before
    assert not of(driver.push("liar", message("m", wrong)), Validate), "what is valid in one topic is in no other"
    driver.push("liar", message("ours", wrong), outcome=Outcome.REJECT)
    (published,) = of(driver.tell(Publish(message("ours"))), Published)
    assert published.fates and not published.is_duplicate


@every_router
def test_publish_is_reported_and_reaches_every_neighbour(name):
    driver = joined(name, "a", "b")
    actions = driver.tell(Publish(message("m")))
    (report,) = of(actions, Published)
    assert [peer for peer, _ in report.fates] == ["a", "b"]
    assert sorted(recipients(actions, message("m"))) == ["a", "b"]


@every_router
def test_readiness_and_state_follow_the_topic(name):
    driver = joined(name, "a", "b")
    assert driver.router.is_ready(T)
    assert set(driver.mesh()) == {"a", "b"}
    driver.tell(Unsubscribe(T))
    assert driver.mesh() == ()


@every_router
def test_full_queues_are_told_of(name):
    driver = joined(name, "a")
    driver.tell(SendFailed("a", Rpc((message("m"),))))
    assert SlowPeer("a", 1) in driver.run(1.5)
    assert driver.router.state().peers[0].dropped == 1


@every_router
def test_events_that_make_no_sense_change_nothing(name):
    driver = joined(name, "a")
    before = driver.router.state()
    for event in (
        TimerFired("nonsense"),
        Validated(b"unknown", Outcome.ACCEPT),
        PeerDisconnected("stranger"),
        ConnectFailed("stranger"),
        Probed("stranger", 0.1),
        Probed("stranger", None),
        AppScored("stranger", 1.0),
        PeerRecordLearned("stranger", b"record"),
        SendFailed("stranger", Rpc()),
    ):
        assert not of(driver.tell(event), Validate)
    assert driver.router.state().topics == before.topics


@every_router
def test_what_a_peer_says_twice_counts_once(name):
    driver = joined(name, "a")
    driver.say("a", Rpc(subscriptions=(Subscription(T, True), Subscription(T, True))))
    assert driver.router.state().peers[0].topics == (T,)


@every_router
def test_failed_control_of_a_link_that_is_no_more_is_not_said_again(name):
    driver = joined(name, "a")
    driver.tell(SendFailed("a", Rpc(control=Control(graft=(Topic("never"),)))))
    assert not controls(driver.run(1.5), "graft", "a")
