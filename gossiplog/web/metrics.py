"""Figures for Prometheus. They are read when somebody asks; this module counts nothing of its own.

Source: docs/operations.md, "Metrics".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass
from operator import add

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


def _figures(logs: dict[str, tuple[Service, _Contents | None]]) -> Iterator[Metric]:
    yield from _log_figures(logs)
    for service_figures in (_entry_figures, _peer_figures, _queue_figures, _mesh_figures, _bucket_figures):
        yield from service_figures({topic: service for topic, (service, _) in logs.items()})


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


def _log_figures(logs: dict[str, tuple[Service, _Contents | None]]) -> Iterator[Metric]:
    up = GaugeMetricFamily("gossiplog_store_up", "1 if the log's store answers.", labels=["topic"])
    entries = GaugeMetricFamily("gossiplog_entries", "Entries in the log.", labels=["topic"])
    heads = GaugeMetricFamily("gossiplog_heads", "Entries that are nobody's parents.", labels=["topic"])
    quarantine = GaugeMetricFamily("gossiplog_quarantined_entries", "Entries kept out of the log.", labels=["topic"])
    changed = GaugeMetricFamily(
        "gossiplog_root_changed_timestamp_seconds",
        "When the root last changed, as far as this process saw; else its start.",
        labels=["topic"],
    )
    caught_up = GaugeMetricFamily("gossiplog_caught_up", "1 once all is here that any of the hubs had.", labels=["topic"])
    errors = CounterMetricFamily("gossiplog_store_errors", "Commits and looks at the store that failed.", labels=["topic", "error"])
    aside = CounterMetricFamily(
        "gossiplog_set_aside", "Entries that an application could make nothing of.", labels=["topic", "application", "error"]
    )
    full = GaugeMetricFamily("gossiplog_disk_full", "1 if the last commit failed for want of space.", labels=["topic"])
    for topic, (service, contents) in logs.items():
        up.add_metric([topic], service.health.trouble is None)
        full.add_metric([topic], service.health.full() is not None)
        changed.add_metric([topic], service.figures.changed_at)
        caught_up.add_metric([topic], service.has_caught_up())
        failures = Counter(service.health.failures) + Counter(service.log.writer.failures)
        for error, number in sorted(failures.items()):
            errors.add_metric([topic, error], number)
        for key, number in sorted(service.log.writer.set_aside.items()):
            aside.add_metric([topic, *key], number)
        if contents is not None and service.health.trouble is None:
            entries.add_metric([topic], contents.entries)
            heads.add_metric([topic], contents.heads)
            quarantine.add_metric([topic], contents.quarantined)
    yield from (up, full, entries, heads, quarantine, changed, caught_up, errors, aside)


def _entry_figures(services: dict[str, Service]) -> Iterator[Metric]:
    verdicts = CounterMetricFamily(
        "gossiplog_verdicts",
        "Entries decided upon, by the way on which they came and the rule.",
        labels=["topic", "way", "outcome", "rule"],
    )
    events = CounterMetricFamily("gossiplog_events", "What has happened, by name.", labels=["topic", "event"])
    commits = HistogramMetricFamily("gossiplog_commit_duration_seconds", "How long commits took.", labels=["topic"])
    syncs = HistogramMetricFamily("gossiplog_sync_duration_seconds", "How long syncs took that we pulled.", labels=["topic"])
    for topic, service in services.items():
        for key, number in sorted(service.figures.verdicts.items()):
            verdicts.add_metric([topic, *key], number)
        for event, number in sorted(service.counts.items()):
            events.add_metric([topic, event], number)
        for family, timings in ((commits, service.log.writer.commits), (syncs, service.figures.syncs)):
            family.add_metric([topic], _buckets(timings), timings.total_s)
    yield from (verdicts, events, commits, syncs)


def _buckets(timings: Timings) -> list[tuple[str, float]]:
    return [("+Inf" if bound == math.inf else str(bound), float(number)) for bound, number in timings.cumulated()]


def _peer_figures(services: dict[str, Service]) -> Iterator[Metric]:
    connections = GaugeMetricFamily("gossiplog_connections", "Connections by kind of peer.", labels=["topic", "kind"])
    streams = GaugeMetricFamily("gossiplog_streams", "Streams that are open.", labels=["topic"])
    traffic = CounterMetricFamily("gossiplog_stream_bytes", "Bytes that streams carried.", labels=["topic", "protocol", "direction"])
    bans = CounterMetricFamily("gossiplog_bans", "Peers that were banned.", labels=["topic"])
    for topic, service in services.items():
        for kind, number in sorted(Counter(link.kind for link in service.links()).items()):
            connections.add_metric([topic, kind], number)
        streams.add_metric([topic], sum(service.figures.streams(link.connection) for peer in service.peers.values() for link in peer.links))
        for protocol, carried in sorted(service.traffic().items()):
            for direction, number in (("in", carried.bytes_in), ("out", carried.bytes_out)):
                traffic.add_metric([topic, protocol or "negotiation", direction], number)
        bans.add_metric([topic], service.figures.bans)
    yield from (connections, streams, traffic, bans)


def _queue_figures(services: dict[str, Service]) -> Iterator[Metric]:
    queued = GaugeMetricFamily("gossiplog_queued_bytes", "Bytes that wait to be pushed to peers.", labels=["topic"])
    length = GaugeMetricFamily(
        "gossiplog_queue_length", "What waits: entries to be verified, work to be committed.", labels=["topic", "queue"]
    )
    for topic, service in services.items():
        queued.add_metric([topic], sum(link.queued_bytes for link in service.links()))
        length.add_metric([topic, "verify"], service.waiting)
        length.add_metric([topic, "commit"], service.log.writer.waiting)
    yield from (queued, length)


def _bucket_figures(services: dict[str, Service]) -> Iterator[Metric]:
    labels = ["topic", "bucket"]
    up = GaugeMetricFamily("gossiplog_bucket_up", "1 if the last exchange with the bucket did not fail.", labels=labels)
    exchanged = GaugeMetricFamily(
        "gossiplog_bucket_exchanged_timestamp_seconds", "When the last exchange was done; 0 before.", labels=labels
    )
    published = GaugeMetricFamily("gossiplog_bucket_published_entries", "Entries that the newest checkpoint covers.", labels=labels)
    witnesses = GaugeMetricFamily("gossiplog_bucket_witnesses", "Witnesses that have cosigned it.", labels=labels)
    faults = GaugeMetricFamily("gossiplog_bucket_faults", "What the last exchange found wrong there.", labels=labels)
    taken = CounterMetricFamily("gossiplog_bucket_taken", "Entries that came from the bucket.", labels=labels)
    failures = CounterMetricFamily("gossiplog_bucket_failures", "Exchanges that failed.", labels=labels)
    for topic, service in services.items():
        for peer in peers_of(service.log):
            here = [topic, peer.url]
            up.add_metric(here, peer.error is None)
            exchanged.add_metric(here, peer.exchanged_at)
            published.add_metric(here, peer.published)
            witnesses.add_metric(here, len(peer.witnesses))
            faults.add_metric(here, len(peer.faults))
            taken.add_metric(here, peer.taken)
            failures.add_metric(here, peer.failures)
    yield from (up, exchanged, published, witnesses, faults, taken, failures)


def _mesh_figures(services: dict[str, Service]) -> Iterator[Metric]:
    degree = GaugeMetricFamily("gossiplog_mesh_degree", "Peers that get every entry by pubsub.", labels=["topic"])
    scores = GaugeMetricFamily(
        "gossiplog_mesh_scores", "Peers in the mesh by score; of those that are ignored nothing is read.", labels=["topic", "score"]
    )
    drops = CounterMetricFamily("gossiplog_dropped", "Messages that a full queue had no room for.", labels=["topic", "queue"])
    for topic, service in services.items():
        router = service.state().router
        degree.add_metric([topic], sum(len(one.full_message) for one in router.topics if one.topic == topic))
        classes = Counter(_class(service, peer) for peer in router.peers if peer.score is not None)
        for name in ("good", "negative", "ignored"):
            scores.add_metric([topic, name], classes[name])
        drops.add_metric([topic, "pubsub"], service.counts.get("rpcs dropped", 0))
        drops.add_metric([topic, "push"], service.counts.get("pushes dropped", 0))
    yield from (degree, scores, drops)


def _class(service: Service, peer: PeerState) -> str:
    assert peer.score is not None
    return "good" if peer.score.total >= 0 else "negative" if service.host.shared.router.is_heeded(peer.peer) else "ignored"
