"""`gossiplog.blocking` is `gossiplog.aio` without its awaiting: `python tests/support/derive_blocking.py` writes it anew after a change.

The replacements are few because what differs is in one place, `Call`. `tests/unit/portal/test_surface.py` fails if the two have drifted.
"""

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "gossiplog"

DOCSTRING = '''"""GossipLog for plain synchronous code and notebooks: what `gossiplog` is in trio, with the same names
and arguments.

    with gossiplog.blocking.open("app.db", topic="app.example.com", signer=signer) as log:
        log.append({"op": "add"})

Each call runs in the one thread with trio that the process has, and may come from any thread. Ctrl-C cancels it, and is raised when it
has ended. A log that nobody closes is closed at the end of the process. `apply` and `authorize` do not run in the caller's thread: a plain
function runs in the database's, and an `async def apply` in trio, so that it may await nothing but its transaction.

This file is derived from `aio.py`, by `python tests/support/derive_blocking.py`.

Source: docs/asyncio.md
"""
'''
RULES = (
    (r"-> Callable\[Concatenate\[Facade\[S\], P\], Coroutine\[Any, Any, T\]\]:", "-> Callable[Concatenate[Facade[S], P], T]:"),
    (
        r"from collections.abc import AsyncIterator, Callable, Coroutine, Sequence",
        "from collections.abc import Callable, Coroutine, Iterator, Sequence",
    ),
    (r"import AbstractAsyncContextManager$", "import AbstractAsyncContextManager, AbstractContextManager"),
    (r"class Block\(Unopened, AbstractAsyncContextManager\[T\]\):", "class Block(Unopened, AbstractContextManager[T]):"),
    (r"an `async with`", "a `with`"),
    (r'"async with"', '"with"'),
    (r"An asynchronous iterator", "An iterator"),
    (r"class Pages\(AsyncIterator", "class Pages(Iterator"),
    (r"StopAsyncIteration", "StopIteration"),
    (r"async def aclose", "def close"),
    (r"async def __a(enter|exit|next)__", r"def __\1__"),
    (r"def __aiter__", "def __iter__"),
    (r"async def ", "def "),
    (r"await anext\(", "next("),
    (r"await ", ""),
    (r"\.wait_in_asyncio\(\)", ".wait()"),
)


def derive(source: str) -> str:
    """The text of `blocking.py` for a text of `aio.py`."""
    body = source[source.index("from __future__") :]
    for pattern, replacement in RULES:
        body, count = re.subn(pattern, replacement, body, flags=re.MULTILINE)
        assert count, f"nothing matches {pattern}"
    return f"{DOCSTRING}\n{body}"


if __name__ == "__main__":
    (PACKAGE / "blocking.py").write_text(derive((PACKAGE / "aio.py").read_text("utf-8")), "utf-8")
