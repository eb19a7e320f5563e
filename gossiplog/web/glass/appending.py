"""Appending by the page, for whoever runs the server: signed by the log's own key.

POST append   {"payload": …} in dag-json: 201 and {"id"}
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...codec import dag_json
from ...errors import ClosedError, DecodeError, EncodeError, GossipLogError, LocalProtocolError, StoreError
from ...replica.log import Replica
from ..body import reading
from ..own_page import check_own_page

__all__ = ["Appending"]

_BODY_BYTES_MAX = 64 * 1024


class Appending:
    """Serves appends to one log.

    Args:
        log: The open log.
        is_allowed: Whether the server was started with `--dashboard-append`.
    """

    def __init__(self, log: Replica, *, is_allowed: bool) -> None:
        self._log = log
        self._is_allowed = is_allowed

    async def append(self, request: Request) -> Response:
        """POST append."""
        if not self._is_allowed:
            raise HTTPException(403, "this server takes no appends from its page: it was started without --dashboard-append")
        check_own_page(request)
        async with reading(request, _BODY_BYTES_MAX) as body:
            record = _to_record(body)
        try:
            entry = await self._log.append(record["payload"])
        except EncodeError as error:
            raise HTTPException(400, f"the payload has no portable form: {error}") from None
        except LocalProtocolError as error:
            raise HTTPException(403, str(error)) from None
        except (ClosedError, StoreError):
            raise HTTPException(503, "the entry could not be stored") from None
        except GossipLogError as error:
            raise HTTPException(403, f"the log refuses it: {error}") from None
        return JSONResponse({"id": entry.id}, 201, headers={"Location": f"messages/{entry.id}"})


def _to_record(body: bytes) -> dict[str, object]:
    try:
        record = dag_json.decode(body)
    except DecodeError as error:
        raise HTTPException(400, f"the body is not dag-json: {error}") from None
    if not isinstance(record, dict) or "payload" not in record:
        raise HTTPException(400, 'the body is {"payload": …}')
    return record
