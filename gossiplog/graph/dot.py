"""A graph as DOT, for Graphviz."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .layout import GraphNode

__all__ = ["draw_dot"]

_PAYLOAD_CHARACTERS = 60


def draw_dot(nodes: Iterable[GraphNode]) -> Iterator[str]:
    """Yield the lines of a digraph whose edges point from an entry to its parents; everything from the log is escaped.

    Parents that are not among `nodes` are drawn as points.
    """
    yield "digraph log {"
    yield '  rankdir="BT";'
    yield '  node [shape="box", style="rounded", fontname="monospace", fontsize="10"];'
    missing: dict[str, None] = {}
    for node in nodes:
        missing.pop(node.id, None)
        label = _quote(f"{node.id[:12]}  clock {node.clock}\n{node.author[-8:]}\n{node.payload[:_PAYLOAD_CHARACTERS]}")
        bold = ', penwidth="2"' if node.is_head else ""
        yield f"  {_quote(node.id)} [label={label}, tooltip={_quote(f'{node.id} {node.author}')}{bold}];"
        for parent in dict.fromkeys(node.parents):
            # Newest first, so a parent that is drawn at all comes later.
            missing[parent] = None
            yield f"  {_quote(node.id)} -> {_quote(parent)};"
    for parent in missing:
        yield f'  {_quote(parent)} [shape="point", tooltip={_quote(parent)}];'
    yield "}"


def _quote(text: str) -> str:
    """Write a DOT string: only the quote and the backslash mean anything inside one; control characters are taken out."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + "".join(c if c.isprintable() else "�" for c in escaped) + '"'
