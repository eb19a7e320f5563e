"""New entries as events for all who follow a log: each is read and encoded once, and whoever is slow reads on from the log itself.

A follower is a place in the log and nothing else, so one that never reads costs what a connection costs. One that is still being sent
what the others have long had is dropped, and resumes where it was: an event's id is the entry's, which browsers send when they return.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import trio

from ..archive.jsonl import entry_to_line
from ..entry.message import Entry
from ..entry.message_id import decode_id
from ..errors import ClosedError, DecodeError, LogReplaced
from ..log.place import LogPlace
from ..log.requests import ReadLeaves
from ..plan import ask
from ..replica.log import Replica
from ..replica.subscription import entries_after

__all__ = ["Feed"]

_KEPT_BYTES_MAX = 8 * 2**20
_PAGE = 4
"""Entries read at a time, and events kept however large they are."""


class Event(NamedTuple):
    """An entry as a server-sent event.

    Attributes:
        before: The insertion number in front of it.
        place: The place after it.
        data: What goes out.
    """

    before: int
    place: LogPlace
    data: bytes


class Feed:
    """The events of one log.

    Args:
        log: Open, and subscribed to by whoever asks for events.
    """

    def __init__(self, log: Replica) -> None:
        self._log = log
        self._reading = trio.Lock()
        # By the place in front of each, the newest last.
        self._kept: OrderedDict[int, Event] = OrderedDict()
        self._kept_bytes = 0
        self._newest = 0
        # Who is being sent an event that is kept, by the place in front of it.
        self._sending: dict[int, set[trio.CancelScope]] = {}

    async def find(self, id: str) -> LogPlace | None:
        """Return the place after an entry; None if the log does not have it."""
        try:
            key = decode_id(id)
        except DecodeError:
            return None
        leaf = (await self._log.run(ask(ReadLeaves([key])))).get(key)
        return None if leaf is None else LogPlace(leaf.seq, key=key)

    async def after(self, place: LogPlace) -> Event:
        """Return the event after a place, waiting for it if need be.

        Raises:
            LogReplaced: Somebody else put another log in the place of this one.
        """
        if place.seq < self._newest and place.seq not in self._kept:
            # Somebody who catches up must neither wait for what is new nor drive out what the others share.
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

    @contextmanager
    def sending(self, event: Event) -> Iterator[None]:
        """Account for an event while it goes out to one follower.

        Raises:
            ClosedError: The block was cancelled, for it took too long.
        """
        if self._kept.get(event.before) is not event:
            yield
            return
        with trio.CancelScope() as scope:
            senders = self._sending.setdefault(event.before, set())
            senders.add(scope)
            try:
                yield
            finally:
                senders.discard(scope)
                if not senders and self._sending.get(event.before) is senders:
                    del self._sending[event.before]
        if scope.cancelled_caught:
            raise ClosedError("the client reads too slowly")

    def _keep(self, event: Event) -> None:
        self._kept[event.before] = event
        self._kept_bytes += len(event.data)
        self._newest = max(self._newest, event.place.seq)
        while self._kept_bytes > _KEPT_BYTES_MAX and len(self._kept) > _PAGE:
            before, old = self._kept.popitem(last=False)
            self._kept_bytes -= len(old.data)
            for scope in self._sending.pop(before, ()):
                scope.cancel()
