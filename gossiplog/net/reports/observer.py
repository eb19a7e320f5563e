"""What a service does, as facts in a ring, and in a file if one is named.

There is an observer only where somebody wants facts; without one, nothing is spent on them.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from ...entry.message import Entry
from ...entry.validation import Verdict
from ...errors import GossipLogError
from ...glass import Fact, Ring, Witness
from ...glass.fact import FACTS_MAX
from ...glass.machine_facts import short
from ...log.requests import ReadCount
from ...plan import Plan, ask
from ...replica.log import Replica
from ...tree.node import Node, ReadRoot
from ..ground.journal import note

ROOTS_S = 0.2
"""The root is read and told at most so often."""

DISK_S = 1.0
"""The disk is looked at so often: it costs a comparison."""
GATHER_S = 0.25
"""Facts of so long are written to the file together."""
_BYTES_MAX = 4 * 2**20
RETRY_S = 10.0
_FINISH_S = 1.0


class Board(Ring):
    """A ring that one can wait at.

    Attributes:
        boot: Names this run of the process: numbers of facts mean something within it alone.
    """

    def __init__(self, size: int = FACTS_MAX) -> None:
        super().__init__(size)
        self.boot = secrets.token_hex(6)
        self._more: trio.Event | None = None

    def add(self, fact: Fact) -> None:
        """Take a fact, and wake the followers."""
        super().add(fact)
        more = self._more
        if more is not None:
            self._more = None
            more.set()

    async def wait(self, seq: int) -> None:
        """Wait until there is a fact at this place of the ring."""
        await trio.lowlevel.checkpoint()
        while self.next <= seq:
            if self._more is None:
                self._more = trio.Event()
            await self._more.wait()


class Observer(Witness):
    """The witness of one log's service, which tells what the driver alone knows as well: syncs, the root and the disk.

    Args:
        node: Our peer id.
        file: Where the facts are written as well, as JSON lines; None for nowhere.
    """

    def __init__(self, node: str, topic: str, router: str, file: Path | None = None) -> None:
        self.board = Board()
        super().__init__(self.board, node, topic, router, time.time)
        self._file = None if file is None else _FactsFile(file, self.board)
        self._changed = trio.Event()

    # What the driver knows

    def on_synced(self, peer: str, way: str, keys: Sequence[bytes], verdicts: Sequence[Verdict]) -> None:
        """Tell what became of the entries that a sync brought."""
        for key, verdict in zip(keys, verdicts, strict=True):
            self.tell_verdict(verdict, key, peer, way)

    def on_post(self, verdict: Verdict, client: str) -> None:
        """Tell what became of an entry that came by HTTP; what is new is told once it is committed."""
        if verdict.entry is not None and not verdict.is_new:
            self.tell_verdict(verdict, verdict.entry.key, client, "http")

    # The root

    async def run(self, log: Replica, full: Callable[[], str | None]) -> None:
        """Tell what happens to the log itself, and write the file, for as long as the log is served.

        Args:
            full: Says that the disk is full, while it is.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._follow_root, log)
                nursery.start_soon(self._watch_disk, full)
                if self._file is not None:
                    nursery.start_soon(self._file.run)
        finally:
            self.tell("stop")
            if self._file is not None:
                await self._file.finish()

    async def _follow_root(self, log: Replica) -> None:
        told: Node | None = None
        with log.watch_commits(self._on_commit), log.watch_set_aside(self._on_set_aside):
            while True:
                self._changed = trio.Event()
                try:
                    root, count = await log.run(_read_root())
                except GossipLogError:
                    pass  # It is away, or closed, which is told elsewhere.
                else:
                    if root != told:
                        self.tell("root", message=root.hash.hex(), count=count)
                        told = root
                await trio.sleep(ROOTS_S)
                await self._changed.wait()

    async def _watch_disk(self, full: Callable[[], str | None]) -> None:
        told: str | None = None
        while True:
            trouble = full()
            if trouble != told and trouble is not None:
                self.tell("full", reason=trouble)
            told = trouble
            await trio.sleep(DISK_S)

    def _on_set_aside(self, application: str, entry: Entry, reason: str) -> None:
        self.tell("aside", type=application, message=entry.id, reason=short(reason))

    def _on_commit(self, entries: object) -> None:
        self._changed.set()


def _read_root() -> Plan[tuple[Node, int]]:
    root = yield from ask(ReadRoot())
    _, last = yield from ask(ReadCount(counted=False))
    return root, last


class _FactsFile:
    """Appends facts to a file as JSON, one a line, in a thread; what the ring loses meanwhile is missing.

    A disk that is slow or full costs facts, never anything else.
    """

    def __init__(self, path: Path, board: Board) -> None:
        self._path = path
        self._board = board
        self._seq = 0

    async def run(self) -> None:
        """Write for ever."""
        while True:
            await self._board.wait(self._seq)
            await trio.sleep(GATHER_S)
            if not await self._write():
                await trio.sleep(RETRY_S)

    async def finish(self) -> None:
        """Write what is left, within a second."""
        with trio.move_on_after(_FINISH_S, shield=True):
            while self._board.next > self._seq and await self._write():
                pass

    async def _write(self) -> bool:
        lines, following, lost = self._board.since(self._seq, _BYTES_MAX)
        try:
            await trio.to_thread.run_sync(_append, self._path, b"".join(line + b"\n" for line in lines))
        except OSError as error:
            note("facts not written", level=logging.ERROR, file=str(self._path), reason=error.strerror or str(error))
            return False
        if lost:
            note("facts lost", level=logging.WARNING, file=str(self._path), facts=lost)
        self._seq = following
        return True


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
