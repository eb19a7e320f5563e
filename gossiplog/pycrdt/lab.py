"""jupyter-collaboration with users who may only read, and with the cursors of other servers.

jupyter-collaboration asks the server's authorizer once whether a user may `read` `contents`, and then accepts whatever the user's browser
sends. This extension replaces two of its handlers by ones that also ask for `write`.

Source: docs/pycrdt.md; jupyter-server-ydoc 3, `YDocWebSocketHandler`; jupyter-server 2, "Authorization".
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar
from weakref import WeakSet

from jupyter_server.auth import Authorizer, User
from jupyter_server.auth.decorator import authorized
from jupyter_server.utils import ensure_async
from jupyter_server_ydoc.app import YDocExtension
from jupyter_server_ydoc.handlers import DocSessionHandler, YDocWebSocketHandler
from jupyter_server_ydoc.rooms import DocumentRoom
from jupyter_server_ydoc.utils import MessageType
from pycrdt.websocket import YRoom
from tornado import web
from traitlets import Dict, Unicode

from .cursors import share_awareness
from .jupyter import JupyterStore
from .provider import READERS_SAY

_TASKS: set[asyncio.Task[None]] = set()
_WRITERS = ("write", "admin")
_HARMLESS = (*READERS_SAY, bytes((MessageType.RAW,)))
_KNOWN_S = 1.0
"""How long a connection keeps the authorizer's answer, as each keystroke is a message."""


class MemberAuthorizer(Authorizer):
    """Lets a user write and run code if the user's did may write to the log. Every user may read.

    It looks at the members of the log that `JupyterStore` names, at each request. A log without members has no writers.
    """

    dids = Dict(Unicode(), help="The did of each user, by name. Users without one may read.").tag(config=True)

    async def is_authorized(self, handler: Any, user: User, action: str, resource: str) -> bool:
        """Say whether a user may do this now."""
        if action == "read" or (action, resource) == ("execute", "events"):
            return True
        did = self.dids.get(user.username)
        return did is not None and await JupyterStore("", config=self.config).role(did) in _WRITERS


class LabHandler(YDocWebSocketHandler):  # type: ignore[misc]
    """A user's connection to a document. From a user who may not write, it accepts only queries, cursors and requests to save."""

    _sharing: ClassVar[WeakSet[YRoom]] = WeakSet()
    _may_write = False
    _asked_at = -_KNOWN_S

    async def prepare(self) -> None:
        """Find or make the room, and share cursors with other servers for as long as it exists."""
        await super().prepare()
        if isinstance(self.room, DocumentRoom) and isinstance(self.room.ystore, JupyterStore) and self.room not in self._sharing:
            self._sharing.add(self.room)
            task = asyncio.create_task(self._share(self.room, self.room.ystore))
            _TASKS.add(task)
            task.add_done_callback(_TASKS.discard)

    async def _share(self, room: YRoom, store: JupyterStore) -> None:
        async with store.opened() as log, share_awareness(room, log, store.path):
            while room in self._websocket_server.rooms.values():
                await asyncio.sleep(_KNOWN_S)

    async def on_message(self, message: bytes) -> None:
        """Handle a message from the user's browser. Tornado passes the next one after this has returned."""
        if not message.startswith(_HARMLESS):
            if time.monotonic() - self._asked_at >= _KNOWN_S:
                answer = self.authorizer.is_authorized(self, self.current_user, "write", self.auth_resource)
                self._may_write, self._asked_at = bool(await ensure_async(answer)), time.monotonic()
            if not self._may_write:
                return
        await super().on_message(message)


class LabSessionHandler(DocSessionHandler):  # type: ignore[misc]
    """Tells a user which room a document is in. That is asked by PUT, for which the authorizer would have to allow to write."""

    @web.authenticated
    @authorized(action="read")  # type: ignore[untyped-decorator]
    async def put(self, path: str) -> Any:
        """Answer as jupyter-collaboration does."""
        return await ensure_async(DocSessionHandler.put.__wrapped__.__wrapped__(self, path))


_OURS = {YDocWebSocketHandler: LabHandler, DocSessionHandler: LabSessionHandler}


class LabExtension(YDocExtension):  # type: ignore[misc]
    """jupyter-collaboration, with readers and the cursors of other servers."""

    def initialize_handlers(self) -> None:
        """Register the extension's handlers, two of them ours."""
        super().initialize_handlers()
        self.handlers[:] = [(path, _OURS.get(handler, handler), *rest) for path, handler, *rest in self.handlers]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": __name__, "app": LabExtension}]
