"""simsub's rules, and the gate on its published figures with a few seeds."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gossiplog.sim.simsub.reproduce import CounterReport, PublishedRun, as_json, judge, published_runs, reproduce
from gossiplog.sim.simsub.simsub import RULES_2018, RULES_2022_V10, RULES_2022_V11, SimsubResult, run_simsub

VECTORS = Path(__file__).parents[3] / "vectors" / "simsub.json"


def test_every_message_reaches_every_node_once_under_all_rules() -> None:
    for rules in (RULES_2018, RULES_2022_V10, RULES_2022_V11):
        counters = run_simsub(rules, 60, 20, 0.2, 3).counters
        assert counters["deliver"] == 60 * 20
        assert counters["connect"] == 60 * rules.connect or rules.adaptive


def test_injected_messages_count_as_publish_in_2018_and_apart_in_2022() -> None:
    lonely = replace(RULES_2018, connect=0)
    assert run_simsub(lonely, 10, 4, 0.1, 1).counters["publish"] == 5 * 4
    counters = run_simsub(replace(RULES_2022_V10, connect=0), 10, 4, 0.1, 1).counters
    assert (counters["publish"], counters["message"], counters["deliver"]) == (4, 0, 4)


def test_messages_are_forgotten_after_120_heartbeats_and_not_asked_for_again() -> None:
    counters = run_simsub(RULES_2018, 30, 2, 140.0, 1).counters
    assert counters["deliver"] == 60


def test_same_seed_gives_the_same_counters_under_any_hash_seed() -> None:
    code = "from gossiplog.sim.simsub.simsub import *; print([run_simsub(r, 50, 20, 0.05, 9).counters for r in RULES.values()])"
    root = str(Path(__file__).parents[4])
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "4242")
    }
    assert len(outputs) == 1


def test_published_figures_in_the_package_are_the_shared_vectors() -> None:
    shared = json.loads(VECTORS.read_text())
    runs = published_runs()
    assert [run.name for run in runs] == [row["name"] for row in shared["runs"] + shared["later"]]
    assert runs[0] == PublishedRun("2018-run1", "2018", 100, 10, 1.0, {k: shared["runs"][0][k] for k in runs[0].counters}, ())
    assert runs[-1].rules == "2022-v1.1"
    assert runs[2].lagged == ("ihave",)


def test_gate_holds_for_the_small_runs_with_a_few_seeds() -> None:
    small = [run for run in published_runs() if run.nodes == 100 and run.messages <= 100]
    reports = list(reproduce(small, range(8)))
    assert [report.run.name for report in reports] == ["2018-run1", "2018-run2", "2022-v1.0-100", "2022-v1.1-100"]
    assert all(report.holds for report in reports), [as_json(report) for report in reports]


def test_reports_do_not_depend_on_the_number_of_processes() -> None:
    runs = published_runs()[:1]
    seen: list[tuple[str, int, int]] = []
    one = list(reproduce(runs, range(4)))
    two = list(reproduce(runs, range(4), jobs=2, progress=lambda *step: seen.append(step)))
    assert one == two
    assert seen == [("2018-run1", done, 4) for done in (1, 2, 3, 4)]


def counter(report: tuple[CounterReport, ...], name: str) -> CounterReport:
    return next(row for row in report if row.name == name)


def test_gate_fails_for_a_counter_that_is_off_and_leaves_lagged_ones_out() -> None:
    run = replace(published_runs()[0], counters={"deliver": 10, "publish": 100, "graft": 50, "iwant": 7, "prune": 0}, lagged=("iwant",))
    results = [SimsubResult({"deliver": 10, "publish": 105 + n % 2, "graft": 60 + n % 3, "iwant": 900, "prune": 0}, 1) for n in range(20)]
    report = judge(run, results)
    assert not report.holds
    assert [(row.name, row.holds) for row in report.counters] == [
        ("deliver", True),
        ("publish", False),
        ("graft", False),
        ("iwant", None),
        ("prune", True),
    ]
    assert counter(report.counters, "prune").ratio is None
    assert as_json(report)["counters"]["iwant"]["ratio"] == round(900 / 7, 4)


def test_deliver_must_be_exact_in_every_seed() -> None:
    run = replace(published_runs()[0], counters={"deliver": 10})
    assert not judge(run, [SimsubResult({"deliver": 9}, 1), SimsubResult({"deliver": 11}, 1)]).holds


@pytest.mark.slow
@pytest.mark.parametrize("run", published_runs(), ids=lambda run: run.name)
def test_gate_holds_for_every_published_run(run: PublishedRun) -> None:
    """`gossiplog sim reproduce simsub` takes 100 seeds of each; here a large run, whose counters spread less, takes ten."""
    (report,) = reproduce([run], range(100 if run.nodes * run.messages <= 10_000 else 10))
    assert report.holds, as_json(report)
