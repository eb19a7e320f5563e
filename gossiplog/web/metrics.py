"""Figures for Prometheus. They are read when somebody asks; this module counts nothing of its own.

Source: docs/operations.md, "Metrics".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass
from itertools import chain
from operator import add
from typing import Any, TypeAlias

import trio
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from starlette.requests import Request
from starlette.responses import Response

from ..bucket import peers_of
from ..errors import GossipLogError
from ..log.requests import ReadCount, ReadQuarantineCount
from ..net.hub.server import Hub
from ..net.reports.health import ANSWER_S
from ..net.service.service import Service
from ..plan import Plan, ask
from ..pubsub.router import PeerState
from ..tasks.timings import Timings
from ..version import VERSION

_SHARE = 100
"""Counting takes at most a hundredth of the time."""


@dataclass(slots=True)
class _Contents:
    """What is in a log, as last read.

    Attributes:
        counted_at: When the first two were counted, by `trio.current_time`.
    """

    entries: int = 0
    quarantined: int = 0
    heads: int = 0
    counted_at: float = -1e9
    took_s: float = 0.0


class MetricsPage:
    """Serves `/metrics`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._contents: dict[str, _Contents] = {}
        self._registry = CollectorRegistry()
        figures = _Figures(hub, self._contents)
        self._registry.register(figures)
        hub.on_closed = figures.keep
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)

    async def show(self, request: Request) -> Response:
        """GET /metrics, as text or, if the client asks for it, as OpenMetrics. Also answers, and reports it, while a store is away."""
        async with trio.open_nursery() as nursery:
            for topic in self._contents.keys() - self._hub.services.keys():
                del self._contents[topic]
            for topic, service in self._hub.services.items():
                nursery.start_soon(self._read, self._contents.setdefault(topic, _Contents()), service)
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(self._registry), headers={"content-type": content_type})

    async def _read(self, contents: _Contents, service: Service) -> None:
        if await service.health.check() is not None:
            return
        with trio.move_on_after(ANSWER_S):
            try:
                contents.heads = len(await service.log.heads())
                began = trio.current_time()
                if began - contents.counted_at >= _SHARE * contents.took_s:
                    contents.entries, contents.quarantined = await service.log.run(_count())
                    contents.counted_at, contents.took_s = began, trio.current_time() - began
            except GossipLogError:
                # The next check of its health will report it.
                return


def _count() -> Plan[tuple[int, int]]:
    entries, _ = yield from ask(ReadCount())
    quarantined, _ = yield from ask(ReadQuarantineCount())
    return entries, quarantined


class _Figures(Collector):
    """The collector that `prometheus_client` asks for a server's figures."""

    def __init__(self, hub: Hub, contents: dict[str, _Contents]) -> None:
        self._hub = hub
        self._contents = contents
        # What the logs of a shelf have counted that are closed: what was counted does not become less.
        self._kept: dict[str, list[Sample]] = {}

    def keep(self, topic: str, service: Service) -> None:
        """Keep what was counted of a log that is closed."""
        if not self._hub.logs.is_pinned(topic):
            for family in _figures({topic: (service, None)}):
                if family.type in _COUNTED:
                    family.samples += self._kept.get(family.name, ())
                    self._kept[family.name] = _together(family, {topic}).samples

    def collect(self) -> Iterator[Metric]:
        """Read all figures."""
        hub = self._hub
        yield InfoMetricFamily("gossiplog_build", "The version that runs.", value={"version": VERSION})
        yield GaugeMetricFamily("gossiplog_open_sockets", "Connections that are open.", value=hub.admission.open)
        yield GaugeMetricFamily(
            "gossiplog_half_open_sockets", "Connections that have not said what they want.", value=hub.admission.half_open
        )
        services = {**hub.closing, **hub.services}
        families = list(_figures({topic: (service, self._contents.get(topic)) for topic, service in services.items()}))
        if hub.logs.shelf is not None:
            yield GaugeMetricFamily("gossiplog_open_logs", "Logs of the shelf that are open.", value=len(hub.logs.open_topics))
            for family in families:
                family.samples += self._kept.get(family.name, ())
            families = [_together(family, set(hub.logs.open_topics)) for family in families]
        yield from families


