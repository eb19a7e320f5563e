"""A graph as one HTML file: the list of entries with its lanes, a search, and the details of the selected entry.

It is drawn by the same modules as the page of a running server (`drawing/`), joined into one script.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from importlib.resources import files

from .layout import GraphNode
from .palette import palette_css

_MODULES = ("palette.js", "dom.js", "lanes.js", "log_list.js", "entry_details.js", "standalone.js")
"""In an order in which each module comes after those that it imports."""
_STYLE = """
body{display:grid;grid-template:auto minmax(0,1fr)/minmax(0,1fr);height:100dvh}
header{display:flex;flex-wrap:wrap;gap:.5rem 1rem;align-items:center;padding:.6rem 1rem;border-bottom:1px solid var(--line)}
h1{font-size:1rem} header input{flex:1 1 12rem;max-width:26rem} .count{color:var(--muted);font-size:.9rem}
main{display:grid;grid-template:minmax(0,1fr)/minmax(0,1fr) minmax(18rem,26rem);min-height:0}
aside{overflow:auto;padding:1rem;border-left:1px solid var(--line)}
@media (max-width:760px){main{grid-template:minmax(0,3fr) minmax(0,2fr)/minmax(0,1fr)}
aside{border-left:0;border-top:1px solid var(--line)}}
"""


def draw_html(nodes: Iterable[GraphNode], *, title: str) -> Iterator[str]:
    """Yield the pieces of a page that loads nothing: its policy forbids all requests, and all scripts but its own.

    Args:
        nodes: Newest first.
        title: The page's heading; it is escaped, like everything from the log.
    """
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    style = palette_css() + (files(__package__) / "drawing" / "drawing.css").read_text("utf-8") + _STYLE
    yield (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n<body><header><h1>{escape(title)}</h1></header>\n<main></main>\n"
        '<noscript>This page draws its entries with a script.</noscript>\n<script type="application/json">['
    )
    separator = "\n"
    for node in nodes:
        yield separator + _record(node)
        separator = ",\n"
    yield f'\n]</script>\n<script type="module">{script}</script></body></html>\n'


def _record(node: GraphNode) -> str:
    record = {"id": node.id, "parents": node.parents, "clock": node.clock, "author": node.author, "payload": node.payload}
    # In a script element entities are not decoded, and only `</script` and `<!--` have a meaning.
    return json.dumps(record, separators=(",", ":")).replace("<", "\\u003c")


@cache
def _script() -> str:
    """Join the modules without their imports and exports: each one sees the names of those before it."""
    folder = files(__package__) / "drawing"
    sources = ((folder / name).read_text("utf-8") for name in _MODULES)
    return "\n".join(re.sub(r"^export ", "", re.sub(r"^import .*$\n", "", source, flags=re.M), flags=re.M) for source in sources)
