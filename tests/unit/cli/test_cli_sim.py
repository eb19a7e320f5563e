"""`gossiplog sim`: what it prints and writes."""

import csv
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gossiplog.cli.sim import sim
from gossiplog.errors import LocalProtocolError
from gossiplog.sim.measure.plots import plot_run
from gossiplog.sim.routing.run import ScenarioRun, run_scenario
from gossiplog.sim.scenario import Attack, PublishSpec, Scenario

SVG = ("--format", "svg")
SMALL = ("--nodes", "12", "--set", "publish.messages=3", "--set", "publish.linger_s=2.0")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(sim, list(arguments))


def test_scenarios_are_listed() -> None:
    lines = call("scenarios").output.splitlines()
    assert len(lines) == 20
    assert lines[0].startswith("browsers")
    assert json.loads(call("scenarios", "--json").output)["ring"].startswith("Each node dials the next")


def test_run_prints_a_summary_and_writes_what_is_asked_for(tmp_path: Path) -> None:
    result = call(
        "run",
        "dense",
        "--seed",
        "4",
        "--router",
        "meshsub",
        *SMALL,
        "--trace",
        str(tmp_path / "t.jsonl"),
        "--transcript",
        str(tmp_path / "t.txt"),
    )
    assert result.exit_code == 0, result.output
    assert "router: meshsub" in result.output
    assert "deliver: 36" in result.output
    assert len((tmp_path / "t.txt").read_text().splitlines()) == len((tmp_path / "t.jsonl").read_text().splitlines()) + 1


def test_play_serves_the_page_and_the_traces_until_it_is_ended(tmp_path: Path) -> None:
    traces = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for trace in traces:
        assert f"sim play {trace}" in call("run", "dense", *SMALL, "--trace", str(trace)).stderr
    command = [sys.executable, "-m", "gossiplog", "sim", "play", *map(str, traces), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, ExitStack() as stack:
        # A test that fails must not wait for it.
        stack.callback(process.kill)
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        with urllib.request.urlopen(url) as answer:
            told = json.loads(answer.read())
        assert told["views"] == ["simulator"]
        assert [trace["name"] for trace in told["traces"]] == ["a.jsonl", "b.jsonl"]
        with urllib.request.urlopen(url.rstrip("/") + told["traces"][1]["url"]) as answer:
            assert answer.read() == traces[1].read_bytes()
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": "text/html"})) as answer:
            assert b'src="glass/main.js"' in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(url + "traces/2")
        refused.value.close()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PAR1\x15\x04", "is Parquet"),
        (b"", "is no trace"),
        (b"name = 'dense'\n", "is no trace"),
        (b'{"kind": "send"}\n', "is no trace: a fact without scenario"),
        (b"\xff" * 100_000, "is no trace"),
        (b"[" * 100_000, "is no trace"),
    ],
)
def test_what_is_no_trace_is_not_played(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "t.jsonl").write_bytes(content)
    result = call("play", str(tmp_path / "t.jsonl"))
    assert isinstance(result.exception, LocalProtocolError)
    assert words in str(result.exception)
    assert ".jsonl" in (result.exception.hint or "")


def test_run_in_json_is_one_object() -> None:
    row = json.loads(call("run", "dense", *SMALL, "--json").stdout)
    assert (row["scenario"], row["router"], row["nodes"], row["missed"]) == ("dense", "gossipsub", 12, 0)


def test_attack_is_compared_with_its_absence() -> None:
    output = call("run", "eclipse", "--baseline", *SMALL, "--set", "attack.nodes=6").output
    lines = output.splitlines()
    assert "nodes: 12 and 6 malicious" in lines
    assert [line.split()[0] for line in lines[-2:]] == ["attacked", "quiet"]


def test_interrupted_run_prints_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    work = ScenarioRun.work

    def interrupted(self: ScenarioRun, progress: object = None) -> None:
        def stop() -> None:
            raise KeyboardInterrupt

        self.network.at(5.15, stop)
        work(self)

    monkeypatch.setattr(ScenarioRun, "work", interrupted)
    result = call("run", "dense", *SMALL)
    assert result.exit_code == 130
    assert "interrupted at 5.15 s of 7.30 s" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "dens"), "no scenario 'dens'"),
        (("run", "dense", "--set", "publish.messges=3"), "publish.messges: unknown key; did you mean messages?"),
        (("run", "dense", "--set", "publish.messages=many"), "publish.messages: 'many', expected a whole number"),
        (("run", "dense", "--trace", "t.csv"), ".jsonl or .parquet"),
    ],
)
def test_mistake_is_an_error_of_ours(arguments: tuple[str, ...], words: str) -> None:
    error = call(*arguments).exception
    assert isinstance(error, LocalProtocolError)
    assert words in str(error)


@pytest.mark.parametrize(
    "arguments", [("run", "dense", "--set", "nodes"), ("run", "dense", "--router", "x"), ("reproduce", "simsub", "--run", "x")]
)
def test_wrong_usage_ends_with_two(arguments: tuple[str, ...]) -> None:
    assert call(*arguments).exit_code == 2


