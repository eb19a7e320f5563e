"""Asking a running server over HTTP, and saying in words why it did not answer."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from ..exits import ExitCode, Failure
from ..output import clean
from ..tokens import unreached_hint

if TYPE_CHECKING:
    import ssl
    import urllib.error

__all__ = ["Asker", "Said"]

_SCHEMES = {"ws": "http", "wss": "https", "http": "http", "https": "https"}
_ANSWER_S = 10.0
_ANSWER_BYTES_MAX = 64 * 2**20
_REFUSAL_BYTES_MAX = 64 * 2**10
_REFUSAL_CHARS_MAX = 400


@dataclass(frozen=True, slots=True)
class Said:
    """What a server answered.

    Attributes:
        record: JSON.
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

    Raises:
        Failure: That is no URL of a server.
    """

    def __init__(self, url: str, tls: ssl.SSLContext | None = None, token: str | None = None) -> None:
        try:
            parts = urlsplit(url)
            self.host, self.port = parts.hostname or "", parts.port
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in _SCHEMES or not parts.netloc:
            hint = "what `gossiplog serve` prints: ws://HOST:PORT, with /TOPIC where it serves several logs"
            raise Failure(f"{url!r} is not the URL of a server", hint=hint, code=ExitCode.USAGE, kind="usage")
        self.url = url
        self.is_tls = _SCHEMES[parts.scheme] == "https"
        self.base = f"{_SCHEMES[parts.scheme]}://{parts.netloc}{parts.path.rstrip('/')}/api/"
        self._tls = tls
        self._token = token

    def ask(self, what: str, **query: str) -> Said:
        """Ask for JSON.

        Raises:
            Failure: The server cannot be reached, refuses, or answers something else.
        """
        # They take a tenth of the time of a command that asks nobody.
        import http.client
        import urllib.error
        import urllib.request

        url = self.base + what + (f"?{urlencode(query)}" if query else "")
        try:
            request = urllib.request.Request(url, headers={} if self._token is None else {"Authorization": f"Bearer {self._token}"})
            began = time.time()
            with urllib.request.urlopen(request, timeout=_ANSWER_S, context=self._tls) as response:
                record = json.loads(response.read(_ANSWER_BYTES_MAX))
            return Said(record, _ahead_s(response.headers, began), time.time() - began)
        except urllib.error.HTTPError as error:
            raise _refused(url, error) from None
        except http.client.HTTPException:
            hint = "is that a server of logs? The URL of one with TLS begins with wss://"
            raise Failure(f"{url} does not speak HTTP", hint=hint, code=ExitCode.NETWORK, kind="protocol") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            hint = unreached_hint(reason)
            raise Failure(f"cannot ask {url}: {reason}", hint=hint, code=ExitCode.NETWORK, kind="cannot-connect") from None

    def ask_object(self, what: str, **query: str) -> Mapping[str, Any]:
        """Ask for an object; see `ask`."""
        record = self.ask(what, **query).record
        if not isinstance(record, dict):
            raise self.nonsense(what)
        return record

    def nonsense(self, what: str) -> Failure:
        """Return the error for an answer that is none; whatever listens there may say anything."""
        hint = "is that a server of logs?"
        return Failure(f"{self.base}{what} answered something else", hint=hint, code=ExitCode.NETWORK, kind="protocol")


def _refused(url: str, error: urllib.error.HTTPError) -> Failure:
    """Say what a server answered instead, in its own words where it has some."""
    import http.client

    try:
        text = error.read(_REFUSAL_BYTES_MAX).decode()
    except (OSError, http.client.HTTPException, UnicodeDecodeError):
        text = ""
    words = f": {clean(_words_in(text))}" if _words_in(text) else ""
    if error.code in (401, 403):
        hint = "the server wants a token that allows to watch: --token-file FILE"
    elif error.code == 404:
        hint = "a server of several logs is asked about one: URL/TOPIC; one that was started with --no-api cannot be asked"
    else:
        hint = "the server's journal says more" if error.code >= 500 else "is that a server of logs?"
    return Failure(f"{url} answered {error.code}{words}", hint=hint, code=ExitCode.NETWORK, kind="protocol")


def _words_in(text: str) -> str:
    """Return what an answer says, as JSON or as it stands; nothing of a page, which is another server's."""
    try:
        said = json.loads(text)["error"]
    except (ValueError, LookupError, TypeError, RecursionError):
        said = text.strip()
    return said[:_REFUSAL_CHARS_MAX] if isinstance(said, str) and not said.startswith("<") else ""


def _ahead_s(headers: Mapping[str, str], began: float) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return (began + time.time()) / 2 - parsedate_to_datetime(headers.get("Date", "")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
