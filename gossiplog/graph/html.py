"""A graph as one HTML file: the SVG, a search box and a panel with the details of the entry that was chosen."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from html import escape

from .layout import GraphNode
from .svg import draw_svg

__all__ = ["draw_html"]

_STYLE = """
:root{color-scheme:light dark}
body{margin:0;font:14px system-ui,sans-serif;display:grid;grid-template-columns:1fr minmax(18rem,26rem);height:100vh}
header{grid-column:1/3;padding:.6rem 1rem;border-bottom:1px solid #8884;display:flex;gap:1rem;align-items:baseline}
h1{font-size:1rem;margin:0} input{flex:1;max-width:24rem;font:inherit;padding:.2rem .5rem}
main{overflow:auto} aside{overflow:auto;border-left:1px solid #8884;padding:1rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font:12px ui-monospace,Menlo,Consolas,monospace}
g.r{cursor:pointer} g.r.chosen .hit{fill-opacity:.12} g.r.dim{opacity:.25}
body{grid-template-rows:auto 1fr}
"""
_SCRIPT = """
const rows=[...document.querySelectorAll("g.r")],panel=document.querySelector("pre"),box=document.querySelector("input");
const choose=row=>{rows.forEach(other=>other.classList.toggle("chosen",other===row));
panel.textContent=row.querySelector("title").textContent};
rows.forEach(row=>row.addEventListener("click",()=>choose(row)));
box.addEventListener("input",()=>{const word=box.value.toLowerCase();
rows.forEach(row=>row.classList.toggle("dim",!row.querySelector("title").textContent.toLowerCase().includes(word)))});
"""


def draw_html(nodes: Iterable[GraphNode], *, title: str) -> Iterator[str]:
    """Yield the pieces of a page that loads nothing: its policy forbids every request and every script but the one inside.

    Args:
        nodes: Newest first.
        title: The page's heading; escaped, as is everything from the log.
    """
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    yield (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><header><h1>{escape(title)}</h1>"
        '<input type="search" placeholder="id, author or payload" aria-label="Search"></header>\n<main>\n'
    )
    yield from draw_svg(nodes, title=title)
    yield f"</main><aside><pre>Point at an entry, or choose one.</pre></aside>\n<script>{_SCRIPT}</script></body></html>\n"
