"""`graph`: the history as a picture."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import DecodeError
from ...graph import GraphNode, TextStyle, draw_dot, draw_html, draw_svg, draw_text
from ..entries import ID_CHARACTERS, payload_text, short_did, with_void
from ..options import OUTPUT_OR_DASH, Location, log_argument
from ..output import Output, clean, counted, cut, is_unicode, opened_output
from ..session import opened, run

if TYPE_CHECKING:
    from ...gossip_log import GossipLog

_FORMATS = ("text", "dot", "svg", "html")
_LIMIT = 100
_LIMIT_MAX = 50_000
_LANE_COLOURS = ("blue", "yellow", "green", "magenta", "cyan", "red", "bright_blue", "bright_green")
_WIDTH_PIPED = 120
_DESCRIPTION_MIN = 40
"""Columns kept for the text beside a node, for any number of lanes."""


@click.command()
@log_argument
@click.option("--format", "format_", type=click.Choice(_FORMATS), help="What to draw.  [default: by the name of FILE, else text]")
@click.option("--limit", type=click.IntRange(1, _LIMIT_MAX), default=_LIMIT, metavar="N", help="The newest N entries.")
@click.option("--ascii", "is_ascii", is_flag=True, help="For text: ASCII characters only.")
@click.option("-o", "--output", metavar="FILE", type=OUTPUT_OR_DASH, help="Write to a file rather than to stdout.")
def graph(log: Location, format_: str | None, limit: int, is_ascii: bool, output: str | None) -> None:
    """Draw the graph.

    Draws the newest entries, newest on top, with the heads marked.

    'text' is for terminals, 'dot' for Graphviz, 'svg' a single picture, and 'html' a page with the picture, a search and the details of the
    selected entry.

    \b
    Examples
      gossiplog graph app.db
      gossiplog graph app.db -o history.svg
      gossiplog graph app.db --format dot --limit 50 | dot -Tpdf > history.pdf
    """
    out = Output(is_json=False)

    async def task() -> tuple[list[GraphNode], int, str]:
        async with opened(log) as opened_log:
            return await graph_nodes(opened_log, limit), await opened_log.count(), opened_log.topic

    suffix = Path(output or "").suffix.lower().removeprefix(".")
    format_ = format_ or (suffix if suffix in _FORMATS else "text")
    nodes, count, topic = run(task)
    title = f"{clean(log.name)}: {topic}, {counted(count, 'entry', 'entries')}"
    pieces: Iterator[str]
    if format_ == "text":
        lines = graph_lines(nodes, out, is_ascii=is_ascii, is_file=output is not None)
        pieces = (line + "\n" for line in lines)
    elif format_ == "dot":
        pieces = (line + "\n" for line in draw_dot(nodes))
    elif format_ == "svg":
        pieces = draw_svg(nodes, title=title)
    else:
        pieces = draw_html(nodes, title=title)
    if output is not None and output != "-":
        with opened_output(output) as file:
            file.writelines(piece.encode() for piece in pieces)
    else:
        for piece in pieces:
            out.line(piece.removesuffix("\n"))
    if not nodes:
        out.note("nothing to draw: the log is empty")
    elif count > len(nodes):
        out.note(f"the newest {len(nodes):,} of {count:,} entries; --limit N draws more")


async def graph_nodes(log: GossipLog, limit: int) -> list[GraphNode]:
    """Read the newest entries, newest first, as nodes of a drawing."""
    heads = set(await log.heads())
    nodes = []
    async for entry, is_void in with_void(log, log.iterate(reverse=True, limit=limit)):
        try:
            parents, did, payload = entry.message.parents, entry.signature.public_key, payload_text(entry)
            payload = f"(void) {payload}" if is_void else payload
        except DecodeError as error:
            parents, did, payload = (), "", f"damaged: {error}"
        nodes.append(GraphNode(entry.id, parents, entry.clock, did, payload, entry.id in heads))
    return nodes


def graph_lines(nodes: list[GraphNode], out: Output, *, is_ascii: bool = False, is_file: bool = False) -> Iterator[str]:
    """Yield the text drawing's lines, coloured if stdout takes colours, and as wide as the terminal."""
    width = shutil.get_terminal_size((_WIDTH_PIPED, 24)).columns if sys.stdout.isatty() and not is_file else _WIDTH_PIPED
    has_colour = out.colour and not is_file
    clocks = max((len(str(node.clock)) for node in nodes), default=1)

    def paint(text: str, column: int) -> str:
        return click.style(text, fg=_LANE_COLOURS[column % len(_LANE_COLOURS)]) if has_colour else text

    def describe(node: GraphNode, used: int) -> str:
        id = node.id[:ID_CHARACTERS]
        beside = f"  {node.clock:>{clocks}}  {short_did(node.author)}  "
        payload = cut(clean(node.payload), max(8, width - used - len(id) - len(beside)))
        if has_colour:
            id, beside = click.style(id, fg="yellow"), click.style(beside, fg="bright_black")
        return f"{id}{beside}{payload}"

    style = TextStyle(
        ascii_only=is_ascii or not (is_file or is_unicode(sys.stdout)), paint=paint, lanes_max=max(4, (width - _DESCRIPTION_MIN) // 2)
    )
    return draw_text(nodes, describe, style)
