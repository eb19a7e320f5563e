"""The rights of a log's members on a server's connections: a role becomes rights for as long as the member holds it.

Source: docs/operations.md, "Members"; docs/spec/access.md, "Servers".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from ...replica.log import Replica
from ...replica.members import LogMember
from ...replica.subscription import follow_members
from ..ground.access import Access, Rights

_READER = Rights({"connect", "pull"})
_WRITER = _READER | {"push", "post"}


@asynccontextmanager
async def roles_kept(log: Replica, access: Access) -> AsyncIterator[None]:
    """Keep a server's rules up to date with a log's members for the length of a block. Does nothing for a log without members."""
    if not log.has_members:
        yield
        return

    def tell(members: Sequence[LogMember]) -> None:
        rights = _rights_of(members)
        removed = {member.did: member.removed_by[0] for member in members if member.did not in rights}
        access.set_members(log.topic, rights, removed)

    async def keep(task_status: trio.TaskStatus[None]) -> None:
        with scope:
            await follow_members(log, tell, task_status=task_status)

    scope = trio.CancelScope()
    with access.deciding_members(log.topic):
        await log.tasks.start(keep)
        try:
            yield
        finally:
            scope.cancel()


def _rights_of(members: Sequence[LogMember]) -> dict[str, Rights]:
    rights: dict[str, Rights] = {}
    for member in members:
        if member.is_held:
            rights[member.did] = rights.get(member.did, Rights()) | (_READER if member.role == "read" else _WRITER)
    return rights
