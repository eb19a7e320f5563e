"""What we serve of a log beside the reference's API: heads, root, connections, and a stream of new entries.

GET  heads           {"heads": […]}
GET  root            {"level": …, "hash": "…"}: equal roots mean equal logs
GET  connections     [{"peer": …, "kind": …, "since": …, …}, …]; the reference's has `peer` alone
GET  events          server-sent events: `entry`, a line of dag-json, for each new entry, from `Last-Event-ID` on where that is sent
"""

from __future__ import annotations

from functools import partial
from typing import Any

import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..errors import ClosedError, LogReplaced
from ..net.service.peers import PeerConnectionState
from ..net.service.service import Service
from ..pubsub.router import ScoreParts
from .feed import Feed
from .glass.introspection import score_record
from .streamed import Streamed, Write

__all__ = ["OwnApi"]

HEARTBEAT_S = 15.0
"""A stream of events says something at least so often, or proxies would end it."""
_RETRY_MS = 2_000


class OwnApi:
    """Serves one log.

    Args:
        service: Its service.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._feed = Feed(service.log)

    async def heads(self, request: Request) -> Response:
        """GET heads."""
        return JSONResponse({"heads": await self._service.log.heads()})

    async def root(self, request: Request) -> Response:
        """GET root."""
        root = await self._service.log.root()
        return JSONResponse({"level": root.level, "hash": root.hash.hex()})

    async def connections(self, request: Request) -> Response:
        """GET connections."""
        scores = self._service.scores()
        return JSONResponse([_link_record(link, scores.get(link.peer)) for link in self._service.links()])

    async def events(self, request: Request) -> Response:
        """GET events."""
        return Streamed(partial(self._follow, request.headers.get("last-event-id")), media_type="text/event-stream", is_endless=True)

    async def _follow(self, last_id: str | None, write: Write) -> None:
        async with self._service.log.subscribe(from_now=True) as arriving:
            place = arriving.place
            beginning = b"retry: %d\n: new entries, as they come\n\n" % _RETRY_MS
            if last_id is not None:
                found = await self._feed.find(last_id)
                if found is None:
                    beginning += b"event: gap\ndata: the log does not have the last entry that you got; you go on from now\n\n"
                else:
                    place = found
            await write(beginning)
            while True:
                event = None
                try:
                    with trio.move_on_after(HEARTBEAT_S):
                        event = await self._feed.after(place)
                except LogReplaced as error:
                    # Who comes back with an id of the other log is told of the gap.
                    raise ClosedError(str(error)) from None
                if event is None:
                    await write(b":\n\n")
                    continue
                with self._feed.sending(event):
                    await write(event.data)
                place = event.place


def _link_record(link: PeerConnectionState, score: ScoreParts | None) -> dict[str, Any]:
    return {
        "peer": link.peer,
        "kind": link.kind,
        "outbound": link.is_outbound,
        "address": link.address,
        "since": link.since,
        "pushing": link.is_pushing,
        "queuedBytes": link.queued_bytes,
        "counts": dict(link.counts),
        "score": score_record(score),
    }
