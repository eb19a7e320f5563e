"""The exact engine: the real routers on virtual time, connections, faults, queues."""

import random
from dataclasses import replace
from typing import Any

import pytest

from gossiplog.pubsub.actions import Action, Connect, Disconnect, Probe, SendRpc, SetTimer
from gossiplog.pubsub.events import (
    ConnectFailed,
    Event,
    PeerConnected,
    PeerDisconnected,
    Probed,
    RpcReceived,
    SendFailed,
    Start,
    TimerFired,
)
from gossiplog.pubsub.registry import ROUTERS
from gossiplog.pubsub.router import RouterState
from gossiplog.pubsub.rpc import Rpc, Subscription
from gossiplog.sim.link import Latency
from gossiplog.sim.measure.metrics import Metrics, RunResult
from gossiplog.sim.routing.network import TOPIC, Network, SimNode
from gossiplog.sim.routing.run import ScenarioRun, run_scenario
from gossiplog.sim.scenario import Churn, Kill, LatencySpec, LinkSpec, Offline, Partition, PublishSpec, Scenario, Slow, TopologySpec

PLAIN = Rpc(subscriptions=(Subscription(TOPIC, True),))


class Probe0:
    """A router that writes down what happens to it and does what it is told."""

    protocols = ("/test/1",)

    def __init__(self) -> None:
        self.log: list[tuple[float, Event]] = []
        self.todo: list[Action] = []

    def handle(self, event: Event, now: float) -> list[Action]:
        self.log.append((now, event))
        todo, self.todo = self.todo, []
        return todo

    def state(self) -> RouterState:
        return RouterState("test")

    def is_heeded(self, peer: Any) -> bool:
        return True

    def is_ready(self, topic: Any) -> bool:
        return True


class World:
    """A few nodes with such routers; latency is 10 ms between any two."""

    def __init__(self, nodes: int = 2, spec: LinkSpec | None = None, rate: float = 1.0, offset_s: float = 0.0) -> None:
        self.nodes = [SimNode(number, "10.0.0.1") for number in range(nodes)]
        self.nodes[0].rate, self.nodes[0].offset_s = rate, offset_s
        self.metrics = Metrics(nodes, nodes)
        self.network = Network(
            self.nodes, lambda _: Probe0(), Latency(1, LatencySpec(low_s=0.01, high_s=0.01)), spec or LinkSpec(), self.metrics, 1
        )
        for node in self.nodes:
            self.network.start(node)
        self.now = 0.0

    def router(self, number: int) -> Probe0:
        router = self.nodes[number].router
        assert isinstance(router, Probe0)
        return router

    def do(self, number: int, *actions: Action) -> None:
        self.router(number).todo = list(actions)
        self.network.tell(self.nodes[number], TimerFired("poke"))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.network.run(self.now)

    def seen(self, number: int, kind: type) -> list[tuple[float, Any]]:
        return [(round(now, 6), event) for now, event in self.router(number).log if isinstance(event, kind)]


def connected(**spec: Any) -> World:
    world = World(spec=LinkSpec(**spec))
    world.network.dial(world.nodes[0], world.nodes[1])
    world.pass_time(1.0)
    return world


def test_connection_stands_after_one_trip_there_and_two_here() -> None:
    world = connected()
    assert world.seen(1, PeerConnected) == [(0.01, PeerConnected(0, "/test/1", False, "10.0.0.1"))]
    assert world.seen(0, PeerConnected) == [(0.02, PeerConnected(1, "/test/1", True, "10.0.0.1"))]


def test_what_the_dialled_says_at_once_reaches_the_dialler() -> None:
    world = World()
    world.network.dial(world.nodes[0], world.nodes[1])
    world.router(1).todo = [SendRpc((0,), PLAIN)]
    world.pass_time(1.0)
    assert world.seen(0, RpcReceived) == [(0.02, RpcReceived(1, PLAIN))]


def test_rpc_takes_the_latency_and_timers_fire_in_time() -> None:
    world = connected()
    world.do(0, SendRpc((1,), PLAIN), SetTimer("tick", 1.5), SetTimer("tock", 9.0))
    world.do(0, SetTimer("tick", 1.25))
    world.pass_time(1.0)
    assert world.seen(1, RpcReceived) == [(1.01, RpcReceived(0, PLAIN))]
    assert [(at, event.token) for at, event in world.seen(0, TimerFired) if event.token != "poke"] == [(1.25, "tick")]


def test_sending_to_somebody_unconnected_fails() -> None:
    world = World()
    world.do(0, SendRpc((1,), PLAIN))
    world.pass_time(0.1)
    assert world.seen(0, SendFailed) == [(0.0, SendFailed(1, PLAIN))]


