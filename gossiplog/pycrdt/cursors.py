"""Cursors and names of the people in a room, told to the rooms of other servers by the log's presence.

Each client of a room is an author of its own in presence, by a key that nobody keeps, so that its limits are those of one person. In a log
with members only members are heard: there the server's key speaks for all, and about six clients of a server are seen elsewhere.

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
"""As long as Yjs takes somebody for present who says nothing; it says something every 15 s."""
_STATE_BYTES_MAX = 960
"""With its name, it fits a statement."""
_CLIENTS_MAX = 32
"""Clients of a room that are told to others; further ones are seen in their room only."""
_LOCAL = "local"
"""A change with this origin is what a room tells its clients."""


@asynccontextmanager
async def share_awareness(room: YRoom, replica: Any, name: str) -> AsyncIterator[None]:
    """Show those in a room of a document to the rooms of other servers on its log, and the other way round, for the length of a block."""
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
        """Of the clients of this room, by their ids; None for the log's own."""
        self._changed: dict[int, None] = {}
        self._more = anyio.Event()
        self._is_applying = False

    def on_change(self, topic: str, change: tuple[dict[str, list[int]], Any]) -> None:
        ids, origin = change
        if topic != "update" or self._is_applying:
            return
        for id in (*ids["added"], *ids["updated"], *ids["removed"]):
            # What its clients say comes from the room itself.
            if id in self._signers or (origin is self._room and len(self._changed) + len(self._signers) < _CLIENTS_MAX):
                self._changed[id] = None
        self._more.set()

    async def tell(self) -> None:
        """Tell others what has changed of the clients of this room; what changes meanwhile goes out with its newest."""
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
        """Apply what other rooms tell."""
        try:
            async for change in self._log.presence:
                if change.name.startswith(self._prefix) and change.name.removeprefix(self._prefix).isdecimal():
                    self._apply(int(change.name.removeprefix(self._prefix)), change.value)
        except ClosedError:
            return

    def _apply(self, id: int, update: Any) -> None:
        awareness = self._room.awareness
        if id in self._signers or id in self._changed or id == awareness.client_id:
            return  # one of ours
        self._is_applying = True
        try:
            if update is None:
                awareness.remove_awareness_states([id], _LOCAL)
            elif isinstance(update, bytes) and len(update) <= _STATE_BYTES_MAX and _is_about(update, id):
                awareness.apply_awareness_update(update, _LOCAL)
        except (ValueError, RuntimeError, IndexError):
            return  # not what a room tells
        finally:
            self._is_applying = False


def _is_about(update: bytes, id: int) -> bool:
    """Whether an update tells of this client alone."""
    decoder = Decoder(update)
    return decoder.read_var_uint() == 1 and decoder.read_var_uint() == id
