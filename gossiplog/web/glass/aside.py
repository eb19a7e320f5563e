"""Which entries of a log applications set aside, for the page to mark them.

GET aside   {"ids": [id, …], "more": …}
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...entry.message_id import encode_id
from ...log.requests import ReadSetAside
from ...plan import ask
from ...replica.log import Replica

__all__ = ["Aside"]

_RECORDS_MAX = 1_000


class Aside:
    """Serves what was set aside of one log.

    Args:
        log: The open log.
    """

    def __init__(self, log: Replica) -> None:
        self._log = log

    async def show(self, request: Request) -> Response:
        """GET aside."""
        records = await self._log.run(ask(ReadSetAside(None, _RECORDS_MAX + 1)))
        ids = dict.fromkeys(encode_id(record.key) for record in records[:_RECORDS_MAX])
        return JSONResponse({"ids": list(ids), "more": len(records) > _RECORDS_MAX}, headers={"Cache-Control": "no-store"})
