"""Who the members of a log are, told again whenever that changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import inf
from typing import Protocol

import trio

from ..access import is_control
from ..entry.message import Entry
from ..errors import GossipLogError, LocalProtocolError
from .applications import logger
from .members import LogMember

_LOOK_S = 5.0


class MemberLog(Protocol):
    """What is asked of a log here."""

    @property
    def topic(self) -> str:
        """The log's topic."""
        ...

    @property
    def has_members(self) -> bool:
        """Whether its own entries say who may write."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether other processes write to it."""
        ...

    async def members(self) -> list[LogMember]:
        """List its members."""
        ...

    def watch_commits(self, listener: Callable[[Sequence[Entry]], None]) -> AbstractContextManager[None]:
        """Have the new entries of each commit handed to a function."""
        ...


async def follow_members(
    log: MemberLog, tell: Callable[[Sequence[LogMember]], None], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Tell a function who the members are, at once and whenever that changes, until it is cancelled.

    A commit of ours counts within moments, one of another process within `_LOOK_S`. Nothing is told while the policy is not here.
    """
    changed = trio.Event()

    def on_commit(entries: Sequence[Entry]) -> None:
        if any(not entry.parent_keys or is_control(entry) for entry in entries):
            changed.set()

    with log.watch_commits(on_commit):
        while True:
            try:
                tell(await log.members())
            except LocalProtocolError:
                pass
            except GossipLogError as error:
                # A store that is away; what was known stays.
                logger.warning("members of %s not read: %s", log.topic, error)
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
            with trio.move_on_after(_LOOK_S if log.is_shared else inf):
                await changed.wait()
            changed = trio.Event()
