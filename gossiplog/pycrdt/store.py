"""The store: pycrdt-store's interface, on a log.

Source: docs/pycrdt.md; pycrdt-store 0.1.5, `BaseYStore`.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from logging import Logger, getLogger
from typing import Any

import anyio
from anyio.abc import TaskStatus
from pycrdt import Doc
from pycrdt.store import BaseYStore, YDocNotFound

from ..errors import GossipLogError, LocalProtocolError
from .shared import DOCUMENTS, SharedDoc


class LogYStore(BaseYStore):
    """Keeps a document in a log, and applies the updates of others to the document that it was loaded into.

    Subclass it to name the log, which must have `app=APPLICATION`:

        class Store(LogYStore):
            replica = log
    """

    replica: Any = None
    documents = DOCUMENTS

    def __init__(
        self, path: str, metadata_callback: Callable[[], Awaitable[bytes] | bytes] | None = None, log: Logger | None = None
    ) -> None:
        self.path = path
        self.metadata_callback = metadata_callback
        self.log = log or getLogger(__name__)
        self._shared: SharedDoc | None = None
        self._failure: Exception | None = None
        self._doc: weakref.ref[Doc[Any]] | None = None
        """The document that gets the updates of others. A weak reference: a room that ends leaves its store running."""

    def opened(self) -> AbstractAsyncContextManager[Any]:
        """Return a block with the log."""
        return nullcontext(self.replica)

    async def start(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED, from_context_manager: bool = False) -> None:
        """Load the document and follow the log, until `stop`."""
        if from_context_manager:
            assert self._task_group is not None
            await self._task_group.start(self._run)
            task_status.started()
            return
        async with self._start_lock:
            if self._task_group is not None:
                raise RuntimeError("YStore already running")
            async with anyio.create_task_group() as self._task_group:
                await self._task_group.start(self._run)
                task_status.started()

    async def write(self, data: bytes) -> None:
        """Append the new part of an update. If the log refuses it, that is logged, and the next write tries again."""
        shared = await self._ready()
        try:
            await shared.write(data, await self.get_metadata())
        except GossipLogError as error:
            self.log.warning("document %r: edits are not in the log and reach no other replica: %s", self.path, error)

    async def apply_updates(self, ydoc: Doc[Any]) -> None:
        """Apply the log's content to a document, and from then on the updates of others.

        Raises:
            YDocNotFound: The log has no entry of the document.
        """
        shared = await self._ready()
        self._doc = weakref.ref(ydoc)
        if shared.is_empty:
            raise YDocNotFound
        ydoc.apply_update(shared.mirror.get_update())

    async def read(self) -> AsyncIterator[tuple[bytes, bytes, float]]:
        """Iterate over all edits that were ever made and count, each with its metadata and its time. Reads the whole log."""
        async with self.opened() as log:
            is_found = False
            async for entry in log.iterate():
                edit = self.documents.edit_of(entry)
                if edit is None or edit.document != self.path or edit.replaces:
                    continue
                update = await self.documents.update_of(log, edit)
                if update is not None and await _counts(log, entry.id):
                    is_found = True
                    yield update, edit.metadata, edit.time / 1000
            if not is_found:
                raise YDocNotFound

    async def _ready(self) -> SharedDoc:
        await self.started.wait()
        if self._shared is None:
            raise self._failure or RuntimeError("YStore not running")
        return self._shared

    async def _run(self, *, task_status: TaskStatus[None]) -> None:
        try:
            async with self.opened() as log:
                shared = SharedDoc(log, self.documents, self.path, self.log)
                async with shared.following(self._hand_out):
                    self._shared = shared
                    self.started.set()
                    task_status.started()
                    await self.stopped.wait()
        except Exception as error:
            # Rooms start a store in a task whose errors they ignore, and wait for `started`.
            self.log.warning("document %r: its store ended: %s", self.path, error)
            self._shared, self._failure = None, error
            self.started.set()
            raise

    async def _hand_out(self, update: bytes) -> None:
        if self._doc is None:
            return
        doc = self._doc()
        if doc is None:
            self.stopped.set()
        else:
            doc.apply_update(update)


async def _counts(log: Any, id: str) -> bool:
    try:
        return bool((await log.standing(id)).counts)
    except LocalProtocolError:
        return True  # a log without members
