"""`/client.js`: the browser client as one module, which is its modules one after the other, shortened.

The modules are written for that, and `tests/client` holds them to it: imports and exports are lines of their own, and a name at the top of
one is at the top of no other.

Source: docs/browser.md.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from ..version import VERSION
from .shortening import shortened

__all__ = ["ENTRY", "client_module", "client_sources", "show_client"]

ENTRY = "client.js"
"""The module whose exports are those of the whole."""
_IMPORT = re.compile(r'^(?:import|export) \{[^}]*\} from "\./([a-z0-9_]+\.js)"\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class)\b)", re.MULTILINE)
_EXPORTED = re.compile(r"^export \{ ([^}]*) \} from", re.MULTILINE)


@cache
def client_sources() -> dict[str, str]:
    """Return the client's modules by name, each after those that it imports."""
    folder, ordered, open_ = files("gossiplog.web") / "client", dict[str, str](), [ENTRY]
    while open_:
        source = (folder / open_[-1]).read_text()
        missing = [name for name in _IMPORT.findall(source) if name not in ordered]
        if missing:
            open_.append(missing[0])
        else:
            ordered.setdefault(open_.pop(), source)
    return ordered


@cache
def client_module() -> str:
    """Return the client as one module."""
    sources = client_sources()
    names = [name for found in _EXPORTED.findall(sources[ENTRY]) for name in found.split(", ")]
    joined = "".join(_EXPORT.sub("", _IMPORT.sub("", source)) for source in sources.values())
    head = f"// GossipLog {VERSION}, MIT licence. The modules that this is made of have comments, types, and longer names.\n"
    return head + shortened(joined, names)


async def show_client(request: Request) -> Response:
    """GET /client.js: it is for any page, and has nothing of the logs."""
    body = client_module().encode()
    headers = {
        "ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        "Cache-Control": "no-cache",
        "Access-Control-Allow-Origin": "*",
        "Cross-Origin-Resource-Policy": "cross-origin",
    }
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="text/javascript", headers=headers)