_COUNTED = ("counter", "histogram")
_FAMILIES: tuple[tuple[type[Any], str, str, tuple[str, ...]], ...] = (
    (GaugeMetricFamily, "store_up", "1 if the log's store answers.", ()),
    (GaugeMetricFamily, "disk_full", "1 if the last commit failed for want of space.", ()),
    (GaugeMetricFamily, "entries", "Entries in the log.", ()),
    (GaugeMetricFamily, "heads", "Entries that are nobody's parents.", ()),
    (GaugeMetricFamily, "quarantined_entries", "Entries kept out of the log.", ()),
    (GaugeMetricFamily, "root_changed_timestamp_seconds", "When the root last changed, as far as this process saw; else its start.", ()),
    (GaugeMetricFamily, "caught_up", "1 once all is here that any of the hubs had.", ()),
    (CounterMetricFamily, "store_errors", "Commits and looks at the store that failed.", ("error",)),
    (CounterMetricFamily, "set_aside", "Entries that an application could make nothing of.", ("application", "error")),
    (CounterMetricFamily, "verdicts", "Entries decided upon, by the way on which they came and the rule.", ("way", "outcome", "rule")),
    (CounterMetricFamily, "events", "What has happened, by name.", ("event",)),
    (HistogramMetricFamily, "commit_duration_seconds", "How long commits took.", ()),
    (HistogramMetricFamily, "sync_duration_seconds", "How long syncs took that we pulled.", ()),
    (GaugeMetricFamily, "connections", "Connections by kind of peer.", ("kind",)),
    (GaugeMetricFamily, "streams", "Streams that are open.", ()),
    (CounterMetricFamily, "stream_bytes", "Bytes that streams carried.", ("protocol", "direction")),
    (CounterMetricFamily, "bans", "Peers that were banned.", ()),
    (GaugeMetricFamily, "queued_bytes", "Bytes that wait to be pushed to peers.", ()),
    (GaugeMetricFamily, "queue_length", "What waits: entries to be verified, work to be committed.", ("queue",)),
    (GaugeMetricFamily, "mesh_degree", "Peers that get every entry by pubsub.", ()),
    (GaugeMetricFamily, "mesh_scores", "Peers in the mesh by score; of those that are ignored nothing is read.", ("score",)),
    (CounterMetricFamily, "dropped", "Messages that a full queue had no room for.", ("queue",)),
    (GaugeMetricFamily, "bucket_up", "1 if the last exchange with the bucket did not fail.", ("bucket",)),
    (GaugeMetricFamily, "bucket_exchanged_timestamp_seconds", "When the last exchange was done; 0 before.", ("bucket",)),
    (GaugeMetricFamily, "bucket_published_entries", "Entries that the newest checkpoint covers.", ("bucket",)),
    (GaugeMetricFamily, "bucket_witnesses", "Witnesses that have cosigned it.", ("bucket",)),
    (GaugeMetricFamily, "bucket_faults", "What the last exchange found wrong there.", ("bucket",)),
    (CounterMetricFamily, "bucket_taken", "Entries that came from the bucket.", ("bucket",)),
    (CounterMetricFamily, "bucket_failures", "Exchanges that failed.", ("bucket",)),
)
"""The figures of logs: kind, name after `gossiplog_`, what it says, and labels after `topic`."""
_Figure: TypeAlias = tuple[str, tuple[str, ...], Any]
"""A name of `_FAMILIES`, values of its labels, and the figure; of a histogram the buckets and the sum."""


def _figures(logs: dict[str, tuple[Service, _Contents | None]]) -> Iterator[Metric]:
    families = {name: kind(f"gossiplog_{name}", says, labels=["topic", *labels]) for kind, name, says, labels in _FAMILIES}
    for topic, (service, contents) in logs.items():
        for name, labels, value in chain(_of_log(service, contents), _of_network(service)):
            families[name].add_metric([topic, *labels], *(value if isinstance(value, tuple) else (value,)))
    yield from families.values()


