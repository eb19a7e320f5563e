"""An entry's path: which node had it when, from whom and how, according to the facts of all nodes that share them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .fact import Fact, Node


@dataclass(slots=True)
class Had:
    """One node and the entry.

    Attributes:
        at_s: When the entry was stored there; None if the facts do not say that it was.
        way: How it came; `append` at the node where it began.
        peer: The peer that brought it, as a node if that is known.
        heard_s: When the node first heard of it, if that was earlier.
        waited_s: Since when it waited for its parents there, if it did.
        duplicates: The number of further copies.
        sent: To whom it was sent and by which part, in order; their number if it went to many at once.
        verdict: Why it was refused, if that is the latest fact.
    """

    node: Node
    at_s: float | None = None
    way: str | None = None
    peer: Node | None = None
    heard_s: float | None = None
    waited_s: float | None = None
    duplicates: int = 0
    sent: list[tuple[str, Node | int]] = field(default_factory=list)
    verdict: str | None = None

    def record(self) -> dict[str, Any]:
        """Return the attributes that have a value, for JSON."""
        columns = {
            "node": self.node,
            "time_s": self.at_s,
            "way": self.way,
            "peer": self.peer,
            "heard_s": self.heard_s,
            "waited_s": self.waited_s,
            "duplicates": self.duplicates or None,
            "sent": [{"type": type, "to": to} for type, to in self.sent] or None,
            "verdict": self.verdict,
        }
        return {name: value for name, value in columns.items() if value is not None}


def entry_way(entry: Node, facts: Iterable[Fact], names: Mapping[str, str] | None = None) -> list[Had]:
    """Collect what the facts say about one entry, by node: first the nodes that have it, in the order in which they got it.

    Args:
        entry: Its id, or its number in the simulator.
        facts: Facts of any nodes, in order for each node.
        names: Nodes by the names that others use, such as the URL of a hub; a peer not listed keeps its name.
    """
    had: dict[Node, Had] = {}
    for fact in facts:
        if fact.message == entry and fact.kind in _KINDS:
            _take(had.setdefault(fact.node, Had(fact.node)), fact, names or {})
    return sorted(had.values(), key=lambda one: (one.at_s is None, one.at_s or 0.0))


_KINDS = frozenset({"publish", "deliver", "duplicate", "ihave", "waiting", "verdict", "send", "aside"})


def _take(had: Had, fact: Fact, names: Mapping[str, str]) -> None:
    peer = names.get(fact.peer, fact.peer) if isinstance(fact.peer, str) else fact.peer
    match fact.kind:
        case "publish" | "deliver":
            if had.at_s is None:
                had.at_s, had.peer, had.verdict = fact.time_s, peer, None
                had.way = fact.way or ("append" if fact.kind == "publish" else None)
        case "duplicate":
            had.duplicates += 1
        case "ihave":
            if had.at_s is None and had.heard_s is None:
                had.heard_s = fact.time_s
        case "waiting":
            if had.waited_s is None:
                had.waited_s = fact.time_s
        case "verdict":
            if had.at_s is None:
                had.verdict = fact.reason or fact.rule
        case "send":
            had.sent.append((fact.type or "message", peer if peer is not None else fact.count or 0))
        case _:
            pass