def test_both_sides_must_release_a_connection_before_it_is_closed() -> None:
    world = connected()
    world.do(0, Disconnect(1))
    world.do(0, Disconnect(1))
    world.pass_time(0.1)
    assert not world.seen(0, PeerDisconnected)
    world.do(1, Disconnect(0))
    world.pass_time(0.1)
    assert world.seen(1, PeerDisconnected) == [(1.1, PeerDisconnected(0))]
    assert world.seen(0, PeerDisconnected) == [(1.11, PeerDisconnected(1))]
    world.do(0, Disconnect(1), Connect(1))
    world.pass_time(0.1)
    assert len(world.seen(0, PeerConnected)) == 2


def test_crash_is_noticed_after_one_trip_and_dialling_the_dead_fails() -> None:
    world = connected()
    world.network.crash(world.nodes[1])
    world.do(0, SendRpc((1,), PLAIN))
    world.pass_time(0.1)
    assert world.seen(0, PeerDisconnected) == [(1.01, PeerDisconnected(1))]
    world.do(0, Connect(1), Probe(1))
    world.pass_time(20.0)
    assert world.seen(0, ConnectFailed) == [(1.12, ConnectFailed(1))]
    assert world.seen(0, Probed) == [(11.1, Probed(1, None))]


def test_restart_before_the_crash_is_noticed_ends_the_old_connection_first() -> None:
    world = connected()
    world.network.crash(world.nodes[1])
    world.network.start(world.nodes[1])
    world.network.dial(world.nodes[1], world.nodes[0])
    world.pass_time(1.0)
    kinds = [type(event) for _, event in world.router(0).log if isinstance(event, PeerConnected | PeerDisconnected)]
    assert kinds == [PeerConnected, PeerDisconnected, PeerConnected]
    assert len(world.seen(1, PeerConnected)) == 1
    world.do(0, SendRpc((1,), PLAIN))
    world.pass_time(1.0)
    assert len(world.seen(1, RpcReceived)) == 1


def test_dialler_that_crashes_meanwhile_leaves_no_half_connection() -> None:
    world = World()
    world.network.dial(world.nodes[0], world.nodes[1])
    world.pass_time(0.015)
    world.network.crash(world.nodes[0])
    world.network.start(world.nodes[0])
    world.pass_time(1.0)
    assert len(world.seen(1, PeerDisconnected)) == 1
    assert not world.seen(0, PeerConnected)
    assert not world.network.registry


def test_probe_measures_the_round_trip() -> None:
    world = World()
    world.do(0, Probe(1))
    world.pass_time(1.0)
    assert world.seen(0, Probed) == [(0.02, Probed(1, 0.02))]


def test_full_queue_of_a_slow_link_refuses_and_tells() -> None:
    world = connected(queue_max=3)
    world.network.slow_down(world.nodes[1], 10.0)
    world.do(0, *[SendRpc((1,), PLAIN)] * 5)
    world.pass_time(10.0)
    arrivals = [at for at, _ in world.seen(1, RpcReceived)]
    assert len(world.seen(0, SendFailed)) == 2
    assert world.metrics.counters["dropped"] == 2
    assert len(arrivals) == 3
    assert arrivals[1] - arrivals[0] == pytest.approx(arrivals[2] - arrivals[1])
    world.network.slow_down(world.nodes[1], 0.0)
    world.do(0, SendRpc((1,), PLAIN))
    world.pass_time(0.02)
    assert len(world.seen(1, RpcReceived)) == 4


def test_uplink_is_shared_by_all_links_of_a_node() -> None:
    world = World(3, LinkSpec(bandwidth=100.0))
    for other in (1, 2):
        world.network.dial(world.nodes[0], world.nodes[other])
    world.pass_time(1.0)
    world.do(0, SendRpc((1, 2), PLAIN))
    world.pass_time(1.0)
    size = (world.seen(1, RpcReceived)[0][0] - 1.01) * 100
    assert world.seen(2, RpcReceived)[0][0] == pytest.approx(1.01 + 2 * size / 100)


def test_order_is_kept_under_jitter_and_broken_by_reordering() -> None:
    def arrivals(**spec: float) -> list[int]:
        world = connected(**spec)
        rpcs = [Rpc(hops=number) for number in range(60)]
        world.do(0, *(SendRpc((1,), rpc) for rpc in rpcs))
        world.pass_time(5.0)
        return [event.rpc.hops for _, event in world.seen(1, RpcReceived)]

    assert arrivals(jitter=3.0) == list(range(60))
    assert arrivals(reordering=0.3) != list(range(60)) and sorted(arrivals(reordering=0.3)) == list(range(60))
    assert 20 < len(arrivals(loss=0.5)) < 40
    assert 70 < len(arrivals(duplication=0.5)) < 110