def _together(family: Metric, topics: Set[str]) -> Metric:
    """Add up the figures of these topics under the topic `*`; of points in time take the latest."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    for sample in family.samples:
        if sample.labels.get("topic") in topics:
            # Each log may have a bucket of its own, too.
            sample = sample._replace(labels=sample.labels | dict.fromkeys(sample.labels.keys() & {"topic", "bucket"}, "*"))
        key = (sample.name, tuple(sorted(sample.labels.items())))
        if (before := found.get(key)) is not None:
            combine = max if family.name.endswith("_timestamp_seconds") else add
            sample = sample._replace(value=combine(before.value, sample.value))
        found[key] = sample
    family.samples = list(found.values())
    return family


def _of_log(service: Service, contents: _Contents | None) -> Iterator[_Figure]:
    writer, is_up = service.log.writer, service.health.trouble is None
    yield "store_up", (), is_up
    yield "disk_full", (), service.health.full() is not None
    yield "root_changed_timestamp_seconds", (), service.figures.changed_at
    yield "caught_up", (), service.has_caught_up()
    for error, number in sorted((Counter(service.health.failures) + Counter(writer.failures)).items()):
        yield "store_errors", (error,), number
    for key, number in sorted(writer.set_aside.items()):
        yield "set_aside", key, number
    if contents is not None and is_up:
        yield "entries", (), contents.entries
        yield "heads", (), contents.heads
        yield "quarantined_entries", (), contents.quarantined
    yield "commit_duration_seconds", (), (_buckets(writer.commits), writer.commits.total_s)
    yield "queue_length", ("commit",), writer.waiting
    for peer in peers_of(service.log):
        yield "bucket_up", (peer.url,), peer.error is None
        yield "bucket_exchanged_timestamp_seconds", (peer.url,), peer.exchanged_at
        yield "bucket_published_entries", (peer.url,), peer.published
        yield "bucket_witnesses", (peer.url,), len(peer.witnesses)
        yield "bucket_faults", (peer.url,), len(peer.faults)
        yield "bucket_taken", (peer.url,), peer.taken
        yield "bucket_failures", (peer.url,), peer.failures


def _of_network(service: Service) -> Iterator[_Figure]:
    figures, router = service.figures, service.state().router
    for verdict, number in sorted(figures.verdicts.items()):
        yield "verdicts", verdict, number
    for event, number in sorted(service.counts.items()):
        yield "events", (event,), number
    yield "sync_duration_seconds", (), (_buckets(figures.syncs), figures.syncs.total_s)
    for kind, number in sorted(Counter(link.kind for link in service.links()).items()):
        yield "connections", (kind,), number
    yield "streams", (), sum(figures.streams(link.connection) for peer in service.peers.values() for link in peer.links)
    for protocol, carried in sorted(service.traffic().items()):
        yield "stream_bytes", (protocol or "negotiation", "in"), carried.bytes_in
        yield "stream_bytes", (protocol or "negotiation", "out"), carried.bytes_out
    yield "bans", (), figures.bans
    yield "queued_bytes", (), sum(link.queued_bytes for link in service.links())
    yield "queue_length", ("verify",), service.waiting
    yield "mesh_degree", (), sum(len(one.full_message) for one in router.topics if one.topic == service.topic)
    classes = Counter(_class(service, peer) for peer in router.peers if peer.score is not None)
    for name in ("good", "negative", "ignored"):
        yield "mesh_scores", (name,), classes[name]
    yield "dropped", ("pubsub",), service.counts.get("rpcs dropped", 0)
    yield "dropped", ("push",), service.counts.get("pushes dropped", 0)


def _buckets(timings: Timings) -> list[tuple[str, float]]:
    return [("+Inf" if bound == math.inf else str(bound), float(number)) for bound, number in timings.cumulated()]


def _class(service: Service, peer: PeerState) -> str:
    assert peer.score is not None
    return "good" if peer.score.total >= 0 else "negative" if service.host.shared.router.is_heeded(peer.peer) else "ignored"
