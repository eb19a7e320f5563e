"""The guide to the simulator names every key of a scenario and parses; the pages of results show what was recorded."""

import json
import re
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner

from gossiplog.cli.app import root
from gossiplog.glass.fact import TRACE_SCHEMA
from gossiplog.sim.routing.sweep import load_sweep
from gossiplog.sim.scenario import Attack, Fault, LatencySpec, LinkSpec, PublishSpec, Scenario, TopologySpec, parse_scenario

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import sim_record  # noqa: E402

GUIDE = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
GRID, SCENARIO = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def test_pages_of_results_are_what_the_benchmarks_recorded() -> None:
    records = sorted(sim_record.RESULTS.glob("sim-*.json"))
    assert len(records) >= 5
    for path in records:
        recorded = sim_record.as_markdown(json.loads(path.read_text(encoding="utf-8")))
        assert path.with_suffix(".md").read_text(encoding="utf-8") == recorded, "run `python -m benchmarks.sim_record`"


def test_scenario_of_the_guide_is_one_and_names_every_key() -> None:
    scenario = parse_scenario(SCENARIO)
    assert scenario.params["gossipsub"]["D"] == 6
    for cls in (Scenario, TopologySpec, LatencySpec, LinkSpec, PublishSpec, Attack, *get_args(Fault)):
        for row in fields(cls):
            if row.name != "directory":
                assert re.search(rf"\b{row.name}\b", SCENARIO), f"{cls.__name__}.{row.name} is not in the guide"


def test_scenario_of_the_guide_shows_the_defaults() -> None:
    scenario = parse_scenario(re.sub(r"(?ms)^\[\[fault.*", "", SCENARIO))
    assert all(
        getattr(scenario, row.name) == row.default for row in fields(Scenario) if not is_dataclass(row.type) and row.name in "router nodes"
    )
    assert (scenario.topology, scenario.latency, scenario.link) == (TopologySpec(), LatencySpec(), LinkSpec())
    assert (scenario.publish, scenario.attack) == (PublishSpec(), Attack())


def test_grid_of_the_guide_is_one(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(GRID, encoding="utf-8")
    assert len(load_sweep(path).points) == 3 * 2 * 20


EXAMPLES = re.findall(r"^```text\n\$ gossiplog (sim .*?)\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("command", "printed"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_example_of_the_guide_prints_what_it_says(command: str, printed: str) -> None:
    result = CliRunner().invoke(root, command.split())
    pattern = ".*".join(re.escape(part) for part in printed.split("…\n"))
    assert re.fullmatch(pattern, result.stdout, re.DOTALL), result.stdout


def test_trace_of_the_guide_has_the_columns_of_the_schema() -> None:
    table = GUIDE.partition("## The trace")[2].partition("\n##")[0]
    named = [name for row in re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert named == [name for name, _ in TRACE_SCHEMA]
