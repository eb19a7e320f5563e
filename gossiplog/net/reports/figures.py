"""What a service has done so far, as numbers for those who watch it. Counting is all that happens here."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping

from ...entry.validation import Verdict
from ...tasks.timings import Timings
from ..ground.protocol_ids import is_of_another
from ..transport.stream import Connection, Traffic


class Figures:
    """The numbers of one service.

    Args:
        topic: Its log's.

    Attributes:
        verdicts: How many entries were decided upon, by the way on which they came (`push`, `gossip`, `sync` or `post`), the outcome
            (`accept`, `known`, `ignore` or `reject`) and the rule, which is empty where none was broken.
        changed_at: Unix time of the last commit with new entries that this process made; of its start before the first.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.verdicts: Counter[tuple[str, str, str]] = Counter()
        self.syncs = Timings()
        self.bans = 0
        self.changed_at = time.time()
        self._ended: dict[str, Traffic] = {}

    def count(self, way: str, verdict: Verdict) -> None:
        """Count what was decided upon an entry that came on a way."""
        outcome = "known" if verdict.accepted and not verdict.is_new else verdict.outcome.value
        self.verdicts[way, outcome, verdict.rule or ""] += 1

    def on_commit(self, entries: object) -> None:
        """Note that the log has changed."""
        self.changed_at = time.time()

    def on_detached(self, connection: Connection) -> None:
        """Keep what a connection carried that the log uses no longer."""
        _add(self._ended, self.carried(connection))

    def traffic(self, connections: Iterable[Connection]) -> dict[str, Traffic]:
        """Sum up what streams carried, by protocol: those of connections that have ended, and of these."""
        total: dict[str, Traffic] = {}
        _add(total, self._ended)
        for connection in connections:
            _add(total, self.carried(connection))
        return total

    def carried(self, connection: Connection) -> dict[str, Traffic]:
        """Return what a connection carried, but for other logs, by protocol."""
        return {protocol: traffic for protocol, traffic in connection.traffic.items() if not is_of_another(protocol, self._topic)}

    def streams(self, connection: Connection) -> int:
        """Return how many streams of a connection are open, but for other logs."""
        return sum(not is_of_another(stream.protocol, self._topic) for stream in connection.streams)


def _add(total: dict[str, Traffic], more: Mapping[str, Traffic]) -> None:
    for protocol, traffic in more.items():
        sum_ = total.setdefault(protocol, Traffic())
        sum_.bytes_in += traffic.bytes_in
        sum_.bytes_out += traffic.bytes_out
