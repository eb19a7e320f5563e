"""How much clients may bring to one log, by the rules of the listener that they came through. Counted for as long as it listens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from ...broadcast.allowance import Allowance
from ...entry.message import Entry
from ...log.requests import ReadCount, ReadTail
from ...plan import ask
from ...replica.log import Replica
from ..ground.access import Access
from .driver import read_patiently

_PAGE = 500
_COUNTED_SOON_S = 1.0


class Allowances:
    """The allowances of one log. Listeners with the same rules share one."""

    def __init__(self, log: Replica) -> None:
        self._log = log
        self._kept: dict[Access, _Kept] = {}

    @asynccontextmanager
    async def kept(self, access: Access) -> AsyncIterator[Allowance]:
        """Keep the allowance of a server's rules for the length of a block.

        If its quotas need a count of the log, wait for that at most a second, so that no client of a small log is refused meanwhile.
        """
        kept = self._kept.get(access)
        if kept is None:
            kept = self._kept[access] = _Kept(Allowance(self._log.topic, access))
            self._log.tasks.start_soon(kept.run, self._log, access)
        kept.listeners += 1
        try:
            if kept.allowance.rules.quota.counts_totals:
                with trio.move_on_after(_COUNTED_SOON_S):
                    await kept.is_counted.wait()
            yield kept.allowance
        finally:
            kept.listeners -= 1
            if not kept.listeners:
                kept.scope.cancel()
                del self._kept[access]


@dataclass(slots=True)
class _Kept:
    """An allowance, how many listeners share it, the scope of its task, and whether the log's entries have been counted."""

    allowance: Allowance
    listeners: int = 0
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    is_counted: trio.Event = field(default_factory=trio.Event)

    async def run(self, log: Replica, access: Access) -> None:
        """Count the entries in the log and those that come, once a quota depends on the count."""
        allowance = self.allowance
        with self.scope:
            while not allowance.rules.quota.counts_totals:
                await access.replaced.wait()
            with log.watch_commits(allowance.on_commit):
                _, last = await read_patiently(log, ask(ReadCount(counted=False)))
                seq = 0
                while seq < last and (page := await read_patiently(log, ask(ReadTail(seq, _PAGE)))):
                    allowance.on_read([Entry.stored(value) for number, value in page if number <= last])
                    seq = page[-1][0]
                allowance.on_all_read()
                self.is_counted.set()
                await trio.sleep_forever()
