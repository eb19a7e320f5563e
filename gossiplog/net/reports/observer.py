"""The activity of a service as facts, in a ring and in a file if one is named. There is an observer only if facts are wanted."""

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
"""The shortest time between two reads of the root."""
DISK_S = 1.0
"""How often a full disk is looked for, which costs a comparison."""
GATHER_S = 0.25
"""The facts of so long are written to the file together."""
_BYTES_MAX = 4 * 2**20
RETRY_S = 10.0
_FINISH_S = 1.0


class Board(Ring):
    """A ring that can be waited for.

    Attributes:
        boot: Names this run of the process. Numbers of facts only mean something within one run.
    """

    def __init__(self, size: int = FACTS_MAX) -> None:
        super().__init__(size)
        self.boot = secrets.token_hex(6)
        self._more: trio.Event | None = None

    def add(self, fact: Fact) -> None:
        """Add a fact, and wake the followers."""
        super().add(fact)
        if self._more is not None:
            self._more.set()
            self._more = None

    async def wait(self, seq: int) -> None:
        """Wait until there is a fact at this place of the ring."""
        await trio.lowlevel.checkpoint()
        while self.next <= seq:
            if self._more is None:
                self._more = trio.Event()
            await self._more.wait()


class Observer(Witness):
    """The witness of one log's service. It also records what only the driver knows: syncs, the root and the disk.

    Args:
        node: Our peer id.
        file: Where the facts are also written, as JSON lines; None for nowhere.
    """

    def __init__(self, node: str, topic: str, router: str, file: Path | None = None) -> None:
        self.board = Board()
        super().__init__(self.board, node, topic, router, time.time)
        self._file = None if file is None else _FactsFile(file, self.board)
        self._changed = trio.Event()

    def on_synced(self, peer: str, way: str, keys: Sequence[bytes], verdicts: Sequence[Verdict]) -> None:
        """Record the verdicts on the entries of a sync."""
        for key, verdict in zip(keys, verdicts, strict=True):
            self.tell_verdict(verdict, key, peer, way)

    def on_post(self, verdict: Verdict, client: str) -> None:
        """Record the verdict on an entry that came by HTTP. A new entry is recorded when it is committed instead."""
        if verdict.entry is not None and not verdict.is_new:
            self.tell_verdict(verdict, verdict.entry.key, client, "http")

    async def run(self, log: Replica, full: Callable[[], str | None]) -> None:
        """Record what happens to the log itself, and write the file, until cancelled.

        Args:
            full: Returns a sentence while the disk is full, else None.
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
                    pass  # The log is away or closed, which others report.
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
    """Appends facts to a file in a thread, as JSON lines. If the disk is slow or full, the facts that the ring drops are missing."""

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
        """Write the rest, within a second."""
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
