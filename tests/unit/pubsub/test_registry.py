"""Routers that a program registers are known by their names, like the package's own."""

import random

import pytest

from gossiplog.errors import LocalProtocolError
from gossiplog.pubsub import FloodsubParams, GossipsubParams, make_router, register_router, registry, router_names
from gossiplog.pubsub.routers.floodsub import Floodsub
from gossiplog.sim.routing.run import run_scenario
from gossiplog.sim.scenario import PublishSpec, Scenario, ScenarioError


class Mine(Floodsub):
    name = "mine"


def test_a_registered_router_is_made_by_its_name_and_runs_in_scenarios(monkeypatch):
    monkeypatch.setattr(registry, "_KNOWN", dict(registry._KNOWN))
    with pytest.raises(ScenarioError, match="router"):
        Scenario("s", router="mine", nodes=5)
    register_router("mine", Mine, FloodsubParams)
    assert router_names() == (*registry.ROUTERS, "mine")
    assert isinstance(make_router("mine", FloodsubParams(), random.Random(1)), Mine)
    with pytest.raises(LocalProtocolError, match="GossipsubParams, which are not mine's"):
        make_router("mine", GossipsubParams(), random.Random(1))
    with pytest.raises(LocalProtocolError, match="already"):
        register_router("mine", Mine, FloodsubParams)
    scenario = Scenario("s", nodes=8, publish=PublishSpec(messages=3))
    mine, floodsub = (run_scenario(scenario, 1, router).summary for router in ("mine", "floodsub"))
    assert (mine.delivered, mine.missed, mine.rmr) == (floodsub.delivered, 0, floodsub.rmr)


@pytest.mark.parametrize("name", registry.ROUTERS)
def test_a_name_of_the_package_is_taken(name):
    with pytest.raises(LocalProtocolError, match=f"a router '{name}' already"):
        register_router(name, Mine, FloodsubParams)
