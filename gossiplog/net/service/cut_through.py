"""Cut-through for a log on disk: an entry that is certain to be stored is passed on while it is being stored."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import trio

from ...broadcast.certain_entries import HEADS_MAX, CertainEntries
from ...entry.message import Entry
from ...errors import GossipLogError
from ...log.requests import ReadHeads, ReadQuarantine
from ...plan import Plan, ask
from ...replica.log import Replica

__all__ = ["CutThrough"]

RETRY_S = 10.0
"""A store that failed, or has a quarantine or too many heads, is looked at again after so long; entries wait for the commit till then."""


class CutThrough(CertainEntries):
    """Follows a log, unless that has rules or other processes write to it: then it foresees nothing."""

    def __init__(self, log: Replica) -> None:
        super().__init__()
        self._log = log
        self._commits = 0
        self._is_lost = trio.Event()

    def forget(self) -> None:
        """See `CertainEntries`."""
        super().forget()
        self._is_lost.set()

    async def run(self) -> None:
        """Follow the log for ever."""
        if self._log.is_shared or self._log.has_rules:
            await trio.sleep_forever()
        with self._log.watch_commits(self._on_commit):
            while True:
                self._is_lost = trio.Event()
                with contextlib.suppress(GossipLogError):
                    await self._learn()
                if not self.is_blind:
                    await self._is_lost.wait()
                await trio.sleep(RETRY_S)

    async def _learn(self) -> None:
        commits = self._commits
        heads = await self._log.run(_read_heads())
        # A commit meanwhile may be in the answer, or not.
        if heads is not None and commits == self._commits:
            self.learn(heads)

    def _on_commit(self, entries: Sequence[Entry]) -> None:
        self._commits += 1
        self.on_commit(entries)


def _read_heads() -> Plan[list[bytes] | None]:
    """Read the heads; None if there is a quarantine, which an entry may be in that seems new."""
    if (yield from ask(ReadQuarantine(None, 1))):
        return None
    return (yield from ask(ReadHeads(HEADS_MAX + 1)))
