"""A response that is written while it is made, as fast as the client reads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...tasks.nursery import open_service_nursery

Write: TypeAlias = Callable[[bytes], Awaitable[None]]


class Streamed(Response):
    """A response with a body from a function. Starlette's own takes a generator, which nobody closes when the client goes away.

    Args:
        produce: Writes the body piece by piece; a write fails once the client has gone.
        is_endless: Whether the body ends only when the client goes, which is watched for.
    """

    def __init__(self, produce: Callable[[Write], Awaitable[None]], *, media_type: str, is_endless: bool = False) -> None:
        # Or nginx would keep what never ends, as it does by default.
        unbuffered = {"X-Accel-Buffering": "no"} if is_endless else {}
        super().__init__(media_type=media_type, headers={"Cache-Control": "no-store", **unbuffered})
        self._produce = produce
        self._is_endless = is_endless
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def write(body: bytes) -> None:
            await send({"type": "http.response.body", "body": body, "more_body": True})

        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            await (self._produce_watched(write, receive) if self._is_endless else self._produce(write))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _produce_watched(self, write: Write, receive: Receive) -> None:
        async with open_service_nursery() as nursery:
            # Not the nursery's own scope, which ends before an exception from within it is raised again.
            with trio.CancelScope() as producing:

                async def watch() -> None:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    producing.cancel()

                nursery.start_soon(watch)
                await self._produce(write)
