"""Scenarios: defaults, strictness, and the ready ones."""

from pathlib import Path

import pytest

from gossiplog.sim.routing.run import ScenarioRun
from gossiplog.sim.routing.sweep import load_sweep, run_sweep
from gossiplog.sim.scenario import Churn, Kill, Scenario, ScenarioError, load_scenario, parse_scenario, ready_scenarios, set_key

EXPECTED = {
    "browsers", "churn", "cold-boot", "covert-flash", "degradation", "dense", "eclipse", "heavy-tail", "lossy", "mass-failure-30",
    "mass-failure-50", "mass-failure-80", "offline-writer", "partition", "regional", "ring", "slow-peer", "sparse", "star", "sybil",
}  # fmt: skip


def test_everything_but_the_name_has_a_default() -> None:
    scenario = parse_scenario('name = "x"')
    assert scenario == Scenario("x")
    assert scenario.end_s == 5 + 100 * 0.1 + 10


def test_ready_scenarios_are_all_there_and_say_what_they_show() -> None:
    ready = ready_scenarios()
    assert set(ready) == EXPECTED
    assert all(len(about) > 30 for about in ready.values())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_ready_scenario_can_be_built(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    assert ScenarioRun(set_key(scenario, "nodes", 20), 1).network.nodes


def test_faults_are_told_apart_by_kind() -> None:
    text = 'name = "x"\n[[fault]]\nkind = "kill"\nshare = 0.5\n[[fault]]\nkind = "churn"\nrate_per_s = 2\n'
    assert parse_scenario(text).fault == (Kill(share=0.5), Churn(rate_per_s=2.0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "name: missing"),
        ("name = 1", "name: 1, expected a string"),
        ('name = "x"\nnode = 5', "node: unknown key; did you mean nodes?"),
        ('name = "x"\n[publish]\nintervall_s = 1', "publish.intervall_s: unknown key; did you mean interval_s?"),
        ('name = "x"\n[publish]\nmessages = 1.5', "publish.messages: 1.5, expected a whole number"),
        ('name = "x"\n[publish]\nmessages = true', "publish.messages: True, expected a whole number"),
        ('name = "x"\n[publish]\ninterval_s = nan', "publish.interval_s: nan, expected a finite number"),
        ('name = "x"\n[publish]\ninterval_s = 0', "publish.interval_s: 0.0, expected > 0"),
        ('name = "x"\npublish = 3', "publish: 3, expected a table"),
        ('name = "x"\nrouter = "gosipsub"', "router: 'gosipsub', expected one of floodsub"),
        ('name = "x"\nnodes = 1', "nodes: 1, expected 2 to 100000"),
        ('name = "x"\n[link]\nloss = 1.0', "link.loss: 1.0, expected ≥ 0 and < 1"),
        ('name = "x"\n[latency]\nkind = "regional"', "latency.weights: [], expected one positive number a region"),
        ('name = "x"\n[latency]\nkind = "regional"\nweights = [1, 1]\nmatrix_s = [[1, 2], [3, 1]]', "latency.matrix_s"),
        ('name = "x"\n[latency]\nmatrix_s = [[1, "a"]]', "latency.matrix_s[0][1]: 'a', expected a number"),
        ('name = "x"\n[[fault]]\nkind = "flood"', "fault[0].kind: 'flood', expected one of kill"),
        ('name = "x"\n[[fault]]\nkind = "kill"\nshare = 2', "fault.share: 2.0, expected between 0 and 1"),
        ('name = "x"\nfault = [3]', "fault[0]: 3, expected a table"),
        ('name = "x"\nfault = 3', "fault: 3, expected an array"),
        ('name = "x"\n[params]\ngosip = {}', "params.gosip"),
        ('name = "x"\n[params]\ngossipsub = 1', "params.gossipsub: 1, expected a table"),
        ('name = "x"\ndirectory = "/etc"', "directory: unknown key"),
        ("name = ", "Invalid value"),
        ('name = "x"\nnodes = ' + "[" * 5000, ""),
    ],
)
def test_mistake_is_named_by_its_key(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "file.toml")
    assert str(caught.value).startswith("file.toml: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("params.gossipsub.Dlow", 3, "params.gossipsub.Dlow: unknown key"),
        ("params.gossipsub.D", "six", "params.gossipsub.D: 'six', expected a whole number"),
        ("params.gossipsub.D_lo", 9, "params.gossipsub: parameters break the rule"),
        ("params.gossipsub.score.thresholds.gossip", 5.0, "0 >= gossip"),
    ],
)
def test_wrong_router_parameter_is_named(key: str, value: object, message: str) -> None:
    with pytest.raises(ScenarioError, match="params") as caught:
        ScenarioRun(set_key(Scenario("x"), key, value), 1)
    assert message in str(caught.value)


def test_unknown_scenario_gets_a_suggestion() -> None:
    with pytest.raises(ScenarioError, match="no scenario 'spase'") as caught:
        load_scenario("spase")
    assert caught.value.hint == "did you mean sparse?"
    with pytest.raises(ScenarioError, match="no scenario"):
        load_scenario("../simsub")
    with pytest.raises(ScenarioError, match=r"nowhere\.toml"):
        load_scenario("nowhere.toml")


def test_topology_file_lies_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "links.txt").write_text("0 1\n1 2\n")
    (tmp_path / "mine.toml").write_text('name = "mine"\nnodes = 3\n[topology]\nkind = "file"\nfile = "links.txt"\n')
    assert len(ScenarioRun(load_scenario(str(tmp_path / "mine.toml")), 1).network.nodes) == 3
    (tmp_path / "links.txt").unlink()
    with pytest.raises(ScenarioError, match=r"topology\.file"):
        ScenarioRun(load_scenario(str(tmp_path / "mine.toml")), 1)


def test_key_is_set_by_its_path() -> None:
    scenario = set_key(load_scenario("churn"), "publish.interval_s", 2)
    assert scenario.publish.interval_s == 2.0
    assert scenario.fault == load_scenario("churn").fault
    with pytest.raises(ScenarioError, match=r"name\.x"):
        set_key(scenario, "name.x", 2)


def test_sweep_runs_every_combination_with_every_seed(tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(
        'scenario = "sparse"\nseeds = 2\n[grid]\nnodes = [10]\nrouter = ["floodsub", "meshsub"]\n'
        '"publish.messages" = [2]\n"topology.connect" = [2, 3]\n'
    )
    sweep = load_sweep(grid)
    done: list[int] = []
    rows = list(run_sweep(sweep, 1, done.append))
    assert done == list(range(1, 9))
    assert [(row["router"], row["topology.connect"], row["seed"]) for row in rows] == [
        (router, connect, seed) for router in ("floodsub", "meshsub") for connect in (2, 3) for seed in (0, 1)
    ]
    assert all(row["missed"] == 0 for row in rows)
    assert rows == list(run_sweep(sweep, 2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "scenario: None"),
        ('scenario = "sparse"\nseed = 3', "seed: unknown key"),
        ('scenario = "sparse"\nseeds = 0', "seeds: 0"),
        ('scenario = "sparse"\n[grid]\nnodes = 5', "grid: expected"),
        ('scenario = "sparse"\nseeds = 100000\n[grid]\nnodes = [5, 6]', "200000 runs"),
        ('scenario = "sparse"\n[grid]\nnoodles = [5]', "noodles: unknown key"),
        ("scenario", "grid.toml"),
    ],
)
def test_mistake_in_a_grid_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "grid.toml").write_text(text)
    with pytest.raises(ScenarioError) as caught:
        load_sweep(tmp_path / "grid.toml")
    assert message in str(caught.value)
