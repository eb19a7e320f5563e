"""Where TLS is what keeps a hub from being reached, the command and the link say what helps: a CA, another name, or the other scheme."""

import logging
import ssl
from pathlib import Path

import pytest
from network_support import eventually, make_certificate, memory_log

from gossiplog.errors import CannotConnect
from gossiplog.net.hub.client import open_websocket, parse_url


def server_context(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context, and one that trusts it, for `localhost` alone."""
    cert, key = make_certificate(folder)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(cert, key)
    return serving, ssl.create_default_context(cafile=cert)


@pytest.mark.parametrize(
    ("serves_tls", "url", "is_trusted", "hint"),
    [
        (True, "wss://localhost:{port}", False, "trust its CA with --tls-ca FILE"),
        (True, "wss://127.0.0.2:{port}", True, "for another name"),
        (True, "ws://localhost:{port}", False, "begins with wss://"),
        (False, "wss://localhost:{port}", False, "ws:// do not"),
    ],
)
async def test_what_helps_is_said(tmp_path, caplog, serves_tls, url, is_trusted, hint) -> None:
    serving, trusting = server_context(tmp_path)
    async with memory_log(1) as log, memory_log(2) as client, log.listen("0.0.0.0:0", tls=serving if serves_tls else None) as hub:
        place = url.format(port=hub.port)
        with pytest.raises(CannotConnect) as caught:
            await open_websocket(parse_url(place, tls=trusting if is_trusted else None))
        assert hint in (caught.value.hint or "") and "_ssl.c" not in str(caught.value)
        with caplog.at_level(logging.WARNING, "gossiplog.net"):
            async with client.connect(place, tls=trusting if is_trusted else None) as link:
                await eventually(lambda: link.error is not None)
        (said,) = [record.getMessage() for record in caplog.records if "hub not reached" in record.getMessage()]
        assert place in said and hint in said, "in any formatter's words"
