"""Asking a running server over HTTP: within a time that the server cannot stretch, and only at the place that was named. Any answer is
either JSON that is safe to show, or an error of the command's.
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

    from ..net.hub.asking import HttpAnswer
    from ..net.hub.client import HubUrl

JSON_BYTES_MAX = 16 * 2**20
"""What a server of 10,000 connections says of its peers."""
_ANSWER_S = 10.0
_SENT_BYTES_PER_S = 64 * 1024
_SAID_BYTES_MAX = 64 * 1024
_SAID_CHARS_MAX = 400
_REDIRECTS = (301, 302, 303, 307, 308)


async def ask_in_trio(
    server: HubUrl, path: str, body: bytes | None = None, *, tls: ssl.SSLContext | None, answer_s: float | None = None
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
    try:
        with trio.fail_after(seconds):
            answer = await ask(server, path, body, tls=tls, answer_bytes_max=JSON_BYTES_MAX)
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


def ask_server(
    server: HubUrl, path: str, body: bytes | None = None, *, tls: ssl.SSLContext | None, answer_s: float | None = None
) -> HttpAnswer:
    """Ask as `ask_in_trio` does, where trio does not run."""
    return run(partial(ask_in_trio, server, path, body, tls=tls, answer_s=answer_s))


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
        return run(task)
    except trio.TooSlowError:
        raise TimeoutError from None


@dataclass(frozen=True, slots=True)
class Said:
    """What a server answered.

    Attributes:
        ahead_s: How far our clock is ahead of the one in its header `Date`; None without one.
    """

    record: Any
    ahead_s: float | None
    took_s: float


class Asker:
    """Asks one log of a server.

    Args:
        url: What `gossiplog serve` prints, with `/TOPIC` where it serves several logs.

    Raises:
        Failure: That is no URL of a server.
    """

    def __init__(
        self, url: str, tls: ssl.SSLContext | None = None, token: str | None = None, *, token_option: str = "--token-file"
    ) -> None:
        from ..net.hub.asking import parse_server_url

        with misused(""):
            self.server = parse_server_url(url, token=token)
        self.base = f"{self.server.target.partition('?')[0].rstrip('/')}/api/"
        self._tls = tls
        self._token_option = token_option

    def ask(self, what: str, **query: str) -> Said:
        """Ask for JSON.

        Raises:
            CannotConnect: The server cannot be reached, or is too slow.
            RemoteProtocolError: It refuses, or answers something else.
        """
        began = time.time()
        answer = ask_server(self.server, f"{self.base}{what}" + (f"?{urlencode(query)}" if query else ""), tls=self._tls)
        took_s = time.time() - began
        if answer.status != 200:
            raise self._refused(what, answer)
        try:
            return Said(read_json(answer), _ahead_s(answer, began, took_s), took_s)
        except DecodeError as error:
            raise self.nonsense(what, str(error)) from None

    def ask_object(self, what: str, **query: str) -> Mapping[str, Any]:
        """Ask for an object; see `ask`."""
        record = self.ask(what, **query).record
        if not isinstance(record, dict):
            raise self.nonsense(what)
        return record

    def nonsense(self, what: str, reason: str = "") -> RemoteProtocolError:
        """Return the error for an answer that makes no sense: anything may listen there."""
        text = f"{self.server.url} answered something else when asked for {self.base}{what}" + (f": {reason}" if reason else "")
        return RemoteProtocolError(text, hint="is that a server of logs?")

    def _refused(self, what: str, answer: HttpAnswer) -> RemoteProtocolError:
        """Say what a server answered instead, in its own words where it has some."""
        words = said(answer)
        if answer.status in (401, 403):
            hint = f"the server wants a token that allows to watch: {self._token_option} FILE"
        elif answer.status == 404:
            hint = "a server of several logs is asked about one: URL/TOPIC; one that was started with --no-api cannot be asked"
        else:
            hint = "the server's journal says more" if answer.status >= 500 else "is that a server of logs?"
        text = f"{self.server.url} answered {answer.status} when asked for {self.base}{what}" + (f": {words}" if words else "")
        return RemoteProtocolError(text, hint=hint)


def _ahead_s(answer: HttpAnswer, began: float, took_s: float) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return began + took_s / 2 - parsedate_to_datetime(answer.first(b"date") or "").timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
