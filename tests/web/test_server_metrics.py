"""What a server tells Prometheus: all of it parses, has its help and its type, and says what happened."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import pytest
import trio
from network_support import TOPIC, eventually, fetch, memory_log, until_count
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as text_metrics

from gossiplog import Application, Reject
from gossiplog.archive import entry_to_line
from gossiplog.net.hub.server import Hub
from gossiplog.tasks.timings import Timings

CONTRACT = {
    "build entries heads root_changed_timestamp_seconds events verdicts quarantined_entries commit_duration_seconds sync_duration_seconds",
    "stream_bytes connections streams mesh_degree mesh_scores queue_length queued_bytes dropped bans store_errors store_up disk_full",
    "open_sockets half_open_sockets caught_up set_aside",
    "bucket_up bucket_exchanged_timestamp_seconds bucket_published_entries bucket_taken bucket_failures bucket_faults bucket_witnesses",
}
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


async def families(hub: Hub) -> dict[str, Metric]:
    """Ask as Prometheus does."""
    answer = await fetch(hub, "/metrics", headers={"accept": OPEN_METRICS})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    return {family.name: family for family in open_metrics(answer.body.decode())}


def value(found: dict[str, Metric], name: str, **labels: str) -> float | None:
    for sample in found[f"gossiplog_{name.removesuffix('_total')}".removesuffix("_count")].samples:
        if sample.name == f"gossiplog_{name}" and labels.items() <= sample.labels.items():
            return sample.value
    return None


async def test_every_figure_is_there_with_its_help_and_type_in_both_formats() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        found = await families(hub)
        names = {f"gossiplog_{name}" for line in CONTRACT for name in line.split()}
        assert {name for name in found if name.startswith("gossiplog_")} == names
        assert {"process_resident_memory_bytes", "process_open_fds", "python_info", "python_gc_collections"} <= set(found)
        assert all(family.documentation and family.type != "unknown" for family in found.values())
        plain = await fetch(hub, "/metrics")
        assert plain.headers["content-type"].startswith("text/plain; version=")
        assert {family.name for family in text_metrics(plain.body.decode())} >= names - {"gossiplog_build"}


async def test_what_an_application_sets_aside_is_counted_by_the_type_of_its_error() -> None:
    def apply(entries, tx) -> None:
        for entry in entries:
            if entry.payload in ("a", "b"):
                raise Reject("unreadable", id=entry.id)
            int(entry.payload)

    async with memory_log(1, app=Application("sums", 1, apply)) as log, memory_log(2) as other, log.listen("127.0.0.1:0") as hub:
        await other.append_many(["1", "a", "b", "many"])
        await log.sync(other)
        found = await families(hub)
        assert value(found, "set_aside_total", topic=TOPIC, application="sums", error="Reject") == 2
        assert value(found, "set_aside_total", topic=TOPIC, application="sums", error="ValueError") == 1


async def test_figures_say_what_happened() -> None:
    async with memory_log(1) as log, memory_log(2) as client, memory_log(3) as other, log.listen("127.0.0.1:0") as hub:
        await log.append_many(range(20))
        await client.append_many(range(30))
        async with client.connect(hub.urls[0]):
            await until_count(log, 50)
            await until_count(client, 50)
            pushed = await client.append("pushed")
            await until_count(log, 51)
        await eventually(lambda: hub.links() == [])
        posted = await other.append("posted")
        for status in (201, 201):
            answer = await fetch(
                hub, "/api/messages", method="POST", headers={"content-type": "application/json"}, body=entry_to_line(posted)
            )
            assert answer.status == status
        found = await families(hub)
        assert value(found, "entries", topic=TOPIC) == 52
        assert value(found, "heads", topic=TOPIC) == len(await log.heads()) == 2
        assert value(found, "verdicts_total", way="sync", outcome="accept") == 30
        assert value(found, "verdicts_total", way="push", outcome="accept") == 1
        assert value(found, "verdicts_total", way="post", outcome="accept") == 1
        assert value(found, "verdicts_total", way="post", outcome="known") == 1
        assert value(found, "events_total", event="entries appended") == 21
        assert value(found, "commit_duration_seconds_count") == log.writer.commits.count >= 3
        assert value(found, "sync_duration_seconds_count") == 1
        assert value(found, "store_up") == 1
        for protocol in (f"/canvas/v1/{TOPIC}/push", "negotiation"):
            for direction in ("in", "out"):
                assert (value(found, "stream_bytes_total", protocol=protocol, direction=direction) or 0) > 0, (protocol, direction)
        carried = sum(s.value for s in found["gossiplog_stream_bytes"].samples if s.labels["direction"] == "in")
        assert carried > sum([len(entry.value) async for entry in client.iterate()]) - 20 * len(pushed.value)
        assert abs((value(found, "root_changed_timestamp_seconds") or 0) - time.time()) < 60


async def test_servers_of_one_process_have_figures_of_their_own() -> None:
    logs = memory_log(1), memory_log(2, "other.example.com")
    async with logs[0] as log, logs[1] as other, log.listen("127.0.0.1:0") as one, other.listen("127.0.0.1:0") as two:
        await log.append_many(range(3))
        counted = [value(await families(hub), "entries") for hub in (one, two)]
    assert counted == [3, 0]


async def test_verdicts_name_the_rule_that_was_broken() -> None:
    async with memory_log(1) as log, memory_log(2, "elsewhere.example.com") as other, log.listen("127.0.0.1:0") as hub:
        foreign = await other.append("of another topic")
        header = {"content-type": "application/json"}
        assert (await fetch(hub, "/api/messages", method="POST", headers=header, body=entry_to_line(foreign))).status == 400
        assert value(await families(hub), "verdicts_total", way="post", outcome="reject", rule="topic") == 1


def test_timings_count_by_upper_bounds() -> None:
    timings = Timings()
    for seconds in (0.0005, 0.0006, 0.2, 100.0):
        timings.add(seconds)
    cumulated = dict(timings.cumulated())
    assert (cumulated[0.0005], cumulated[0.001], cumulated[0.25], cumulated[60.0], cumulated[float("inf")]) == (1, 2, 3, 3, 4)
    assert timings.count == 4
    assert timings.total_s == pytest.approx(100.2011)


def test_counting_costs_a_commit_nothing_that_shows() -> None:
    """A commit takes a millisecond; what is counted for it takes less than a hundredth of that, on however slow a machine."""
    timings = Timings()
    began = time.process_time()
    for _ in range(20_000):
        timings.add(0.003)
    assert (time.process_time() - began) / 20_000 < 10e-6


@pytest.mark.slow
async def test_promtool_finds_nothing_wrong_with_the_figures() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.fail("promtool is missing: .ci/run installs Debian's prometheus")
    async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0") as hub, client.connect(hub.urls[0]):
        await log.append_many(range(10))
        await until_count(client, 10)
        body = (await fetch(hub, "/metrics")).body
        done = await trio.run_process([promtool, "check", "metrics"], stdin=body, capture_stdout=True, capture_stderr=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b""), done


@pytest.fixture(autouse=True)
def _needs_nothing_global() -> Iterator[None]:
    """No figure of a server is in the registry that all of a process share."""
    from prometheus_client import REGISTRY

    yield
    assert not [name for name in REGISTRY._names_to_collectors if name.startswith("gossiplog")]
