"""What is new in our log and did not come from a peer: our own appends, those of other processes, and what was posted or imported."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import trio

from ...entry.message import Entry
from ...errors import DecodeError, StoreError
from ...replica.log import Replica
from ..ground.journal import note

__all__ = ["OwnAppends"]

ARRIVED_MAX = 20_000
"""Keys of entries from peers that are remembered, until the log tells of them: more than a commit and a page of a tail hold."""
_RETRY_S = 5.0


class OwnAppends:
    """Watches a log and hands on what no peer brought.

    Args:
        log: Ours. One that other processes write to as well is followed in the store, any other by its commits.
        on_entries: Gets the new entries, in their order.
    """

    def __init__(self, log: Replica, on_entries: Callable[[Sequence[Entry]], None]) -> None:
        self._log = log
        self._on_entries = on_entries
        self._arrived: OrderedDict[bytes, bool] = OrderedDict()

    def on_arrived(self, keys: Iterable[bytes]) -> None:
        """Leave these out: a peer brought them, and they are about to be inserted."""
        for key in keys:
            self._arrived[key] = True
        while len(self._arrived) > ARRIVED_MAX:
            self._arrived.popitem(last=False)

    def on_refused(self, keys: Iterable[bytes]) -> None:
        """Leave these out no longer: they were not inserted after all."""
        for key in keys:
            self._arrived.pop(key, None)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch for ever, from the moment it has started."""
        if self._log.is_shared:
            await self._follow(task_status)
        else:
            await self._listen(task_status)

    async def _listen(self, task_status: trio.TaskStatus[None]) -> None:
        with self._log.watch_commits(self._on_commit):
            task_status.started()
            await trio.sleep_forever()

    def _on_commit(self, entries: Sequence[Entry]) -> None:
        ours = [entry for entry in entries if not self._has_arrived(entry)]
        if not ours:
            return
        try:
            self._on_entries(ours)
        except Exception as error:
            # This is the log's own writer, which must not come to harm.
            note("fault in the protocol", level=logging.ERROR, error=error)

    async def _follow(self, task_status: trio.TaskStatus[None]) -> None:
        async with self._log.subscribe(from_now=True) as events:
            task_status.started()
            while True:
                try:
                    entries = await events.next_page()
                except (StoreError, DecodeError) as error:
                    note("the log cannot be followed", level=logging.ERROR, reason=str(error))
                    await trio.sleep(_RETRY_S)
                    continue
                ours = [entry for entry in entries if not self._has_arrived(entry)]
                if ours:
                    self._on_entries(ours)

    def _has_arrived(self, entry: Entry) -> bool:
        return self._arrived.pop(entry.key, False)
