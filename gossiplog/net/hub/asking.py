"""A server's URL as the command line takes it, and its certificate."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import LocalProtocolError
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
