"""Asking a running server about one of its logs, and saying in words why it did not answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from ...errors import CannotConnect, DecodeError, LocalProtocolError, RemoteProtocolError
from ..asking import ask_server, read_json, said
from ..exits import ExitCode, Failure

if TYPE_CHECKING:
    import ssl

    from ...net.hub.asking import HttpAnswer

__all__ = ["Asker", "Said"]


@dataclass(frozen=True, slots=True)
class Said:
    """What a server answered.

    Attributes:
        record: The decoded JSON of the answer.
        ahead_s: How far our clock is ahead of the one in its header `Date`; None without one.
        took_s: From the question to the answer.
    """

    record: Any
    ahead_s: float | None
    took_s: float


class Asker:
    """Asks one log of a server.

    Args:
        url: What `gossiplog serve` prints, with `/TOPIC` where it serves several logs.
        tls: How its certificate is checked; None for the system's way.
        token: Lets us in.
        token_option: By which the user names it.

    Attributes:
        server: Where it is.

    Raises:
        Failure: That is no URL of a server.
    """

    def __init__(
        self, url: str, tls: ssl.SSLContext | None = None, token: str | None = None, *, token_option: str = "--token-file"
    ) -> None:
        from ...net.hub.asking import parse_server_url

        try:
            self.server = parse_server_url(url, token=token)
        except LocalProtocolError as error:
            raise Failure(str(error), hint=error.hint, code=ExitCode.USAGE, kind="usage") from None
        self.base = f"{self.server.target.partition('?')[0].rstrip('/')}/api/"
        self._tls = tls
        self._token_option = token_option

    def ask(self, what: str, **query: str) -> Said:
        """Ask for JSON.

        Raises:
            Failure: The server cannot be reached, refuses, or answers something else.
        """
        began = time.time()
        try:
            answer = ask_server(self.server, f"{self.base}{what}" + (f"?{urlencode(query)}" if query else ""), tls=self._tls)
        except (CannotConnect, RemoteProtocolError) as error:
            kind = "cannot-connect" if isinstance(error, CannotConnect) else "protocol"
            raise Failure(str(error), hint=error.hint, code=ExitCode.NETWORK, kind=kind) from None
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

    def nonsense(self, what: str, reason: str = "") -> Failure:
        """Return the error for an answer that is none; whatever listens there may say anything."""
        text = f"{self.server.url} answered something else when asked for {self.base}{what}" + (f": {reason}" if reason else "")
        return Failure(text, hint="is that a server of logs?", code=ExitCode.NETWORK, kind="protocol")

    def _refused(self, what: str, answer: HttpAnswer) -> Failure:
        """Say what a server answered instead, in its own words where it has some."""
        words = said(answer)
        if answer.status in (401, 403):
            hint = f"the server wants a token that allows to watch: {self._token_option} FILE"
        elif answer.status == 404:
            hint = "a server of several logs is asked about one: URL/TOPIC; one that was started with --no-api cannot be asked"
        else:
            hint = "the server's journal says more" if answer.status >= 500 else "is that a server of logs?"
        text = f"{self.server.url} answered {answer.status} when asked for {self.base}{what}" + (f": {words}" if words else "")
        return Failure(text, hint=hint, code=ExitCode.NETWORK, kind="protocol")


def _ahead_s(answer: HttpAnswer, began: float, took_s: float) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return began + took_s / 2 - parsedate_to_datetime(answer.first(b"date") or "").timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
