"""A graph as lines of text, the way `git log --graph` draws one, newest entry on top; or as DOT, for Graphviz."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from .layout import GraphNode, GraphRow, lay_out

LANES_MAX = 24
"""Lanes further right are not drawn; a mark stands for them."""
_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_UNICODE = " ╵╷│╴╯╮┤╶╰╭├─┴┬┼"
_ASCII = " |||-/\\+-\\/+-+++"
Painter = Callable[[str, int], str]
"""Colours a piece of a line by its lane's column."""


class TextStyle:
    """The characters to draw with.

    Args:
        ascii_only: Whether to draw with ASCII characters, for terminals and files that are not UTF-8.
        paint: Given a piece of a line and its lane's column; returns it, perhaps with colour codes.
        lanes_max: The most lanes that are drawn.
    """

    def __init__(self, *, ascii_only: bool = False, paint: Painter | None = None, lanes_max: int = LANES_MAX) -> None:
        self.lines = _ASCII if ascii_only else _UNICODE
        self.node = "*" if ascii_only else "●"
        self.head = "@" if ascii_only else "◉"
        self.more = ":" if ascii_only else "⋮"
        self.beyond = ">" if ascii_only else "›"
        self.paint: Painter = paint or (lambda text, column: text)
        self.lanes_max = lanes_max


def draw_text(nodes: Iterable[GraphNode], describe: Callable[[GraphNode, int], str], style: TextStyle | None = None) -> Iterator[str]:
    """Yield the lines of the drawing, without newlines; `nodes` come newest first.

    Args:
        describe: Returns the text beside a node; its second argument is the number of columns that the lanes take.
    """
    style = style or TextStyle()
    last: GraphRow | None = None
    for row in lay_out(nodes):
        if last is not None and any(link.start != link.end for link in last.links):
            yield _link_line(last, style)
        lanes, width = _node_line(row, style)
        yield f"{lanes}  {describe(row.node, width + 2)}"
        last = row
    if last is None:
        return
    if any(link.start != link.end for link in last.links):
        yield _link_line(last, style)
    if open_lanes := sorted({link.end for link in last.links}):
        cells = dict.fromkeys(open_lanes, style.more)
        yield _paint(cells, {}, style)[0]


def _node_line(row: GraphRow, style: TextStyle) -> tuple[str, int]:
    symbol = style.head if row.node.is_head else style.node
    cells = dict.fromkeys(row.passing, style.lines[_UP | _DOWN])
    cells[row.column] = symbol
    return _paint(cells, {}, style, beyond=symbol if row.column >= style.lanes_max else style.beyond)


def _link_line(row: GraphRow, style: TextStyle) -> str:
    """Draw the line between two rows: each column's character shows the directions in which lines leave it."""
    flags: dict[int, int] = {}
    spans: dict[int, int] = {}
    for start, end, is_edge in row.links:
        flags[start] = flags.get(start, 0) | _UP
        flags[end] = flags.get(end, 0) | _DOWN
        if start == end:
            continue
        # A horizontal line has the colour of its lane at the end away from the node.
        lane = end if is_edge else start
        low, high = min(start, end), max(start, end)
        flags[low] |= _RIGHT
        flags[high] |= _LEFT
        for column in range(low, high):
            spans.setdefault(column, lane)
            if column > low:
                flags[column] = flags.get(column, 0) | _LEFT | _RIGHT
    return _paint({column: style.lines[flag] for column, flag in flags.items()}, spans, style)[0]


def _paint(cells: dict[int, str], spans: dict[int, int], style: TextStyle, beyond: str | None = None) -> tuple[str, int]:
    """Join the columns' characters; return the text and its width.

    Args:
        spans: For columns whose gap to their right is crossed by a line: the column that gives its colour.
    """
    width = min(max(cells, default=0) + 1, style.lanes_max)
    out: list[str] = []
    for column in range(width):
        cell = cells.get(column)
        out.append(" " if cell is None else style.paint(cell, column))
        if column + 1 < width:
            out.append(style.paint(style.lines[_LEFT | _RIGHT], spans[column]) if column in spans else " ")
    if max(cells, default=0) >= style.lanes_max:
        out.append(beyond or style.beyond)
        return "".join(out), 2 * width
    return "".join(out), 2 * width - 1


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
    """Write a DOT string, in which only quotes and backslashes are special; unprintable characters are replaced."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + "".join(c if c.isprintable() else "�" for c in escaped) + '"'
