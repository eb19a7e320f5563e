"""What the page's first view shows of a log, read at most twice a second however many look.

GET overview   {"node", "topic", "version", "now", "entries", "last", "clock", "heads": […], "head_count", "root": {"level", "hash"},
                "bytes", "quarantine", "set_aside", "peers", "can_append", "counts": {…}}
"""

from __future__ import annotations

import time
from typing import Any

import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...entry.message_id import encode_id
from ...entry.rules import next_clock
from ...log.requests import ReadCount, ReadHeads, ReadQuarantineCount, ReadSetAside
from ...net.service.service import Service
from ...plan import Plan, ask
from ...tree.node import ReadRoot
from ...version import VERSION

__all__ = ["Overview"]

_KEPT_S = 0.5
_HEADS_SHOWN = 32
_COUNTED_MAX = 1_000
"""Of what was set aside; the page then says "1,000 or more"."""


class Overview:
    """Serves the overview of one log.

    Args:
        service: Of the log.
        can_append: Whether the page may append.
    """

    def __init__(self, service: Service, *, can_append: bool) -> None:
        self._service = service
        self._can_append = can_append
        self._reading = trio.Lock()
        self._record: dict[str, Any] = {}
        self._read_at = -1e9

    async def show(self, request: Request) -> Response:
        """GET overview."""
        async with self._reading:
            if trio.current_time() - self._read_at >= _KEPT_S:
                self._record = await self._read()
                self._read_at = trio.current_time()
        return JSONResponse({**self._record, "now": time.time()}, headers={"Cache-Control": "no-store"})

    async def _read(self) -> dict[str, Any]:
        service = self._service
        return {
            "node": service.me,
            "topic": service.topic,
            "version": VERSION,
            "can_append": self._can_append,
            "peers": len(service.peers),
            "bytes": await service.log.size_bytes(),
            **await service.log.run(_read_log()),
        }


def _read_log() -> Plan[dict[str, Any]]:
    entries, last = yield from ask(ReadCount())
    heads = yield from ask(ReadHeads())
    root = yield from ask(ReadRoot())
    aside = yield from ask(ReadSetAside(None, _COUNTED_MAX))
    quarantined, _ = yield from ask(ReadQuarantineCount())
    return {
        "entries": entries,
        "last": last,
        "clock": next_clock(heads) - 1,
        "heads": [encode_id(key) for key in heads[-_HEADS_SHOWN:]],
        "head_count": len(heads),
        "root": {"level": root.level, "hash": root.hash.hex()},
        "quarantine": quarantined,
        "set_aside": len(aside),
    }
