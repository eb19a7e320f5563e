"""The attacks of the ready scenarios: with scoring on, honest nodes miss nothing."""

from dataclasses import replace

import pytest

from gossiplog.sim.measure.metrics import RunResult
from gossiplog.sim.routing.run import run_scenario
from gossiplog.sim.scenario import Attack, load_scenario

ATTACKS = ("sybil", "eclipse", "cold-boot", "covert-flash", "degradation")


def attacked(name: str, nodes: int = 40, messages: int = 80, **changes: object) -> RunResult:
    """Run an attack in small: 40 honest nodes and as many attackers, under attack from one third of the messages on."""
    scenario = load_scenario(name)
    attack = replace(scenario.attack, nodes=nodes, connect=15, attack_s=min(scenario.attack.attack_s, 13.0))
    publish = replace(scenario.publish, messages=messages)
    return run_scenario(replace(scenario, nodes=nodes, attack=attack, publish=publish, **changes), 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ATTACKS)
def test_honest_nodes_get_everything_under_attack(name: str) -> None:
    result = attacked(name)
    assert result.summary.missed == 0, f"gossiplog sim run {name} --seed 1"
    assert result.summary.delivered == 39 * 80


def test_squatters_are_pruned_from_the_meshes() -> None:
    result = attacked("sybil", messages=150)
    assert result.summary.missed == 0
    late = [result.metrics.copies[number] for number in range(120, 150)]
    early = [result.metrics.copies[number] for number in range(20)]
    assert max(late) < min(early)  # what went to squatters is no longer sent


def test_attackers_without_an_attack_are_honest() -> None:
    scenario = load_scenario("covert-flash")
    quiet = replace(scenario, nodes=30, attack=Attack(nodes=10, attack_s=1e6), publish=replace(scenario.publish, messages=20))
    result = run_scenario(quiet, 1)
    assert result.summary.missed == 0
    assert all(0 not in hops for hops in result.metrics.hops)
