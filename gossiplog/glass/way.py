"""An entry's way: who had it when, from whom and by which way, over the facts of all nodes that share them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .fact import Fact, Node

__all__ = ["Had", "entry_way"]


@dataclass(slots=True)
class Had:
    """One node and the entry.

    Attributes:
        node: Whose facts these are.
        at_s: When the entry was stored there; None if it is not, as far as the facts go.
        way: By which way it came; `append` where it began.
        peer: Who brought it, by its node where that is known.
        heard_s: When the node first heard of it, if that was before.
        waited_s: Since when it waited for its parents there, if it did.
        duplicates: Further copies that came.
        sent: To whom it was sent, by which part, in their order; where it went to many at once, their number.
        verdict: Why it was not taken, if the latest word is that it was not.
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
        """Return what there is to say, for JSON."""
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
    """Gather what the facts say of one entry: a node each, those that have it first, in the order in which they got it.

    Args:
        entry: Its id, or its number in the simulator.
        facts: Of any nodes, each node's in order.
        names: Nodes by what others call them, such as the URL of a hub; a peer that is not there keeps its name.
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
