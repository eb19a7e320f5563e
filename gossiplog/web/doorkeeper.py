"""Lets in whom the server's rules let in, by the token that a request brought. Which right that takes is said where the route is made, so
that whatever path leads to an answer leads by its door.

Source: docs/operations.md, "Access".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..net.ground.access import Access

__all__ = ["Door", "MakeDoor"]


class Door(Route):
    """A route, and the right that each of its methods takes.

    Args:
        access: The rules.
        topics: Of which logs the right is needed.
        path: Of the route.
        endpoint: Answers the request.
        rights: By method, which are all that there are; None for what takes no right.

    Attributes:
        rights: As they were given.
    """

    def __init__(
        self,
        access: Access,
        topics: Iterable[str],
        path: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        **rights: str | None,
    ) -> None:
        self.rights = rights
        keeper = Middleware(_Doorkeeper, access=access, topics=topics, rights=rights)
        super().__init__(path, endpoint, methods=list(rights), middleware=[keeper])


MakeDoor = Callable[..., Door]
"""`Door` of some logs: takes path, endpoint and rights."""


class _Doorkeeper:
    """Middleware in front of one endpoint."""

    def __init__(self, app: ASGIApp, access: Access, topics: Iterable[str], rights: Mapping[str, str | None]) -> None:
        self._app = app
        self._access = access
        self._topics = topics
        self._rights = {"HEAD": rights.get("GET"), **rights}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or say why not."""
        right = self._rights[scope["method"]]
        if right is not None:
            token = scope["state"]["token"]
            refusals = (self._access.refusal(topic, token, right) for topic in self._topics)
            refusal = next((one for one in refusals if one is not None), None)
            if refusal is not None:
                headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
                await PlainTextResponse(refusal.reason + "\n", refusal.status, headers=headers)(scope, receive, send)
                return
        await self._app(scope, receive, send)
