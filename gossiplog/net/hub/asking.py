"""One request to a server over plain HTTP. Redirects are not followed: they would take the token to another host, or out of TLS."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import LocalProtocolError
from ..transport.http_request import HttpAnswer as HttpAnswer
from ..transport.http_request import request
from .client import HubUrl, parse_url

_WEBSOCKETS = {"http": "ws", "https": "wss"}
_TOPIC_HINT = "what `gossiplog serve` prints: ws://HOST:PORT, or wss:// with TLS; with /TOPIC where it serves several logs"


def parse_server_url(url: str, *, token: str | None = None, tls: ssl.SSLContext | None = None) -> HubUrl:
    """Parse a server's URL: `http://`, `https://`, `ws://` or `wss://`.

    Raises:
        LocalProtocolError: It is malformed.
    """
    scheme, separator, rest = url.partition("://")
    try:
        server = parse_url(f"{_WEBSOCKETS.get(scheme.lower(), scheme)}{separator}{rest}", token=token, tls=tls)
    except LocalProtocolError as error:
        raise LocalProtocolError(str(error), hint=_TOPIC_HINT) from None
    return replace(server, url=f"{scheme}://{server.url.partition('://')[2]}")


async def ask(server: HubUrl, path: str, body: bytes | None = None, *, answer_bytes_max: int) -> HttpAnswer:
    """Send a request, POST if there is a body of JSON, else GET. The caller sets a deadline.

    Args:
        server: The server; its headers, which have the token, are sent along.
        path: Path and query.

    Returns:
        The answer, whatever its status.

    Raises:
        OSError: The server cannot be reached.
        ClosedError: The connection broke.
        RemoteProtocolError: The answer is not HTTP, or too long.
        LocalProtocolError: The path cannot be sent.
    """
    stream = await server.dial()
    try:
        return await request(stream, server.host_header, path, body, headers=server.headers, answer_bytes_max=answer_bytes_max)
    finally:
        await stream.aclose()


async def certificate(server: HubUrl) -> Mapping[str, Any]:
    """Return the certificate of a server with TLS as `ssl` decodes it. The caller sets a deadline.

    Raises:
        OSError: The server cannot be reached, or its certificate is not trusted; then `reason` says why.
    """
    stream = await server.dial()
    try:
        return stream.certificate
    finally:
        await stream.aclose()
