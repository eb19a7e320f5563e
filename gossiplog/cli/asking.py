"""Asking a running server over HTTP: within a time that its answer cannot stretch, at no other place than the one that was named, and
whatever it answers is either JSON that can be shown or an error of the command's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import CannotConnect, DecodeError, RemoteProtocolError
from .output import clean

if TYPE_CHECKING:
    import ssl

    from ..net.hub.asking import HttpAnswer
    from ..net.hub.client import HubUrl

__all__ = ["JSON_BYTES_MAX", "ask_server", "certificate_of", "read_json", "said"]

JSON_BYTES_MAX = 16 * 2**20
"""What a server of 10,000 connections says of its peers."""
_ANSWER_S = 10.0
_SENT_BYTES_PER_S = 64 * 1024
_SAID_BYTES_MAX = 64 * 1024
_SAID_CHARS_MAX = 400
_REDIRECTS = (301, 302, 303, 307, 308)


def ask_server(
    server: HubUrl,
    path: str,
    body: bytes | None = None,
    *,
    tls: ssl.SSLContext | None,
    answer_s: float | None = None,
) -> HttpAnswer:
    """Ask: GET, or POST where there is a body of JSON.

    The answer is whole within `answer_s`, 10 s unless given, and the time that a slow line takes to send the body.

    Raises:
        CannotConnect: The server cannot be reached, or is too slow.
        RemoteProtocolError: It does not speak HTTP, says more than it may, or that we should ask elsewhere.
    """
    # They take a tenth of the time of a command that asks nobody.
    import trio

    from ..errors import ClosedError
    from ..glass.advice import advice_on
    from ..net.hub.asking import ask
    from ..net.hub.client import in_words

    seconds = (answer_s or _ANSWER_S) + len(body or b"") / _SENT_BYTES_PER_S

    async def task() -> HttpAnswer:
        with trio.fail_after(seconds):
            return await ask(server, path, body, tls=tls, answer_bytes_max=JSON_BYTES_MAX)

    try:
        answer = trio.run(task)
    except trio.TooSlowError:
        raise CannotConnect(f"{server.url} did not answer within {seconds:.0f} s", hint="is the server overloaded, or no server?") from None
    except (OSError, ClosedError) as error:
        reason = in_words(error)
        raise CannotConnect(f"cannot ask {server.url}: {reason}", hint=advice_on(reason)) from None
    except RemoteProtocolError as error:
        hint = "is that a server of logs? The URL of one with TLS begins with wss://"
        raise RemoteProtocolError(clean(str(error)), hint=hint) from None
    if answer.status in _REDIRECTS:
        place = clean((answer.first(b"location") or "nowhere")[:_SAID_CHARS_MAX])
        hint = "if that is the server that you mean, name it; nothing was sent there"
        raise RemoteProtocolError(f"{server.url} answered {answer.status}, and points to {place}", hint=hint)
    return answer


def read_json(answer: HttpAnswer) -> Any:
    """Read an answer.

    Raises:
        DecodeError: It is no JSON, or none that can be shown.
    """
    from ..codec import plain_json

    return plain_json.decode(answer.body)


def said(answer: HttpAnswer) -> str:
    """Return a refusal in the server's own words, fit to be shown; nothing of a page, which is another server's."""
    text = answer.body[:_SAID_BYTES_MAX].decode("utf-8", "replace").strip()
    try:
        record = read_json(answer)
        words = record["error"] if isinstance(record, dict) and "error" in record else text
    except DecodeError:
        words = text
    return clean(words[:_SAID_CHARS_MAX]) if isinstance(words, str) and not words.startswith("<") else ""


def certificate_of(server: HubUrl, tls: ssl.SSLContext) -> Mapping[str, Any]:
    """Return what the certificate of a server says, as `ssl` has it.

    Raises:
        OSError: It cannot be reached in time, or shows none that is trusted; then `reason` says why.
    """
    import trio

    from ..net.hub.asking import certificate

    async def task() -> Mapping[str, Any]:
        with trio.fail_after(_ANSWER_S):
            return await certificate(server, tls)

    try:
        return trio.run(task)
    except trio.TooSlowError:
        raise TimeoutError from None
