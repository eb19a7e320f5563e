"""What a log's API answers while its store is away: 503 within a second, instead of waiting for as long as the store would."""

from __future__ import annotations

import logging

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import ClosedError, StoreError
from ..net.ground.journal import note
from ..net.service.health import Away, Health

__all__ = ["AWAY", "RETRY_S", "Guard"]

AWAY = "the log cannot be reached at the moment, through no fault of yours"
RETRY_S = 2


class Guard:
    """Middleware in front of one log.

    Args:
        app: The log's API.
        health: Of the log.
    """

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
            refusal = PlainTextResponse(AWAY + "\n", 503, headers={"Retry-After": str(RETRY_S)})
            await refusal(scope, receive, send)