def test_compare_sets_routers_side_by_side() -> None:
    output = call("compare", "dense", *SMALL, "--router", "floodsub", "--router", "meshsub", "--seeds", "2", "--jobs", "1").output
    lines = output.splitlines()
    assert lines[0] == "scenario dense, 12 nodes, 3 messages, 2 seeds from 0"
    assert [line.split()[0] for line in lines[3:]] == ["floodsub", "meshsub"]
    row = json.loads(call("compare", "dense", *SMALL, "--router", "choke", "--jobs", "1", "--json").stdout)
    assert row["router"] == "choke" and row["seeds"] == 1


def test_sweep_writes_rows(tmp_path: Path) -> None:
    grid = tmp_path / "g.toml"
    grid.write_text('scenario = "sparse"\n[grid]\nnodes = [8]\n"publish.messages" = [1, 2]\n')
    lines = [json.loads(line) for line in call("sweep", str(grid), "--jobs", "1").stdout.splitlines()]
    assert [row["publish.messages"] for row in lines] == [1, 2]
    assert call("sweep", str(grid), "--jobs", "1", "--out", str(tmp_path / "rows.csv")).exit_code == 0
    rows = list(csv.DictReader((tmp_path / "rows.csv").read_text().splitlines()))
    assert [row["delivered"] for row in rows] == ["7", "14"]
    assert call("sweep", str(grid), "--out", str(tmp_path / "rows.xls")).exit_code == 2


def test_reproduce_prints_every_counter_and_a_verdict() -> None:
    result = call("reproduce", "simsub", "--seeds", "10", "--run", "2018-run1", "--jobs", "1")
    assert result.exit_code == 0, result.output
    assert "publish       6473" in result.output
    assert result.output.splitlines()[-1] == "preview with 10 seeds (the gate needs 100): holds for all 1 runs"
    row = json.loads(call("reproduce", "simsub", "--seeds", "2", "--run", "2018-run1", "--jobs", "1", "--json").stdout)
    assert row["is_verdict"] is False
    assert row["runs"][0]["counters"]["deliver"] == {
        "published": 1000, "mean": 1000, "sd": 0, "min": 1000, "max": 1000, "ratio": 1.0, "rule": "exact", "holds": True,
    }  # fmt: skip


def test_reproduce_begins_with_the_seed_that_it_is_told() -> None:
    words = ("reproduce", "simsub", "--run", "2018-run1", "--jobs", "1", "--json")
    both, second = (json.loads(call(*words, *more).stdout) for more in (("--seeds", "2"), ("--seeds", "1", "--first", "1")))
    means = [row["runs"][0]["counters"]["publish"] for row in (both, second)]
    assert (both["first"], second["first"]) == (0, 1)
    assert means[1]["mean"] != means[0]["mean"] and means[0]["min"] <= means[1]["mean"] <= means[0]["max"]


def test_plots_are_drawn_in_all_formats(tmp_path: Path) -> None:
    result = call("run", "sparse", *SMALL, "--plots", str(tmp_path / "png"))
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "png").iterdir()) == [
        "degrees.png", "messages.png", "propagation.png", "redundancy.png",
    ]  # fmt: skip
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "png").iterdir())
    call(
        "compare", "sparse", *SMALL, "--router", "floodsub", "--router", "choke", "--jobs", "1", "--plots", str(tmp_path), "--format", "svg"
    )
    assert (tmp_path / "comparison.svg").read_text().startswith("<?xml")
    call("compare", "sparse", *SMALL, "--router", "floodsub", "--jobs", "1", "--plots", str(tmp_path), "--format", "pdf")
    assert (tmp_path / "comparison.pdf").read_bytes().startswith(b"%PDF")


def test_a_comparison_has_all_seeds_and_a_band_of_their_spread(tmp_path: Path) -> None:
    one, three = (
        call("compare", "sparse", *SMALL, "--router", "floodsub", "--jobs", "1", "--seeds", seeds, "--plots", str(tmp_path / seeds), *SVG)
        for seeds in ("1", "3")
    )
    assert (one.exit_code, three.exit_code) == (0, 0)
    drawn = [(tmp_path / seeds / "comparison.svg").read_text() for seeds in ("1", "3")]
    assert ["FillBetween" in svg for svg in drawn] == [False, True]
    assert ["seed 0" in svg for svg in drawn] == [True, False]
    assert "seeds 0 to 2" in drawn[1]


def test_figure_of_an_attack_that_lets_nothing_through_can_be_drawn(tmp_path: Path) -> None:
    scenario = Scenario("void", nodes=2, publish=PublishSpec(messages=1, start_s=1.0, linger_s=0.0), attack=Attack(nodes=2))
    run = ScenarioRun(scenario, 1)
    run.network.at(0.9, run.network.crash, run.network.nodes[0])
    run.work()
    assert len(plot_run(run.result(), tmp_path)) == 4
    with pytest.raises(LocalProtocolError, match="plot format 'gif'"):
        plot_run(run_scenario(scenario, 1), tmp_path, "gif")


def test_nothing_heavy_is_imported_to_run_a_scenario() -> None:
    code = (
        "import sys\nfrom gossiplog.cli.sim import sim\nfrom click.testing import CliRunner\n"
        f"r = CliRunner().invoke(sim, {['run', 'dense', *SMALL]!r})\nassert r.exit_code == 0, r.output\n"
        "print([m for m in ('numpy', 'matplotlib', 'pyarrow', 'rich', 'trio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert done.stdout.strip() == "[]"
