"""Counters of one service: verdicts, syncs, bans and traffic."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping

from ...entry.validation import Verdict
from ...tasks.timings import Timings
from ..ground.protocol_ids import is_of_another
from ..transport.muxed import Connection, Traffic


class Figures:
    """The counters of one service.

    Attributes:
        verdicts: How many entries were decided on, by the way they came (`push`, `gossip`, `sync` or `post`), the outcome (`accept`,
            `known`, `ignore` or `reject`) and the rule that they broke, else empty.
        syncs: Durations of our syncs.
        bans: How many peers were banned.
        changed_at: Unix time of this process's last commit with new entries; before the first, of the service's start.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.verdicts: Counter[tuple[str, str, str]] = Counter()
        self.syncs = Timings()
        self.bans = 0
        self.changed_at = time.time()
        self._ended: dict[str, Traffic] = {}

    def count(self, way: str, verdict: Verdict) -> None:
        """Count the verdict on an entry; `way` as in `verdicts`."""
        outcome = "known" if verdict.accepted and not verdict.is_new else verdict.outcome.value
        self.verdicts[way, outcome, verdict.rule or ""] += 1

    def on_commit(self, entries: object) -> None:
        """Note that the log has changed."""
        self.changed_at = time.time()

    def on_detached(self, connection: Connection) -> None:
        """Keep the traffic of a connection that the log no longer uses."""
        _add(self._ended, self.carried(connection))

    def traffic(self, connections: Iterable[Connection]) -> dict[str, Traffic]:
        """Sum up the traffic by protocol, of the connections that have ended and of these."""
        total: dict[str, Traffic] = {}
        _add(total, self._ended)
        for connection in connections:
            _add(total, self.carried(connection))
        return total

    def carried(self, connection: Connection) -> dict[str, Traffic]:
        """Return the traffic of a connection by protocol, without that of other logs."""
        return {protocol: traffic for protocol, traffic in connection.traffic.items() if not is_of_another(protocol, self._topic)}

    def streams(self, connection: Connection) -> int:
        """Return how many streams of a connection are open, without those of other logs."""
        return sum(not is_of_another(stream.protocol, self._topic) for stream in connection.streams)


def _add(total: dict[str, Traffic], more: Mapping[str, Traffic]) -> None:
    for protocol, traffic in more.items():
        sum_ = total.setdefault(protocol, Traffic())
        sum_.bytes_in += traffic.bytes_in
        sum_.bytes_out += traffic.bytes_out
