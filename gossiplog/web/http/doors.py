"""Checks in front of endpoints: the caller's right, requests that only the server's own page may make, and a quick answer while the log's
store is away.

A caller is known by its token, or by what the surrounding application says. The right that an answer requires is stated where its route is
made, so every path to the answer is checked.

Source: docs/operations.md, "Access".
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

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
from .requests import check_parameters


class Door(Route):
    """A route, and the right that each of its methods requires.

    Args:
        topics: Returns the logs for all of which the caller needs the right.
        query: The parameters that the endpoint takes; others are refused. None if it looks at them itself.
        rights: The right by method; None for a method that requires none. Other methods are refused.
    """

    def __init__(
        self,
        topics: Callable[[], Iterable[str]],
        path: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        query: Sequence[str] | None = (),
        **rights: str | None,
    ) -> None:
        async def checked(request: Request) -> Response:
            if query is not None:
                check_parameters(request, *query)
            return await endpoint(request)

        self.rights = rights
        keeper = Middleware(_Doorkeeper, topics=topics, rights=rights)
        super().__init__(path, checked, methods=list(rights), middleware=[keeper])


MakeDoor = Callable[..., Door]
"""`Door` with its topics given: takes path, endpoint, parameters and rights."""


class _Doorkeeper:
    """Middleware in front of one endpoint."""

    def __init__(self, app: ASGIApp, topics: Callable[[], Iterable[str]], rights: Mapping[str, str | None]) -> None:
        self._app = app
        self._topics = topics
        self._rights = {"HEAD": rights.get("GET"), **rights}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or say why not."""
        right = self._rights[scope["method"]]
        if right is not None:
            caller: Caller = scope["state"]["caller"]
            refusals = (caller.refusal(topic, right) for topic in self._topics())
            refusal = next((one for one in refusals if one is not None), None)
            if refusal is not None:
                await refusal_answer(refusal)(scope, receive, send)
                return
            if scope["method"] == "GET":
                # An answer may be endless, and must end with the caller's right.
                async with open_service_nursery() as nursery:
                    with trio.CancelScope() as answering:
                        for topic in self._topics():
                            nursery.start_soon(_end_without, caller, topic, right, answering)
                        await self._app(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _end_without(caller: Caller, topic: str, right: str, answering: trio.CancelScope) -> None:
    """Cancel an answer when the caller's did loses the right to it. Returns at once for a caller without a did."""
    did = caller.did(topic)
    while did is not None:
        rights = caller.access.rights_of_did(topic, did)
        if right not in rights:
            answering.cancel()
            return
        await caller.access.wait_changed(topic, did, rights)


def refusal_answer(refusal: Refusal) -> Response:
    """Make the answer to a refused request."""
    answer = PlainTextResponse(refusal.reason + "\n", refusal.status)
    if refusal.status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    if refusal.status == AWAY.status:
        answer.headers["Retry-After"] = str(RETRY_S)
    return answer


def check_own_page(request: Request) -> None:
    """Accept only requests of the server's own page, where they act for the operator: append with the server's key, break a test network.

    A page of another origin could make the operator's browser send a form. So the request must have this origin and be JSON, which no form
    sends. Source: Fetch Metadata Request Headers, 2.3.

    Raises:
        HTTPException: The request has another origin, or is not JSON.
    """
    headers = request.headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "the content type is application/json")
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    # Programs other than browsers send neither header. A proxy may use another scheme than its page.
    if (origin is not None and origin.partition("://")[2] != headers.get("host")) or site not in (None, "same-origin"):
        raise HTTPException(403, "only the page of this server may ask for this")


AWAY = Refusal(503, "the log cannot be reached at the moment, through no fault of yours")
RETRY_S = 2


class Guard:
    """Middleware in front of one log: answers 503 within a second while its store is away, instead of waiting for the store."""

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
                        # Held back until the first part of the body is there: reading that may fail, and become a 503.
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
