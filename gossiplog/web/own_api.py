"""What we add to the reference's API of a log: heads, root, connections, and a stream of new entries.

GET  heads           {"heads": […]}
GET  root            {"level": …, "hash": "…"}: equal roots mean equal logs
GET  connections     [{"peer": …, "kind": …, "since": …, …}, …]; the reference's has `peer` alone
GET  events          server-sent events: `entry`, a line of dag-json, for each new entry, from `Last-Event-ID` on where that is sent
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Any, NamedTuple

import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..archive.jsonl import entry_to_line
from ..entry.message import Entry
from ..entry.message_id import decode_id
from ..errors import ClosedError, DecodeError, LogReplaced
from ..log.place import LogPlace
from ..log.requests import ReadLeaves
from ..net.service.peers import PeerConnectionState
from ..net.service.service import Service
from ..plan import ask
from ..pubsub.router import ScoreParts
from ..replica.log import Replica
from ..replica.subscription import entries_after
from .glass.peers import score_record
from .http.streamed import Streamed, Write

# New entries as events: each is read and encoded once for all followers, and a slow follower reads from the log itself.
#
# A follower is only a place in the log, so one that never reads costs no more than its connection. A follower that has fallen far behind is
# dropped and resumes where it was: an event's id is the entry's, which browsers send when they return.
_KEPT_BYTES_MAX = 8 * 2**20
_PAGE = 4
"""Entries read at a time, and events always kept, whatever their size."""


class Event(NamedTuple):
    """An entry as a server-sent event."""

    before: int
    place: LogPlace
    data: bytes


class Feed:
    """The events of one log."""

    def __init__(self, log: Replica) -> None:
        self._log = log
        self._reading = trio.Lock()
        # By the place before each, the newest last.
        self._kept: OrderedDict[int, Event] = OrderedDict()
        self._kept_bytes = 0
        self._newest = 0

    async def find(self, id: str) -> LogPlace | None:
        """Return the place after an entry; None if the log does not have it."""
        try:
            key = decode_id(id)
        except DecodeError:
            return None
        leaf = (await self._log.run(ask(ReadLeaves([key])))).get(key)
        return None if leaf is None else LogPlace(leaf.seq, key=key)

    async def after(self, place: LogPlace) -> Event:
        """Return the event after a place; wait for it if necessary.

        Raises:
            LogReplaced: Somebody put another log in the place of this one.
        """
        if place.seq < self._newest and place.seq not in self._kept:
            # A follower that is catching up must not wait for new entries, nor drive out the events that the others share.
            return (await self._read(place, 1))[0]
        self._newest = max(self._newest, place.seq)
        async with self._reading:
            if place.seq not in self._kept:
                for event in await self._read(place, _PAGE):
                    self._keep(event)
        return self._kept[place.seq]

    async def _read(self, place: LogPlace, limit: int) -> list[Event]:
        entries: list[tuple[int, Entry]] = []
        try:
            while not entries:
                before = place.seq
                place, entries = await entries_after(self._log, place, limit)
        except LogReplaced:
            self._kept.clear()
            self._kept_bytes = self._newest = 0
            raise
        events = []
        for seq, entry in entries:
            data = b"event: entry\nid: %s\ndata: %s\n\n" % (entry.id.encode(), entry_to_line(entry))
            events.append(Event(before, LogPlace(seq, place.generation, entry.key), data))
            before = seq
        return events

    def _keep(self, event: Event) -> None:
        self._kept[event.before] = event
        self._kept_bytes += len(event.data)
        self._newest = max(self._newest, event.place.seq)
        while self._kept_bytes > _KEPT_BYTES_MAX and len(self._kept) > _PAGE:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1].data)


HEARTBEAT_S = 15.0
"""A stream of events sends something at least this often, or proxies would end it."""
_RETRY_MS = 2_000


class OwnApi:
    """Serves one log."""

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
                    # A follower that returns with an id of the other log is told of the gap.
                    raise ClosedError(str(error)) from None
                if event is None:
                    await write(b":\n\n")
                    continue
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
