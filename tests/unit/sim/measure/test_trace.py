"""The trace: complete, the same in every process, the same in every format."""

import io
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from gossiplog.errors import LocalProtocolError
from gossiplog.glass.fact import TRACE_SCHEMA
from gossiplog.sim.measure.metrics import Metrics
from gossiplog.sim.measure.trace import PARQUET_ROWS, JsonLines, Transcript, open_sink
from gossiplog.sim.routing.run import run_scenario
from gossiplog.sim.scenario import Churn, LinkSpec, PublishSpec, Scenario

ROOT = str(Path(__file__).parents[4])
ROUTERS = ["gossipsub", "episub", "choke"]
SCENARIO = Scenario(
    "busy",
    nodes=15,
    publish=PublishSpec(messages=8, start_s=3.0, linger_s=3.0),
    link=LinkSpec(loss=0.02),
    fault=(Churn(3.0, 5.0, 2.0, 1.0),),
)


class Kept(io.StringIO):
    def close(self) -> None:
        """Stay readable."""


def traced(scenario: Scenario = SCENARIO, seed: int = 1) -> tuple[list[dict[str, object]], str]:
    lines, text = Kept(), Kept()
    sinks = [JsonLines(lines, scenario.name, scenario.router, seed), Transcript(text, scenario.name, scenario.router, seed)]
    run_scenario(scenario, seed, sinks=sinks)
    return [json.loads(line) for line in lines.getvalue().splitlines()], text.getvalue()


@pytest.fixture(scope="module")
def under_hash_seeds() -> list[dict[str, str]]:
    """The trace of one run with each router, from two processes with a hash seed each."""
    code = (
        "import io, json\n"
        "from gossiplog.sim.routing.run import run_scenario\n"
        "from gossiplog.sim.scenario import *\n"
        "from gossiplog.sim.measure.trace import JsonLines\n"
        "traces = {}\n"
        f"for router in {ROUTERS!r}:\n"
        "    s = Scenario('busy', router=router, nodes=25, publish=PublishSpec(messages=20, bytes=600, start_s=3.0, linger_s=3.0),"
        " link=LinkSpec(loss=0.02, jitter=0.1), fault=(Churn(3.0, 5.0, 2.0, 1.0), Partition(5.0, 6.0)), attack=Attack(nodes=5))\n"
        "    lines = traces[router] = io.StringIO()\n"
        "    lines.close = lambda: None\n"
        "    run_scenario(s, 3, sinks=[JsonLines(lines, s.name, router, 3)])\n"
        "print(json.dumps({router: lines.getvalue() for router, lines in traces.items()}))\n"
    )
    outputs = []
    for seed in ("0", "31337"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": ROOT}
        outputs.append(json.loads(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout))
    return outputs


@pytest.mark.parametrize("router", ROUTERS)
def test_same_seed_gives_the_same_bytes_under_any_hash_seed(under_hash_seeds: list[dict[str, str]], router: str) -> None:
    one, other = (traces[router] for traces in under_hash_seeds)
    assert one == other
    assert len(one) > 100_000


def test_trace_adds_up_to_the_summary() -> None:
    result = run_scenario(SCENARIO, 1)
    rows, text = traced()
    sends = [row for row in rows if row["kind"] == "send"]
    assert Counter(row["type"] for row in sends)["message"] == result.summary.counters["message"]
    assert sum(row["bytes"] for row in sends) == result.summary.payload_bytes + result.summary.control_bytes
    assert sum(row["kind"] == "deliver" for row in rows) == result.summary.delivered
    assert sum(row["kind"] == "publish" for row in rows) == result.summary.published == 8
    assert sum(row["kind"] == "dial" for row in rows) == result.summary.counters["connect"]
    assert sum(row["kind"] == "lost" for row in rows) == result.summary.counters["lost"]
    assert len(text.splitlines()) == len(rows) + 1


def test_trace_is_in_order_and_has_the_columns_of_its_schema() -> None:
    rows, _ = traced()
    columns = [name for name, _ in TRACE_SCHEMA]
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    assert [row["time_s"] for row in rows] == sorted(row["time_s"] for row in rows)
    for row in rows:
        assert list(row) == [name for name in columns if name in row]
        assert (row["scenario"], row["router"], row["seed"]) == ("busy", "gossipsub", 1)
    assert {row["kind"] for row in rows} == {
        "start", "stop", "dial", "connect", "disconnect", "publish", "deliver", "send", "lost", "fault",
    }  # fmt: skip


def test_nobody_delivers_twice_or_what_was_not_sent_to_it() -> None:
    rows, _ = traced()
    alive: set[tuple[object, object]] = set()
    sent = set()
    for row in rows:
        if row["kind"] == "stop":
            alive = {pair for pair in alive if pair[0] != row["node"]}
        elif row["kind"] == "send" and row["type"] == "message":
            sent.add((row["node"], row["peer"], row["message"]))
        elif row["kind"] == "deliver":
            assert (row["peer"], row["node"], row["message"]) in sent
            assert (row["node"], row["message"]) not in alive
            alive.add((row["node"], row["message"]))


def test_recording_changes_nothing() -> None:
    plain = run_scenario(SCENARIO, 1)
    recorded = run_scenario(SCENARIO, 1, sinks=[JsonLines(Kept(), "busy", "gossipsub", 1)])
    assert plain.summary == recorded.summary
    assert plain.events == recorded.events


def test_transcript_can_be_read() -> None:
    _, text = traced()
    assert text.startswith("# scenario busy, router gossipsub, seed 1\n")
    for words in ("publishes message 0", "delivers message 0 after 1 hops", "→", "graft (1)", "churn (1 nodes)", "start", "disconnect"):
        assert words in text


def test_parquet_holds_what_the_lines_hold(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is 170 MB and only in the extra sim")
    run_scenario(SCENARIO, 1, sinks=[open_sink(tmp_path / "t.parquet", "busy", "gossipsub", 1)])
    table = pq.read_table(tmp_path / "t.parquet")
    rows, _ = traced()
    assert table.schema.names == [name for name, _ in TRACE_SCHEMA]
    assert [{k: v for k, v in row.items() if v is not None} for row in table.to_pylist()] == rows


def test_parquet_is_written_a_row_group_at_a_time(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is 170 MB and only in the extra sim")
    metrics = Metrics(PARQUET_ROWS + 1, 1, [open_sink(tmp_path / "t.parquet", "many", "floodsub", 2)])
    for number in range(PARQUET_ROWS + 1):
        metrics.on_up(0.5, number)
    metrics.close()
    assert pq.ParquetFile(tmp_path / "t.parquet").metadata.num_row_groups == 2


def test_trace_of_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match=r"\.jsonl or \.parquet"):
        open_sink(tmp_path / "t.csv", "x", "floodsub", 1)
