"""Whether a log answers: for `/readyz`, and so that nobody waits for a store that has gone away.

While all is well the log is not asked. Once a caller has waited for a while, the log is asked something cheap. If it does not answer that
either, all callers stop waiting, and no caller starts to wait until the log, which is asked again and again, answers.

Source: docs/operations.md, "Health".
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from ...errors import GossipLogError, StorageFull
from ...log.requests import ReadHeads
from ...plan import ask
from ...replica.log import Replica
from ..ground.journal import note

SUSPECT_S = 0.25
"""After a longer wait of a caller the log is checked."""
ANSWER_S = 0.35
"""How long the log may take to answer a check. With two of the above that is less than a second."""
FILE_ANSWER_S = 10.0
"""The same for a log in a file, which may be busy but does not go away: only a disk that hangs takes so long."""
_TURN_S, _LAGS = 0.01, 10
"""The event loop's lag is measured over the first. An answer may take so many turns of the loop: its own and the store's."""
FULL_S = 30.0
"""How long after its last failed write a disk counts as full; then a write has to show."""


class Away(Exception):
    """The log does not answer. The message gives the reason."""


class Health:
    """Watches one log.

    Attributes:
        trouble: Why the log does not answer; None while it does, as far as we know.
        failures: How many checks failed or had no answer, by the name of the error.
    """

    def __init__(self, log: Replica) -> None:
        self.trouble: str | None = None
        self.failures = Counter[str]()
        self._log = log
        self._waiting: dict[trio.CancelScope, float] = {}
        self._wanted = trio.Event()
        self._checking = trio.Lock()
        self._checked_at = -1.0

    @contextmanager
    def patience(self) -> Iterator[trio.CancelScope]:
        """Cancel the block if the log goes away. `relieve` ends that for the rest of the block.

        Raises:
            Away: The log does not answer, or stopped answering within the block.
        """
        if self.trouble is not None:
            raise Away(self.trouble)
        with trio.CancelScope() as scope:
            self._waiting[scope] = trio.current_time()
            self._wanted.set()
            try:
                yield scope
            finally:
                self._waiting.pop(scope, None)
        if scope.cancelled_caught:
            raise Away(self.trouble or "the log does not answer")

    def relieve(self, scope: trio.CancelScope) -> None:
        """Let a block run on even if the log goes away: it has the log's answer."""
        self._waiting.pop(scope, None)

    async def check(self) -> str | None:
        """Ask the log something cheap; return why it does not answer, None if it does. Simultaneous calls share one answer."""
        asked_at = trio.current_time()
        async with self._checking:
            if self._checked_at < asked_at:
                self._conclude(await self._look())
                self._checked_at = trio.current_time()
        return self.trouble

    async def run(self) -> None:
        """Check the log while callers wait for it or it is away, until cancelled."""
        while True:
            if self.trouble is None and not self._waiting:
                self._wanted = trio.Event()
                await self._wanted.wait()
            await trio.sleep(SUSPECT_S)
            oldest = min(self._waiting.values(), default=trio.current_time())
            if self.trouble is None and trio.current_time() - oldest < SUSPECT_S:
                continue
            if await self.check() is not None:
                for scope in list(self._waiting):
                    scope.cancel()

    def full(self) -> str | None:
        """Return a sentence if the last commit failed because the disk was full, and that was within 30 s; else None."""
        failure = self._log.writer.failure
        if failure is None or not isinstance(failure[1], StorageFull) or time.monotonic() - failure[0] > FULL_S:
            return None
        return "the disk is full"

    async def _look(self) -> str | None:
        began = trio.current_time()
        await trio.sleep(_TURN_S)
        # The lag of our own event loop is not the store's fault.
        lag_s = trio.current_time() - began - _TURN_S
        answer_s = ANSWER_S if self._log.is_shared else FILE_ANSWER_S
        with trio.move_on_after(answer_s + _LAGS * lag_s):
            try:
                await self._log.run(ask(ReadHeads(1)))
            except GossipLogError as error:
                self.failures[type(error).__name__] += 1
                return str(error)
            return None
        self.failures["TimeoutError"] += 1
        return "the store does not answer"

    def _conclude(self, trouble: str | None) -> None:
        before, self.trouble = self.trouble, trouble
        if trouble is not None:
            self._wanted.set()
            if before is None:
                note("store away", level=logging.ERROR, topic=self._log.topic, reason=trouble)
        elif before is not None:
            note("store back", level=logging.WARNING, topic=self._log.topic, reason="it answers again")
