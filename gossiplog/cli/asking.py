"""HTTP requests to a running server: with a deadline that the server cannot move, and only to the server that the user named.

Every answer becomes either JSON that is safe to show, or an error.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from ..errors import CannotConnect, DecodeError, RemoteProtocolError
from .exits import misused
from .output import clean
from .session import run

if TYPE_CHECKING:
    import ssl

    from ..net.hub.client import HubUrl
    from ..net.transport.http_request import HttpAnswer

JSON_BYTES_MAX = 16 * 2**20
"""Enough for the list of peers of a server with 10,000 connections."""
ANSWER_S = 10.0
_SENT_BYTES_PER_S = 64 * 1024
_SAID_BYTES_MAX = 64 * 1024
_SAID_CHARS_MAX = 400
_REDIRECTS = (301, 302, 303, 307, 308)


async def ask_in_trio(server: HubUrl, path: str, body: bytes | None = None, *, answer_s: float | None = None) -> HttpAnswer:
    """Send a GET request, or POST with a body of JSON.

    The whole answer has to come within `answer_s`, 10 s unless given, plus the time that a slow line takes to send the body.

    Raises:
        CannotConnect: The server cannot be reached, or is too slow.
        RemoteProtocolError: It does not speak HTTP, its answer is too large, or it redirects.
    """
    # Imported here: these take a tenth of the time of a command that asks no server.
    import trio

    from ..errors import ClosedError
    from ..glass.advice import advice_on
    from ..net.hub.client import in_words

    seconds = (answer_s or ANSWER_S) + len(body or b"") / _SENT_BYTES_PER_S
    try:
        with trio.fail_after(seconds):
            answer = await server.ask(path, body, answer_bytes_max=JSON_BYTES_MAX)
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
    """Decode an answer's body.

    Raises:
        DecodeError: It is not JSON, or is JSON that cannot be shown.
    """
    from ..codec import plain_json

    return plain_json.decode(answer.body)


def said(answer: HttpAnswer) -> str:
    """Return a refusal in the server's own words, safe to show; empty for an HTML page, which comes from some other server."""
    text = answer.body[:_SAID_BYTES_MAX].decode("utf-8", "replace").strip()
    try:
        record = read_json(answer)
        words = record["error"] if isinstance(record, dict) and "error" in record else text
    except DecodeError:
        words = text
    return clean(words[:_SAID_CHARS_MAX]) if isinstance(words, str) and not words.startswith("<") else ""


@dataclass(frozen=True, slots=True)
class Said:
    """A server's answer.

    Attributes:
        record: The decoded JSON.
        ahead_s: How far our clock is ahead of the answer's header `Date`; None without one.
        took_s: The time from the request to the whole answer.
    """

    record: Any
    ahead_s: float | None
    took_s: float


class Asker:
    """Asks one log of a server.

    Args:
        url: As `gossiplog serve` prints it, with `/TOPIC` if the server has several logs.
        token_option: The option to name if the server wants a token.

    Attributes:
        path: The path of the URL without a slash at its end; `/api/` is below it.

    Raises:
        Failure: `url` is not the URL of a server.
    """

    def __init__(
        self, url: str, tls: ssl.SSLContext | None = None, token: str | None = None, *, token_option: str = "--token-file"
    ) -> None:
        from ..net.hub.client import parse_url

        with misused(""):
            self.server = parse_url(url, token=token, tls=tls, of_server=True)
        self.path = self.server.target.partition("?")[0].rstrip("/")
        self._token_option = token_option

    def ask(self, what: str, **query: str) -> Said:
        """Get JSON from `/api/` and the name `what`.

        Raises:
            CannotConnect: The server cannot be reached, or is too slow.
            RemoteProtocolError: It refuses, or its answer is not JSON.
        """
        began = time.time()
        answer = self.send(f"{self.path}/api/{what}" + (f"?{urlencode(query)}" if query else ""))
        took_s = time.time() - began
        if answer.status != 200:
            raise self._refused(what, answer)
        try:
            return Said(read_json(answer), _ahead_s(answer, began, took_s), took_s)
        except DecodeError as error:
            raise self.nonsense(what, str(error)) from None

    def ask_object(self, what: str, **query: str) -> Mapping[str, Any]:
        """Get a JSON object, like `ask`."""
        record = self.ask(what, **query).record
        if not isinstance(record, dict):
            raise self.nonsense(what)
        return record

    def send(self, path: str, body: bytes | None = None, *, answer_s: float | None = None) -> HttpAnswer:
        """Send one request; see `ask_in_trio`."""
        return run(partial(ask_in_trio, self.server, path, body, answer_s=answer_s))

    def nonsense(self, what: str, reason: str = "") -> RemoteProtocolError:
        """Return the error for an answer that makes no sense: any program may listen there."""
        text = f"{self.server.url} answered something else when asked for {self.path}/api/{what}" + (f": {reason}" if reason else "")
        return RemoteProtocolError(text, hint="is that a server of logs?")

    def _refused(self, what: str, answer: HttpAnswer) -> RemoteProtocolError:
        words = said(answer)
        if answer.status in (401, 403):
            hint = f"the server asks for a token with the right to watch: {self._token_option} FILE"
        elif answer.status == 404:
            hint = "a server of several logs is asked about one: URL/TOPIC; one that was started with --no-api cannot be asked"
        else:
            hint = "the server's journal says more" if answer.status >= 500 else "is that a server of logs?"
        text = f"{self.server.url} answered {answer.status} when asked for {self.path}/api/{what}" + (f": {words}" if words else "")
        return RemoteProtocolError(text, hint=hint)


def _ahead_s(answer: HttpAnswer, began: float, took_s: float) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return began + took_s / 2 - parsedate_to_datetime(answer.first(b"date") or "").timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
