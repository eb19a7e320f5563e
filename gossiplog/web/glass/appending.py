"""Appending by the page, for whoever runs the server: signed by the log's own key.

POST append   {"payload": …} in dag-json: 201 and {"id"}

A page of another origin could have a browser send a form, with the person's own access to the server; hence only requests of this
origin are taken, and only JSON, which no form sends.
"""

from __future__ import annotations

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...codec import dag_json
from ...errors import ClosedError, DecodeError, EncodeError, GossipLogError, LocalProtocolError, StoreError
from ...replica.log import Replica

__all__ = ["Appending"]

_BODY_BYTES_MAX = 64 * 1024
_BODY_S = 5.0


class Appending:
    """Serves appends to one log.

    Args:
        log: Open.
        is_allowed: Whether the server was started with `--dashboard-append`.
    """

    def __init__(self, log: Replica, *, is_allowed: bool) -> None:
        self._log = log
        self._is_allowed = is_allowed

    async def append(self, request: Request) -> Response:
        """POST append."""
        if not self._is_allowed:
            raise HTTPException(403, "this server takes no appends from its page: it was started without --dashboard-append")
        check_origin(request)
        record = await _read_record(request)
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


def check_origin(request: Request) -> None:
    """Refuse what a page of another origin had a browser send.

    Raises:
        HTTPException: It did, or the body may be a form's.
    """
    headers = request.headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "the content type is application/json")
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    # What is no browser sends neither. A proxy may have another scheme than its page.
    if (origin is not None and origin.partition("://")[2] != headers.get("host")) or site not in (None, "same-origin"):
        raise HTTPException(403, "only the page of this server may ask for this")


async def _read_record(request: Request) -> dict[str, object]:
    if int(request.headers.get("content-length", "0")) > _BODY_BYTES_MAX:
        raise HTTPException(413, f"a body has at most {_BODY_BYTES_MAX} bytes")
    body = bytearray()
    with trio.move_on_after(_BODY_S) as timing:
        while (message := await request.receive())["type"] == "http.request":
            body += message["body"]
            if len(body) > _BODY_BYTES_MAX:
                raise HTTPException(413, f"a body has at most {_BODY_BYTES_MAX} bytes")
            if not message["more_body"]:
                break
    if timing.cancelled_caught:
        raise HTTPException(408, "the body did not arrive")
    try:
        record = dag_json.decode(bytes(body))
    except DecodeError as error:
        raise HTTPException(400, f"the body is not dag-json: {error}") from None
    if not isinstance(record, dict) or "payload" not in record:
        raise HTTPException(400, 'the body is {"payload": …}')
    return record
