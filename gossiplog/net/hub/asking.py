"""One question to a server over plain HTTP. What answers is the server that was asked: a redirect is an answer, and is not followed, for
it would take the token to another host, or out of TLS."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import LocalProtocolError
from ..transport.http_request import HttpAnswer as HttpAnswer
from ..transport.http_request import request
from ..transport.tcp import dial_tcp
from .client import HubUrl, parse_url, tls_of

_WEBSOCKETS = {"http": "ws", "https": "wss"}
_TOPIC_HINT = "what `gossiplog serve` prints: ws://HOST:PORT, or wss:// with TLS; with /TOPIC where it serves several logs"


def parse_server_url(url: str, *, token: str | None = None) -> HubUrl:
    """Take a server's URL apart; `http://` and `https://` are as good as `ws://` and `wss://`.

    Raises:
        LocalProtocolError: It is none.
    """
    scheme, separator, rest = url.partition("://")
    try:
        server = parse_url(f"{_WEBSOCKETS.get(scheme.lower(), scheme)}{separator}{rest}", token=token)
    except LocalProtocolError as error:
        raise LocalProtocolError(f"this is not the URL of a server: {error}", hint=_TOPIC_HINT) from None
    return replace(server, url=f"{scheme}://{server.url.partition('://')[2]}")


async def ask(
    server: HubUrl, path: str, body: bytes | None = None, *, tls: ssl.SSLContext | None = None, answer_bytes_max: int
) -> HttpAnswer:
    """Ask: GET, or POST where there is a body of JSON. The caller sets a deadline.

    Args:
        server: Whom; its headers, with the token, go to it and to nobody else.
        path: And query.
        body: JSON.
        tls: How its certificate is checked; the system's authorities unless given.
        answer_bytes_max: How long the answer may be.

    Returns:
        The answer, whatever its status.

    Raises:
        OSError: It cannot be reached.
        ClosedError: The connection broke.
        RemoteProtocolError: What answers speaks no HTTP, or says more than it may.
        LocalProtocolError: The path cannot be sent.
    """
    stream = await dial_tcp(server.host, server.port, tls_of(server, tls), server.source)
    try:
        return await request(stream, server.host_header, path, body, headers=server.headers, answer_bytes_max=answer_bytes_max)
    finally:
        await stream.aclose()


async def certificate(server: HubUrl, tls: ssl.SSLContext) -> Mapping[str, Any]:
    """Return what the certificate of a server says, as `ssl` has it. The caller sets a deadline.

    Raises:
        OSError: It cannot be reached, or shows none that is trusted; then `reason` says why.
    """
    stream = await dial_tcp(server.host, server.port, tls)
    try:
        return stream.certificate
    finally:
        await stream.aclose()
