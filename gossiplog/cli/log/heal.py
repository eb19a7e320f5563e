"""`sync --heal`: repair a damaged log, in place or in a new file, and then fetch its lost entries from another replica."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import DamagedLog, ForeignFile, TopicMismatch
from ...store.sqlite.beside import BESIDE, beside
from ..exits import ExitCode, Failure
from ..options import Location
from ..output import Output, counted
from ..progress import Progress
from ..session import opened
from .salvage import salvage_log

if TYPE_CHECKING:
    from ...gossip_log import GossipLog


@dataclass
class Healing:
    """The healing of one log, and its results.

    Attributes:
        set_aside: The number of entries that the repair set aside until the other replica brings their ancestors.
        rebuilt: Where the damaged file is kept, if the log was rebuilt in a new one.
        released: The number of these entries that are in the log again.
        waiting: The number of entries whose ancestors the other replica lacks, too.
        is_clean: Whether the log was without faults at the end.
    """

    log: Location
    out: Output
    set_aside: int = 0
    rebuilt: Path | None = None
    released: int = 0
    waiting: int = 0
    is_clean: bool = False

    @property
    def code(self) -> ExitCode:
        """The exit code of the healing."""
        return ExitCode.DONE if self.is_clean and not self.waiting else ExitCode.INTEGRITY

    @property
    def record(self) -> dict[str, Any]:
        """The results as JSON."""
        kept = None if self.rebuilt is None else str(self.rebuilt)
        return {"setAside": self.set_aside, "released": self.released, "waiting": self.waiting, "damagedFile": kept, "clean": self.is_clean}

    async def prepare(self, topic: str | None) -> None:
        """Repair the log in place or, if that is impossible, salvage it into a new file that replaces it.

        Nothing is lost if this, or a later step, is interrupted; it can be repeated.

        Raises:
            StoreError: The log is in use, or cannot be written to.
            Failure: No entry of the log can be read.
        """
        try:
            if not self.log.is_url and await self._is_torn():
                await self._rebuild(topic)
                return
            async with opened(self.log, read_only=False) as log:
                if topic is not None and log.topic != topic:
                    raise TopicMismatch(f"{self.log} has topic {log.topic}, the other log has {topic}")
                with Progress("checking", is_shown=not self.out.is_strict) as progress:
                    report = await log.fsck(repair=True, on_progress=progress.at, on_phase=progress.begin)
            if report.is_clean:
                self.set_aside = report.set_aside
                if report.repaired is not None:
                    self.out.note(f"repaired; {counted(report.set_aside, 'entry waits', 'entries wait')} for ancestors from the other log")
                return
        except (DamagedLog, ForeignFile):
            if self.log.is_url:
                raise
        if self.log.is_url:
            return
        await self._rebuild(topic)

    async def finish(self, log: GossipLog, pull: Callable[[], Awaitable[object]]) -> None:
        """Pull the lost entries, let in those that waited for them, and check the log."""
        await pull()
        async for _, verdict in log.retrying():
            self.released += verdict.is_new
        self.waiting = await log.forget_damaged()
        self.is_clean = (await log.fsck()).is_clean
        if self.released:
            self.out.note(f"{counted(self.released, 'entry', 'entries')} let in again")
        if self.waiting:
            self.out.note(f"{counted(self.waiting, 'entry waits', 'entries wait')} for ancestors that the other log lacks, too")

    async def _is_torn(self) -> bool:
        """Check, without writing, whether the database's own structure is damaged: a repair would overwrite entries that can be saved."""
        from ...log.fsck import FINDINGS_MAX, FindingKind

        async with opened(self.log) as log:
            report = await log.fsck()
        is_torn = any(each.kind in (FindingKind.FILE, FindingKind.UNREADABLE) for each in report.findings)
        return is_torn or report.problems > FINDINGS_MAX or report.entries_topic is not None

    async def _rebuild(self, topic: str | None) -> None:
        from ...store.sqlite.file import has_mark
        from ...store.sqlite.lock import WriterLock

        path = Path(self.log)
        draft = Location.parse(f"{path}.healing")
        lock = WriterLock.acquire(path)
        try:
            _remove(Path(draft))
            report = await salvage_log(self.log, draft, topic, self.out)
            if report.unsupported:
                what = f"{counted(report.unsupported, 'entry', 'entries')} of {path} cannot be verified: {report.unsupported_reason}"
                raise Failure(what, hint="nothing was healed, because a rebuilt log would lack them", kind="unsupported")
            is_empty = report.target is None or report.target.entries + report.waiting == 0
            # A file that was never one of our logs must not be replaced.
            if report.target is None or not report.target.is_clean or (is_empty and not has_mark(path)):
                raise Failure(f"no entry can be read in {path}", hint="it was left as it is", code=ExitCode.INTEGRITY, kind="damaged-log")
            self.set_aside = report.waiting
            self.rebuilt = _swap(path, Path(draft))
        finally:
            lock.release()
            _remove(Path(draft))
        self.out.note(f"rebuilt; the damaged file, with the application's own tables, is kept as {self.rebuilt}")


def _swap(path: Path, draft: Path) -> Path:
    """Replace a damaged file, which is kept under the returned name, by a whole one; at every moment there is a file at `path`."""
    number = 1
    while (kept := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    os.link(path, kept)
    # SQLite would take the files beside the old one for the new one's.
    for suffix in BESIDE:
        if os.path.lexists(old := beside(path, suffix)):
            old.replace(beside(kept, suffix))
    draft.replace(path)
    return kept


def _remove(path: Path) -> None:
    for suffix in ("", "-lock", *BESIDE):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
