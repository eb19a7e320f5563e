"""Which nodes are connected at present, and how, according to the facts of several nodes."""

from __future__ import annotations

from .fact import Fact, Node

PAIRS_MAX = 50_000
"""The most pairs of nodes; bounded because a watched server may send facts about any node."""
_NAME_CHARS_MAX = 256


class Peerings:
    """The connected pairs after a sequence of facts.

    A fact costs O(1) amortised: each pair that a start or a stop removes was added by an earlier fact.
    """

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], str] = {}
        # For each node, the nodes that it is connected to.
        self._others: dict[str, set[str]] = {}

    def take(self, fact: Fact) -> None:
        """Apply the next fact."""
        if fact.kind in ("start", "stop"):
            node = str(fact.node)
            for other in list(self._others.get(node, ())):
                self._part(_pair(node, other))
        elif fact.peer is not None and fact.kind in ("connect", "disconnect", "graft", "prune"):
            self._change(_pair(fact.node, fact.peer), fact.kind)

    def _change(self, pair: tuple[str, str], kind: str) -> None:
        if kind == "disconnect":
            self._part(pair)
        elif pair in self._pairs or (len(self._pairs) < PAIRS_MAX and max(map(len, pair)) <= _NAME_CHARS_MAX):
            how = {"graft": "full", "prune": "metadata"}.get(kind)
            self._pairs[pair] = how or self._pairs.get(pair, "none")
            for node, other in (pair, pair[::-1]):
                self._others.setdefault(node, set()).add(other)

    def _part(self, pair: tuple[str, str]) -> None:
        if self._pairs.pop(pair, None) is None:
            return
        for node, other in (pair, pair[::-1]):
            others = self._others.get(node, set())
            others.discard(other)
            if not others:
                self._others.pop(node, None)

    def between(self, a: Node, b: Node) -> str | None:
        """Return the peering of two nodes: `full`, `metadata`, or `none` if they are only connected. None if they are not connected."""
        return self._pairs.get(_pair(a, b))

    def records(self) -> list[dict[str, object]]:
        """Return all connected pairs for JSON, sorted: `nodes`, which has two, and `peering`."""
        return [{"nodes": list(pair), "peering": how} for pair, how in sorted(self._pairs.items())]


def _pair(a: Node, b: Node) -> tuple[str, str]:
    first, second = sorted((str(a), str(b)))
    return first, second
