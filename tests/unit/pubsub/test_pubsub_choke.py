"""Choke: sampling, deciding, and links that end."""

import random

import pytest
from unit.pubsub.network import Solo, T, controls, message, names, of, recipients

from gossiplog.errors import LocalProtocolError
from gossiplog.pubsub import ChokeParams, Fate, Published, Rpc, Topic
from gossiplog.pubsub.events import Publish, SendFailed, Subscribe, Unsubscribe
from gossiplog.pubsub.routers.choke import Choke
from gossiplog.pubsub.rpc import Control, Prune


def joined(*peers, protocol=None, **fields):
    params = {"choke_threshold": 1, "choke_ticks": 2, "choke_samples_min": 2, "D_choke": 2} | fields
    driver = Solo(Choke(ChokeParams(**params), random.Random(1)))
    driver.connect(*peers, protocol=protocol)
    driver.tell(Subscribe(T))
    for peer in peers:
        driver.control(peer, graft=(T,))
    return driver


def bring(driver, order, count=3, prefix="m"):
    """Have each message come from all the peers in this order."""
    for number in range(count):
        for peer in order:
            driver.push(peer, message(f"{prefix}{number}"))


def choked_by_us(driver):
    return driver.router.state().topics[0].choked_by_us


def test_the_latest_link_is_choked_one_a_decision_down_to_d_choke():
    driver = joined(*names(4))
    driver.run(2)
    for round_, expected in enumerate([("p03",), ("p03", "p02"), ("p03", "p02")]):
        bring(driver, names(4), prefix=f"{round_} ")
        driver.run(2)
        assert choked_by_us(driver) == expected
    assert controls(driver.actions, "choke", "p03") == [T]


def test_choked_link_that_would_be_faster_is_unchoked():
    driver = joined(*names(3))
    driver.run(2)
    bring(driver, names(3), prefix="a")
    driver.run(2)
    assert choked_by_us(driver) == ("p02",)
    bring(driver, ["p02", "p00", "p01"], prefix="b")
    actions = driver.run(2)
    assert choked_by_us(driver) == ()
    assert controls(actions, "unchoke", "p02") == [T]


def test_links_with_few_samples_or_another_protocol_are_not_choked():
    few = joined(*names(4), choke_samples_min=4)
    old = joined(*names(4), protocol="/meshsub/1.2.0")
    for driver in (few, old):
        driver.run(2)
        bring(driver, names(4))
        driver.run(2)
        assert choked_by_us(driver) == ()


def test_samples_are_bounded_and_taken_of_mesh_links_only():
    driver = joined(*names(3), mcache_max=2)
    driver.connect("outside", "left")
    bring(driver, ["outside", *names(3)], count=5)
    assert len(driver.router._copies) == 2
    assert "outside" not in driver.router._samples[T]


def test_peer_that_choked_us_is_told_and_not_sent():
    driver = joined(*names(3))
    driver.control("p01", choke=(T, Topic("other")))
    assert driver.router.state().topics[0].choked == ("p01",)
    assert recipients(driver.push("p00", message("m")), message("m")) == ["p02"]
    assert controls(driver.run(0.2), "ihave", "p01")
    driver.control("p01", unchoke=(T, Topic("other")))
    assert sorted(recipients(driver.push("p00", message("n")), message("n"))) == ["p01", "p02"]


def test_peer_that_choked_us_is_announced_our_own_messages_too_unless_they_flood():
    for floods, fate, sent in ((False, Fate.GOSSIP, ["p00", "p02"]), (True, Fate.MESH, names(3))):
        driver = joined(*names(3), flood_publish=floods)
        driver.control("p01", choke=(T,))
        (report,) = of(driver.tell(Publish(message("ours"))), Published)
        assert dict(report.fates)["p01"] is fate
        assert sorted(recipients(driver.actions, message("ours"))) == sorted(sent)
    driver = joined(*names(3), flood_publish=False)
    driver.control("p01", choke=(T,))
    driver.tell(Publish(message("ours")))
    assert [one.ids for one in controls(driver.run(0.2), "ihave", "p01")] == [(message("ours").id,)]


def test_choke_from_outside_the_mesh_is_passed_over():
    driver = joined(*names(2))
    driver.connect(*[f"x{number}" for number in range(9)])
    driver.router.mesh.links[T].pop("p00")
    driver.control("p00", choke=(T,))
    assert driver.router.state().topics[0].choked == ()


def test_pruned_link_is_neither_choked_nor_choking_and_another_is_unchoked_if_too_few_are_left():
    driver = joined(*names(4))
    driver.run(2)
    for prefix in "ab":
        bring(driver, names(4), prefix=prefix)
        driver.run(2)
    assert choked_by_us(driver) == ("p03", "p02")
    driver.control("p00", choke=(T,))
    actions = driver.control("p00", prune=(Prune(T, (), 60),))
    assert len(choked_by_us(driver)) == 1
    assert controls(actions, "unchoke")
    assert driver.router.state().topics[0].choked == ()
    driver.tell(Unsubscribe(T))
    assert driver.router.state().topics == ()


def test_link_that_is_pruned_in_the_heartbeat_that_chokes_it_hears_of_the_prune_alone():
    driver = joined(*names(4), D=4, D_lo=3, D_hi=6, D_score=0, D_out=0)
    late = [f"x{number}" for number in range(3)]
    driver.run(3)
    for peer in late:
        driver.connect(peer, outbound=True)
        driver.control(peer, graft=(T,))
    bring(driver, [*names(4), *late])
    actions = driver.run(1)
    assert len(driver.mesh()) == 4 and choked_by_us(driver) == ()
    assert controls(actions, "prune", "x2") and not controls(actions, "choke")


def test_choked_links_are_pruned_first():
    driver = joined(*names(4), D=4, D_lo=3, D_hi=6, D_score=0, D_out=0)
    driver.run(2)
    for prefix in "ab":
        bring(driver, names(4), prefix=prefix)
        driver.run(2)
    assert set(choked_by_us(driver)) == {"p02", "p03"}
    extra = [f"x{number}" for number in range(3)]
    for peer in extra:
        driver.connect(peer, outbound=True)
        driver.control(peer, graft=(T,))
    assert len(driver.mesh()) == 7
    driver.run(1)
    assert len(driver.mesh()) == 4
    assert not set(driver.mesh()) & {"p02", "p03"}


def test_choke_that_met_a_full_queue_is_said_again():
    driver = joined(*names(3))
    driver.tell(SendFailed("p00", Rpc(control=Control(choke=(T,)))))
    driver.tell(SendFailed("p01", Rpc(control=Control(choke=(T,), unchoke=(T,)))))
    driver.tell(SendFailed("p02", Rpc(control=Control(choke=(Topic("left"),)))))
    actions = driver.run(1.1)
    assert controls(actions, "choke") == [T]
    assert controls(actions, "unchoke", "p01") == [T]


def test_copies_of_a_topic_left_meanwhile_are_not_sampled():
    driver = joined(*names(2))
    driver.push("p00", message("m"))
    driver.tell(Unsubscribe(T))
    assert driver.say("p01", Rpc((message("m"),))) == []


@pytest.mark.parametrize("fields", [{"D_choke": 0}, {"choke_ticks": 0}, {"choke_samples_min": 0}])
def test_choke_parameters_that_break_a_rule_are_refused(fields):
    with pytest.raises(LocalProtocolError, match="parameters break the rule"):
        ChokeParams(**fields)