def test_partition_loses_what_is_sent_and_gives_links_up_in_the_end() -> None:
    world = connected(detect_s=2.0)
    (link,) = world.network.registry.values()
    world.network.cut(link)
    world.network.sides = bytearray([0, 1])
    world.do(0, SendRpc((1,), PLAIN), Probe(1))
    world.pass_time(2.5)
    assert not world.seen(1, RpcReceived)
    assert world.metrics.counters["lost"] == 1
    assert world.seen(0, PeerDisconnected)[0][0] == world.seen(1, PeerDisconnected)[0][0] == 3.0
    assert world.seen(0, Probed) == [(3.0, Probed(1, None))]
    world.do(0, Connect(1))
    world.pass_time(5.0)
    assert world.seen(0, ConnectFailed) == [(5.51, ConnectFailed(1))]


def test_short_partition_ends_without_anybody_noticing() -> None:
    world = connected(detect_s=2.0)
    (link,) = world.network.registry.values()
    world.network.cut(link)
    world.pass_time(1.0)
    world.network.heal(link)
    world.pass_time(5.0)
    world.do(0, SendRpc((1,), PLAIN))
    world.pass_time(1.0)
    assert not world.seen(0, PeerDisconnected)
    assert len(world.seen(1, RpcReceived)) == 1


def test_clock_that_runs_wrong_fires_its_own_timers_on_time() -> None:
    world = World(rate=1.1, offset_s=100.0)
    assert world.seen(0, Start) == [(100.0, Start(0))]
    world.do(0, SetTimer("tick", 111.0))
    world.pass_time(20.0)
    ((at, _),) = [(now, event) for now, event in world.router(0).log if isinstance(event, TimerFired) and event.token == "tick"]
    assert 111.0 <= at < 111.0 + 1e-6


def small(router: str, **changes: Any) -> Scenario:
    return replace(Scenario("small", router=router, nodes=30, publish=PublishSpec(messages=20, start_s=8.0)), **changes)


def run(scenario: Scenario, seed: int = 1) -> RunResult:
    return run_scenario(scenario, seed)


@pytest.mark.parametrize("router", ROUTERS)
def test_every_router_delivers_everything_on_a_quiet_network(router: str) -> None:
    summary = run(small(router)).summary
    if router != "randomsub":  # it draws anew for every message and promises nothing
        assert summary.missed == 0
        assert summary.delivered == 29 * 20
    assert summary.published == 20
    assert summary.counters["deliver"] == summary.delivered + 20
    assert 0.01 <= summary.p50_s <= summary.p99_s <= summary.max_s
    assert summary.payload_bytes > summary.counters["message"] * 256


def test_floodsub_sends_what_flooding_costs() -> None:
    result = run(small("floodsub"))
    degree_sum = 2 * result.summary.counters["connect"]
    assert result.summary.counters["message"] == 20 * (degree_sum - 29)
    assert result.summary.rmr == pytest.approx((degree_sum - 29) / 29 - 1)
    assert sum(result.degrees) == degree_sum


def test_validation_delays_every_hop() -> None:
    quick, slow = run(small("meshsub")), run(small("meshsub", publish=PublishSpec(messages=20, start_s=8.0, validation_s=0.5)))
    assert slow.summary.missed == 0
    assert slow.summary.p50_s > quick.summary.p50_s + 0.4


@pytest.mark.parametrize(
    "fault",
    [Kill(9.0, 0.3), Kill(9.0, 0.3, 2.0), Churn(8.0, 11.0, 2.0, 1.0), Partition(9.0, 9.5), Offline(9.0, 9.5), Slow(9.0, 10.0, 2, 5000.0)],
    ids=lambda fault: type(fault).__name__,
)
def test_gossipsub_survives_each_fault(fault: Any) -> None:
    scenario = small("gossipsub", fault=(fault,), topology=TopologySpec(connect=8))
    summary = run(scenario).summary
    assert summary.published == 20
    assert summary.missed == 0


def test_long_partition_keeps_each_side_to_itself() -> None:
    scenario = small("floodsub", fault=(Partition(9.0, 30.0),), link=LinkSpec(detect_s=1.0))
    summary = run(scenario).summary
    assert summary.counters["lost"] > 0
    assert summary.missed >= 9 * 15


def test_drift_jitter_loss_and_limits_run_together() -> None:
    scenario = small(
        "gossipsub",
        clock_drift=0.01,
        link=LinkSpec(jitter=0.2, loss=0.02, duplication=0.02, reordering=0.05, bandwidth=200_000.0),
    )
    assert run(scenario).summary.missed == 0


def test_seeds_give_different_runs() -> None:
    assert run(small("gossipsub"), 1).summary != run(small("gossipsub"), 2).summary


def test_progress_tells_virtual_time_and_events() -> None:
    seen: list[tuple[float, int]] = []
    ScenarioRun(small("floodsub", nodes=60), 1).work(lambda now, events: seen.append((now, events)))
    assert seen and seen[0][1] == 1 << 14
    assert seen == sorted(seen)


def test_rng_of_the_scenario_does_not_touch_the_global_one() -> None:
    random.seed(7)
    before = random.getstate()
    run(small("gossipsub"))
    assert random.getstate() == before
