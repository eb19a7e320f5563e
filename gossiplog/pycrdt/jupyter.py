"""The store for jupyter-collaboration: all notebooks of a server in one log.

    c.YDocExtension.ystore_class = "gossiplog.pycrdt.jupyter.JupyterStore"

Source: docs/pycrdt.md; jupyter-server-ydoc 3, `YDocExtension`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from logging import Logger
from pathlib import Path
from typing import Any, ClassVar

from pycrdt import Doc
from pycrdt.store import BaseYStore
from traitlets import List, Unicode
from traitlets.config import Application, Config, LoggingConfigurable

from .. import aio
from ..entry.signing import Ed25519Signer
from ..errors import GossipLogError, LocalProtocolError
from .shared import APPLICATION
from .store import LogYStore

_ASK_S = 30
_POLL_S = 0.05
_ROLES = ("admin", "write", "read")
_HAS_SYNCED = {"syncs", "syncs served"}
"""The counters of a connection that count finished syncs, by whichever side began them."""


class _Meta(type(LoggingConfigurable), type(BaseYStore)):  # type: ignore[misc]
    pass


class JupyterStore(LogYStore, LoggingConfigurable, metaclass=_Meta):
    """A store whose log the configuration names. The log is opened with the first notebook, and stays open while the server runs."""

    log_path = Unicode("notebooks.db", help="The log: a file, or the URL of a PostgreSQL database.").tag(config=True)
    key_path = Unicode("notebooks.pem", help="The key that signs. It is made if there is none.").tag(config=True)
    topic = Unicode("notebooks.jupyter", help="The log's name, the same on all servers of a room.").tag(config=True)
    listen = Unicode("", help="HOST:PORT where other servers connect to.").tag(config=True)
    connect = List(Unicode(), help="URLs of other servers' logs.").tag(config=True)
    _logs: ClassVar[dict[str, asyncio.Task[tuple[aio.GossipLog, list[aio.HubLink]]]]] = {}

    def __init__(
        self,
        path: str,
        metadata_callback: Callable[[], Awaitable[bytes] | bytes] | None = None,
        log: Logger | None = None,
        config: Config | None = None,
    ) -> None:
        # The handler of a notebook's history passes no configuration.
        LoggingConfigurable.__init__(self, config=config or (Application.instance().config if Application.initialized() else Config()))
        LogYStore.__init__(self, path, metadata_callback, log)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Any]:
        """Return a block with the log, which all notebooks of the process share."""
        yield (await self._opened())[0]

    async def apply_updates(self, ydoc: Doc[Any]) -> None:
        """Apply the log's content of the notebook. If there is none, wait for a sync: creating a notebook that another server has would
        duplicate its content.

        Raises:
            YDocNotFound: No server has the notebook.
            TimeoutError: None of the other servers could be asked.
        """
        log, links = await self._opened()
        if links and not await self.documents.ids(log, self.path):
            try:
                async with asyncio.timeout(_ASK_S):
                    while not any(link.state and _HAS_SYNCED.intersection(link.state.counts) for link in links):
                        await asyncio.sleep(_POLL_S)
            except TimeoutError:
                raise TimeoutError(f"notebook {self.path}: none of {', '.join(self.connect)} answered whether it has it") from None
        shared = await self._ready()
        while shared.is_empty and await self.documents.ids(log, self.path):
            await asyncio.sleep(_POLL_S)
        await super().apply_updates(ydoc)

    async def role(self, did: str) -> str | None:
        """Return the highest role that a did holds in the log: `read`, `write` or `admin`; None if it holds none."""
        log, _ = await self._opened()
        try:
            held = {member.role for member in await log.members() if member.did == did and member.is_held}
        except LocalProtocolError:
            return None  # a log without members
        return next((role for role in _ROLES if role in held), None)

    async def _opened(self) -> tuple[aio.GossipLog, list[aio.HubLink]]:
        if self.log_path not in self._logs:
            self._logs[self.log_path] = asyncio.create_task(self._open())
        try:
            return await asyncio.shield(self._logs[self.log_path])
        except GossipLogError:
            self._logs.pop(self.log_path, None)
            raise

    async def _open(self) -> tuple[aio.GossipLog, list[aio.HubLink]]:
        key = Path(self.key_path)
        if not key.exists():
            Ed25519Signer.generate().save(key)
        log = await aio.open(self.log_path, topic=self.topic, signer=Ed25519Signer.load(key), app=APPLICATION).start()
        if self.listen:
            hub = await log.listen(self.listen).start()
            self.log.info("other servers connect to the log at %s", hub.urls[0])
        return log, [await log.connect(url).start() for url in self.connect]
