"""What clients may bring to one log, by the rules of the listener that they came by: kept and counted for as long as it listens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
    """The allowances of one log: listeners with the same rules share one."""

    def __init__(self, log: Replica) -> None:
        self._log = log
        self._kept: dict[Access, _Kept] = {}

    @contextmanager
    def kept(self, access: Access) -> Iterator[Allowance]:
        """Keep what the rules of a server allow, for the length of a block."""
        kept = self._kept.get(access)
        if kept is None:
            kept = self._kept[access] = _Kept(Allowance(self._log.topic, access))
            self._log.tasks.start_soon(kept.run, self._log, access)
        kept.listeners += 1
        try:
            yield kept.allowance
        finally:
            kept.listeners -= 1
            if not kept.listeners:
                kept.scope.cancel()
                del self._kept[access]

    async def wait_counted(self, access: Access) -> None:
        """Wait until all is counted that has to be, within a second: nobody is to be refused for a log that is counted at once."""
        kept = self._kept[access]
        if kept.allowance.rules.quota.counts_totals:
            with trio.move_on_after(_COUNTED_SOON_S):
                await kept.is_counted.wait()


@dataclass(slots=True)
class _Kept:
    """An allowance, how many listeners have it, the scope that its task is in, and whether what is in the log is counted."""

    allowance: Allowance
    listeners: int = 0
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    is_counted: trio.Event = field(default_factory=trio.Event)

    async def run(self, log: Replica, access: Access) -> None:
        """Count what is in the log, and what comes, from when anything depends on it."""
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
