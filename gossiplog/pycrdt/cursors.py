"""Cursors and names of the people in a room, shared with the rooms of other servers by the log's presence.

In presence, each client of a room is an author with a temporary key, so that each has the limits of one person. A log with members accepts
presence from members only: there the server's key signs for all clients, and about six clients of a server are seen elsewhere.

Source: docs/pycrdt.md; docs/spec/presence.md; y-protocols, "awareness protocol".
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from pycrdt import Decoder
from pycrdt.websocket import YRoom

from ..entry.signing import Ed25519Signer, Signer
from ..errors import ClosedError, GossipLogError, LocalProtocolError

_TTL_S = 30
"""Yjs drops a client that has been silent for so long; clients renew their state every 15 s."""
_STATE_BYTES_MAX = 960
"""A larger state does not fit a statement with its name."""
_CLIENTS_MAX = 32
"""Clients of a room that are shared with other rooms; further ones are seen only in their own."""
_LOCAL = "local"
"""The origin of changes that a room sends to its clients."""


@asynccontextmanager
async def share_awareness(room: YRoom, replica: Any, name: str) -> AsyncIterator[None]:
    """Share the clients of a document's room with the rooms of other servers on its log, and theirs with it, for the length of a block."""
    sharing = _Sharing(room, replica, name)
    seen = room.awareness.observe(sharing.on_change)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sharing.tell)
            tasks.start_soon(sharing.hear)
            yield
            tasks.cancel_scope.cancel()
    finally:
        room.awareness.unobserve(seen)


class _Sharing:
    def __init__(self, room: YRoom, replica: Any, name: str) -> None:
        self._room = room
        self._log = replica
        self._prefix = f"y {hashlib.sha256(name.encode()).hexdigest()[:16]} "
        self._signers: dict[int, Signer | None] = {}
        """The signer of each client of this room, by id; None stands for the log's own."""
        self._changed: dict[int, None] = {}
        self._more = anyio.Event()
        self._is_applying = False

    def on_change(self, topic: str, change: tuple[dict[str, list[int]], Any]) -> None:
        ids, origin = change
        if topic != "update" or self._is_applying:
            return
        for id in (*ids["added"], *ids["updated"], *ids["removed"]):
            # Changes by the room's own clients have the room as their origin.
            if id in self._signers or (origin is self._room and len(self._changed) + len(self._signers) < _CLIENTS_MAX):
                self._changed[id] = None
        self._more.set()

    async def tell(self) -> None:
        """Share changes of this room's clients; of several changes of one client only the newest is sent."""
        try:
            await self._log.members()
            has_members = True
        except LocalProtocolError:
            has_members = False
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            while self._changed:
                id = next(iter(self._changed))
                del self._changed[id]
                signer = self._signers.setdefault(id, None if has_members else Ed25519Signer.generate())
                state = self._room.awareness.encode_awareness_update([id]) if id in self._room.awareness.states else None
                if state is None:
                    del self._signers[id]
                try:
                    if state is None or len(state) <= _STATE_BYTES_MAX:
                        await self._log.presence.set({f"{self._prefix}{id}": state}, ttl_s=_TTL_S, signer=signer)
                except ClosedError:
                    return
                except GossipLogError as error:
                    self._room.log.warning("cursors of %s are not seen elsewhere: %s", self._prefix, error)

    async def hear(self) -> None:
        """Apply the states of other rooms' clients."""
        try:
            async for change in self._log.presence:
                if change.name.startswith(self._prefix) and change.name.removeprefix(self._prefix).isdecimal():
                    self._apply(int(change.name.removeprefix(self._prefix)), change.value)
        except ClosedError:
            return

    def _apply(self, id: int, update: Any) -> None:
        awareness = self._room.awareness
        if id in self._signers or id in self._changed or id == awareness.client_id:
            return  # a client of this room
        self._is_applying = True
        try:
            if update is None:
                awareness.remove_awareness_states([id], _LOCAL)
            elif isinstance(update, bytes) and len(update) <= _STATE_BYTES_MAX and _is_about(update, id):
                awareness.apply_awareness_update(update, _LOCAL)
        except (ValueError, RuntimeError, IndexError):
            return  # malformed: no room sends this
        finally:
            self._is_applying = False


def _is_about(update: bytes, id: int) -> bool:
    """Whether an update is about this client alone."""
    decoder = Decoder(update)
    return decoder.read_var_uint() == 1 and decoder.read_var_uint() == id
