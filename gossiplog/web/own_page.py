"""What the server's own page alone may have done: appending with its key, breaking a test network.

A page of another origin could have a browser send a form, with the person's own access to the server; hence only requests of this
origin are taken, and only JSON, which no form sends.

Source: Fetch Metadata Request Headers, 2.3.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request

__all__ = ["check_own_page"]


def check_own_page(request: Request) -> None:
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
