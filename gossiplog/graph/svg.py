"""A graph as a standalone SVG, newest entry on top: nodes have their authors' colours, text beside them, and details in tooltips."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape

from .layout import GraphNode, GraphRow, lay_out
from .palette import DARK, LIGHT, author_colour

_ROW = 26
_LANE = 18
_MARGIN = 18
_PAYLOAD_CHARACTERS = 90
_TITLE_CHARACTERS = 600
_CHARACTER_WIDTH = 7.3
_CLOCK_X, _AUTHOR_X, _PAYLOAD_X = 150, 164, 240
"""The end of the clock's column and the beginnings of the next two, from the left edge of the text."""


def _theme(colours: Mapping[str, str]) -> str:
    return (
        f".bg{{fill:{colours['surface']}}} text{{fill:{colours['ink']}}} .c{{fill:{colours['muted']}}} "
        f".l{{stroke:{colours['strong-line']}}} .n{{stroke:{colours['surface']}}} .r .hit{{fill:{colours['ink']}}}"
    )


_STYLE = f"""
  text{{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}}
  .a{{font-weight:600}} .l{{fill:none;stroke-width:1.75;stroke-linecap:round}} .n{{stroke-width:1.5}}
  .r .hit{{fill-opacity:0}} .r:hover .hit{{fill-opacity:.05}} {_theme(LIGHT)}
  @media (prefers-color-scheme:dark){{{_theme(DARK)}}}
"""


def draw_svg(nodes: Iterable[GraphNode], *, title: str) -> Iterator[str]:
    """Yield the pieces of an SVG document without outside references; everything from the log is escaped.

    Args:
        nodes: Newest first. All are laid out before the first piece, because the first line has the size.
        title: Read by screen readers.
    """
    rows = list(lay_out(nodes))
    lanes = 1 + max((link.end for row in rows for link in row.links), default=0)
    lanes = max(lanes, 1 + max((row.column for row in rows), default=0))
    text_x = _MARGIN + lanes * _LANE + 8
    longest = max((len(_payload_of(row.node)) for row in rows), default=0)
    width = round(text_x + _PAYLOAD_X + longest * _CHARACTER_WIDTH + _MARGIN)
    height = max(1, len(rows)) * _ROW + 2 * _MARGIN
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{_clean(title)}">\n<title>{_clean(title)}</title>\n<style>{_STYLE}</style>\n'
        f'<rect class="bg" width="{width}" height="{height}"/>\n'
    )
    yield from _lines(rows)
    for index, row in enumerate(rows):
        yield _node(index, row, text_x, width)
    yield "</svg>\n"


def _lines(rows: list[GraphRow]) -> Iterator[str]:
    """Yield the lanes; a straight stretch is one line over all its rows."""
    since: dict[int, int] = {}
    for index, row in enumerate(rows):
        straight: set[int] = set()
        y = _y(index)
        for start, end, _ in row.links:
            if start == end:
                straight.add(start)
                since.setdefault(start, y)
                continue
            middle = y + _ROW / 2
            yield f'<path class="l" d="M{_x(start)} {y}C{_x(start)} {middle} {_x(end)} {middle} {_x(end)} {y + _ROW}"/>\n'
        for lane in [lane for lane in since if lane not in straight]:
            yield _straight(lane, since.pop(lane), y)
    for lane, start_y in since.items():
        yield _straight(lane, start_y, _y(len(rows) - 1) + _ROW // 2, is_cut=True)


def _straight(lane: int, start: int, end: int, *, is_cut: bool = False) -> str:
    dashes = ' stroke-dasharray="1 5"' if is_cut and end - start <= _ROW else ""
    return f'<path class="l"{dashes} d="M{_x(lane)} {start}V{end}"/>\n'


def _node(index: int, row: GraphRow, text_x: int, width: int) -> str:
    node = row.node
    x, y = _x(row.column), _y(index)
    details = f"{node.id}\nclock {node.clock}\n{node.author}\nparents: {' '.join(node.parents) or 'none'}\n{node.payload}"
    colour = author_colour(node.author)
    ring = f'<rect x="{x - 8}" y="{y - 8}" width="16" height="16" rx="5" fill="none" stroke="{colour}"/>' if node.is_head else ""
    return (
        f'<g class="r" data-id="{_clean(node.id)}"><title>{_clean(details[:_TITLE_CHARACTERS])}</title>'
        f'<rect class="hit" y="{y - _ROW // 2}" width="{width}" height="{_ROW}"/>'
        f'{ring}<rect class="n" x="{x - 6}" y="{y - 6}" width="12" height="12" rx="4" fill="{colour}"/>'
        f'<text y="{y + 4}"><tspan class="a" x="{text_x}">{_clean(node.id[:12])}</tspan>'
        f'<tspan class="c" x="{text_x + _CLOCK_X}" text-anchor="end">{node.clock}</tspan>'
        f'<tspan class="c" x="{text_x + _AUTHOR_X}">{_clean(node.author[-8:])}</tspan>'
        f'<tspan x="{text_x + _PAYLOAD_X}">{_clean(_payload_of(node))}</tspan></text></g>\n'
    )


def _payload_of(node: GraphNode) -> str:
    return node.payload if len(node.payload) <= _PAYLOAD_CHARACTERS else node.payload[: _PAYLOAD_CHARACTERS - 1] + "…"


def _x(column: int) -> int:
    return _MARGIN + column * _LANE


def _y(index: int) -> int:
    return _MARGIN + index * _ROW + _ROW // 2


def _clean(text: str) -> str:
    """Escape for XML, in text and in attributes; characters that XML forbids or that would reorder the text are replaced."""
    return escape("".join(c if c.isprintable() or c == "\n" else "�" for c in text), quote=True)
