"""Asking our own log on behalf of the broadcast machine, which waits for its answers however long they take."""

from __future__ import annotations

import logging
from typing import Any

import trio

from ...errors import GossipLogError
from ...plan import Plan, Resumable
from ...replica.log import Replica
from ..ground.journal import note

__all__ = ["ask_until_answered"]

_RETRY_FIRST_S, _RETRY_MOST_S = 1.0, 60.0


async def ask_until_answered(log: Replica, plan: Plan[Any]) -> Any:
    """Run a plan that reads, and return its answer; again, after 1 s to 60 s, where the store fails it or holds what cannot be read.

    Any part of the plan may see a later state of the log than the part before it.
    """
    resumable, pause = Resumable(plan), _RETRY_FIRST_S
    while True:
        try:
            return await log.run(resumable.run())
        except GossipLogError as error:
            note("the log does not answer", level=logging.ERROR, reason=str(error))
        await trio.sleep(pause)
        pause = min(2 * pause, _RETRY_MOST_S)
