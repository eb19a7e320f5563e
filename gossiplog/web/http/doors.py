"""What stands before an endpoint: who is let in, what the server's own page alone may do, and an answer while the log is away.

Whoever asks is known by the token of the request, or by what the application says that the server is a part of. Which right an answer takes
is said where the route is made, so that whatever path leads to an answer leads by its door.

Source: docs/operations.md, "Access".
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

import trio
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import ClosedError, StoreError
from ...net.ground.access import Caller
from ...net.ground.journal import note
from ...net.ground.proof import Refusal
from ...net.reports.health import Away, Health
from ...tasks.nursery import open_service_nursery


class Door(Route):
    """A route, and the right that each of its methods takes.

    Args:
        rights: By method, which are all that there are; None for what takes no right.
    """

    def __init__(
        self,
        topics: Iterable[str],
        path: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        **rights: str | None,
    ) -> None:
        self.rights = rights
        keeper = Middleware(_Doorkeeper, topics=topics, rights=rights)
        super().__init__(path, endpoint, methods=list(rights), middleware=[keeper])


MakeDoor = Callable[..., Door]
"""`Door` of some logs: takes path, endpoint and rights."""


class _Doorkeeper:
    """Middleware in front of one endpoint."""

    def __init__(self, app: ASGIApp, topics: Iterable[str], rights: Mapping[str, str | None]) -> None:
        self._app = app
        self._topics = topics
        self._rights = {"HEAD": rights.get("GET"), **rights}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or say why not."""
        right = self._rights[scope["method"]]
        if right is not None:
            caller: Caller = scope["state"]["caller"]
            refusals = (caller.refusal(topic, right) for topic in self._topics)
            refusal = next((one for one in refusals if one is not None), None)
            if refusal is not None:
                await refusal_answer(refusal)(scope, receive, send)
                return
            if scope["method"] == "GET":
                # An answer may go on for ever, and does not outlast its right.
                async with open_service_nursery() as nursery:
                    with trio.CancelScope() as answering:
                        for topic in self._topics:
                            nursery.start_soon(_end_without, caller, topic, right, answering)
                        await self._app(scope, receive, send)
                    nursery.cancel_scope.cancel()
                return
        await self._app(scope, receive, send)


async def _end_without(caller: Caller, topic: str, right: str, answering: trio.CancelScope) -> None:
    """Cancel an answer to a did that loses the right to it."""
    did = caller.did(topic)
    while did is not None:
        rights = caller.access.rights_of_did(topic, did)
        if right not in rights:
            answering.cancel()
            return
        await caller.access.wait_changed(topic, did, rights)


def refusal_answer(refusal: Refusal) -> Response:
    """Say why a request is not answered."""
    answer = PlainTextResponse(refusal.reason + "\n", refusal.status)
    if refusal.status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    if refusal.status == AWAY.status:
        answer.headers["Retry-After"] = str(RETRY_S)
    return answer


def check_own_page(request: Request) -> None:
    """Refuse what a page of another origin had a browser send: appending with the server's key, breaking a test network.

    Such a page could have a browser send a form, with the person's own access to the server; hence only requests of this origin are taken,
    and only JSON, which no form sends. Source: Fetch Metadata Request Headers, 2.3.

    Raises:
        HTTPException: It did, or the body may be a form's.
    """
    headers = request.headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "the content type is application/json")
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    # What is no browser sends neither. A proxy may have another scheme than its page.
    if (origin is not None and origin.partition("://")[2] != headers.get("host")) or site not in (None, "same-origin"):
        raise HTTPException(403, "only the page of this server may ask for this")


AWAY = Refusal(503, "the log cannot be reached at the moment, through no fault of yours")
RETRY_S = 2


class Guard:
    """Middleware in front of one log: while its store is away, 503 within a second, instead of waiting for as long as the store would."""

    def __init__(self, app: ASGIApp, health: Health) -> None:
        self._app = app
        self._health = health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        start: Message | None = None
        has_begun = False
        try:
            with self._health.patience() as waiting:

                async def forward(message: Message) -> None:
                    nonlocal start, has_begun
                    if message["type"] == "http.response.start":
                        # It waits for what it announces, of which the first part may never be read.
                        start = message
                        return
                    if not has_begun:
                        has_begun = True
                        self._health.relieve(waiting)
                        assert start is not None
                        await send(start)
                    await send(message)

                await self._app(scope, receive, forward)
        except (Away, StoreError) as error:
            note("request not answered", level=logging.WARNING, path=scope["path"], reason=str(error))
            if has_begun:
                raise ClosedError(str(error)) from None
            await refusal_answer(AWAY)(scope, receive, send)
