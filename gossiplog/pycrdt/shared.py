"""One document of a log, kept up to date and written to.

Theory of operation: the mirror is a Yjs document that no user edits. It has every update that is in the log or on its way there. Each
update, from the editor or from the log, is applied to the mirror, which yields the part of it that was new. So an update from the log is
never written to it again, and an edit is never handed back to the editor, without keeping track of where updates came from.

Updates stay in the mirror even after their entries become void, since Yjs cannot undo them. So a snapshot is made from the entries that it
replaces, and not from the mirror.

Invariants: the mirror has the updates of all entries in `_standing`, so a snapshot may replace them; updates that are not yet in the log
are in `_unsent`.

Source: docs/pycrdt.md.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from logging import Logger
from typing import Any

import anyio
from pycrdt import Doc, TransactionEvent, get_update, merge_updates

from ..access import is_control
from ..entry.message import Entry
from ..errors import GossipLogError
from ..kit import Documents, compose
from ..kit.documents import REPLACED_MAX

DOCUMENTS = Documents("documents")
APPLICATION = compose("documents", 1, DOCUMENTS)
"""The application of a log with documents, for `open(…, app=…)`."""
_STANDING_MAX = 256
_FLUSH_S = 5


class SharedDoc:
    """One document of a log, for one editor of it."""

    def __init__(self, log: Any, documents: Documents, name: str, logger: Logger) -> None:
        self._log = log
        self._documents = documents
        self._name = name
        self._logger = logger
        self.mirror: Doc[Any] = Doc()
        self._news: list[bytes] = []
        self._observing = self.mirror.observe(self._on_change)
        self._unsent: list[bytes] = []
        self._standing: dict[str, None] = {}
        """The entries that make the document, in order."""
        self._turn = anyio.Lock()

    @property
    def is_empty(self) -> bool:
        """Whether the log has no entry of the document."""
        return not self._standing

    @asynccontextmanager
    async def following(self, hand_out: Callable[[bytes], Awaitable[None]]) -> AsyncIterator[None]:
        """Load the document, and hand out the updates of others from then on. At the end, pending edits are still written to the log."""
        async with self._log.subscribe(from_now=True) as entries:
            await self._load()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow, entries, hand_out)
                try:
                    yield
                finally:
                    tasks.cancel_scope.cancel()
                    await self._end()

    async def write(self, update: bytes, metadata: bytes = b"") -> None:
        """Append the new part of an update. If that fails, it is appended together with the next one.

        Raises:
            GossipLogError: The log refuses the entry, or is closed.
        """
        self._unsent += self._absorb(update)
        await self.flush(metadata)

    async def flush(self, metadata: bytes = b"") -> None:
        """Append all edits that are not in the log yet, as one entry."""
        async with self._turn:
            if not self._unsent:
                return
            taken, self._unsent = self._unsent, []
            try:
                self._stands(await self._append(merge_updates(*taken), metadata=metadata))
            except BaseException:
                self._unsent = taken + self._unsent
                raise
            if len(self._standing) > min(_STANDING_MAX + len(self.mirror.get_update()) // 1024, REPLACED_MAX):
                replaced = [id for id in await self._documents.ids(self._log, self._name) if id in self._standing][:REPLACED_MAX]
                self._stands(await self._append(await self._state_of(replaced), replaces=replaced), replaced)

    async def _state_of(self, ids: list[str]) -> bytes:
        """Merge the updates of these entries, including parts that Yjs does not show because they build on something void."""
        doc: Doc[Any] = Doc()
        updates = []
        for id in ids:
            edit = self._documents.edit_of(await self._log.get(id))
            update = None if edit is None else await self._documents.update_of(self._log, edit)
            if update is not None:
                doc.apply_update(update)
                updates.append(update)
        return merge_updates(doc.get_update(), get_update(merge_updates(*updates), doc.get_state()))

    async def _load(self) -> list[bytes]:
        """Apply the log's entries that the mirror lacks; return the new updates."""
        ids = await self._documents.ids(self._log, self._name)
        gone = self._standing.keys() - set(ids)
        if gone and (void := await self._log.find_void(sorted(gone))):
            self._logger.warning("document %r: shown until it is loaded again, though void: %s", self._name, ", ".join(void))
        self._standing = {id: None for id in ids if id in self._standing}
        new = [id for id in ids if id not in self._standing]
        return [update for id in new for update in await self._take(await self._log.get(id))]

    async def _end(self) -> None:
        with anyio.move_on_after(_FLUSH_S, shield=True) as patience:
            try:
                await self.flush()
            except GossipLogError as error:
                self._logger.warning("document %r: its last edits are not in the log: %s", self._name, error)
        if patience.cancelled_caught:
            self._logger.warning("document %r: its last edits may not be in the log, after %d s", self._name, _FLUSH_S)

    async def _append(self, update: bytes, **options: Any) -> Entry:
        now = int(1000 * time.time())
        return await self._documents.write(self._log, self._name, update, time=now, **options)

    async def _follow(self, entries: Any, hand_out: Callable[[bytes], Awaitable[None]]) -> None:
        async for entry in entries:
            # After a control entry, earlier edits may count again.
            for update in await (self._load() if self._log.has_members and is_control(entry) else self._take(entry)):
                await hand_out(update)

    async def _take(self, entry: Entry) -> list[bytes]:
        """Apply an entry and return the new updates. The tables say whether it has an effect; a snapshot that replaced it comes later.

        An update that Yjs cannot read is left out, as on every replica.
        """
        edit = self._documents.edit_of(entry)
        if edit is None or edit.document != self._name or not await self._documents.stands(self._log, self._name, entry.id):
            return []
        update = await self._documents.update_of(self._log, edit)
        try:
            news = [] if update is None else self._absorb(update)
        except (ValueError, RuntimeError) as error:
            self._logger.warning("document %r: left out %s by %s: %s", self._name, entry.id, entry.author, error)
            return []
        self._stands(entry, edit.replaces)
        return news

    def _stands(self, entry: Entry, replaced: list[str] | None = None) -> None:
        self._standing[entry.id] = None
        for id in replaced or ():
            self._standing.pop(id, None)

    def _absorb(self, update: bytes) -> list[bytes]:
        self.mirror.apply_update(update)
        news, self._news = self._news, []
        return news

    def _on_change(self, event: TransactionEvent) -> None:
        self._news.append(event.update)
