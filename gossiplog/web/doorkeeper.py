"""Lets in whom the server's rules let in, by the token that a request brought.

Source: docs/operations.md, "Access".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ..net.access import Access

__all__ = ["PROVING", "Doorkeeper", "log_right"]

_WATCHED = ("/connections", "/doctor", "/facts", "/links", "/nodes", "/overview", "/peers", "/why")
"""Ends of the paths that show the server instead of the log."""
PROVING = ("/challenge", "/token")
"""Ends of the paths at which one gets what lets in."""


def log_right(scope: Scope) -> str | None:
    """Return what a request of a log's API is allowed by; None for what takes no right."""
    if scope["path"].endswith(PROVING):
        return None
    if scope["path"].endswith(_WATCHED):
        return "watch"
    return "post" if scope["method"] == "POST" else "pull"


class Doorkeeper:
    """Middleware in front of what takes a right.

    Args:
        app: That.
        access: The rules.
        topics: Of which logs the right is needed.
        right: Which, by request; None for none.
    """

    def __init__(self, app: ASGIApp, access: Access, topics: Iterable[str], right: Callable[[Scope], str | None]) -> None:
        self._app = app
        self._access = access
        self._topics = topics
        self._right = right

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or say why not."""
        token, right = scope["state"]["token"], self._right(scope)
        if right is None:
            await self._app(scope, receive, send)
            return
        refusals = (self._access.refusal(topic, token, right) for topic in self._topics)
        refusal = next((one for one in refusals if one is not None), None)
        if refusal is None:
            await self._app(scope, receive, send)
            return
        headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
        await PlainTextResponse(refusal.reason + "\n", refusal.status, headers=headers)(scope, receive, send)
