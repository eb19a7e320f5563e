"""What members may on a server's connections: the role that the log gives to a did becomes rights, for as long as it is held.

Source: docs/operations.md, "Members"; docs/spec/access.md, "Servers".
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from math import inf

import trio

from ...access import is_control
from ...entry.message import Entry
from ...errors import GossipLogError, LocalProtocolError
from ...replica.log import Replica
from ...replica.members import LogMember
from ..ground.access import Access, Rights
from ..ground.journal import note

__all__ = ["roles_kept"]

_READER = Rights({"connect", "pull"})
_WRITER = _READER | {"push", "post"}
_LOOK_S = 5.0


@asynccontextmanager
async def roles_kept(log: Replica, access: Access) -> AsyncIterator[None]:
    """Have a server's rules know what the members of a log may, until the end of the block. A log without a policy changes nothing.

    A commit of ours counts within moments, one of another process within `_LOOK_S`.
    """
    if not log.has_members:
        yield
        return
    changed = trio.Event()

    def on_commit(entries: Sequence[Entry]) -> None:
        if any(not entry.parent_keys or is_control(entry) for entry in entries):
            changed.set()

    async def keep() -> None:
        nonlocal changed
        with scope:
            while True:
                with trio.move_on_after(_LOOK_S if log.is_shared else inf):
                    await changed.wait()
                changed = trio.Event()
                await _read(log, access)

    scope = trio.CancelScope()
    with log.watch_commits(on_commit), access.deciding_members(log.topic):
        await _read(log, access)
        log.tasks.start_soon(keep)
        try:
            yield
        finally:
            scope.cancel()


async def _read(log: Replica, access: Access) -> None:
    try:
        members = await log.members()
        rights = _rights_of(members)
        removed = {member.did: member.removed_by[0] for member in members if member.did not in rights}
        access.set_members(log.topic, rights, removed)
    except LocalProtocolError:
        # The policy is not here yet.
        pass
    except GossipLogError as error:
        # A store that is away; what was known stays.
        note("members not read", level=logging.WARNING, topic=log.topic, reason=str(error))


def _rights_of(members: Sequence[LogMember]) -> dict[str, Rights]:
    rights: dict[str, Rights] = {}
    for member in members:
        if member.is_held:
            rights[member.did] = rights.get(member.did, Rights()) | (_READER if member.role == "read" else _WRITER)
    return rights
