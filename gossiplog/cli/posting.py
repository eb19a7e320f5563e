"""Appending to a log that a server serves: the entry is made and signed here, and posted there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ..archive.jsonl import entry_to_line
from ..codec import pcf_encode
from ..entry.message import Entry
from ..entry.message_id import decode_id
from ..entry.rules import check_topic, next_clock
from ..entry.signing import Signer, sign_entry
from ..errors import CannotConnect, DecodeError, GossipLogError, LocalProtocolError, NotAuthorised, Rejected, RemoteProtocolError
from .exits import ExitCode, Failure
from .tokens import unreached_hint

if TYPE_CHECKING:
    import ssl
    import urllib.error

__all__ = ["Poster", "is_server_url"]

_SCHEMES = {"ws": "http", "wss": "https", "http": "http", "https": "https"}
_ANSWER_S = 30.0
_ANSWER_BYTES_MAX = 2**20
_PARENTS_MAX = 256


def is_server_url(text: str) -> bool:
    """Say whether a LOG is a server's."""
    return text.partition("://")[0] in _SCHEMES and "://" in text


class Poster:
    """Appends to one log of a server.

    Args:
        url: What `gossiplog serve` prints, with `/TOPIC` where it serves several logs.
        signer: Signs.
        token: Lets us in; without one the signer does, where the server lets in its did.
        value_bytes_max: The largest entry.
        tls: How the server's certificate is checked; the system's authorities unless given.
    """

    def __init__(self, url: str, signer: Signer, token: str | None, value_bytes_max: int, tls: ssl.SSLContext | None = None) -> None:
        try:
            parts = urlsplit(url)
            netloc, path = parts.netloc, parts.path.rstrip("/")
        except ValueError as error:
            raise Failure(f"this is no URL: {error}", code=ExitCode.USAGE, kind="usage") from None
        found = [part.removeprefix("token=") for part in parts.query.split("&") if part.startswith("token=")]
        if not netloc:
            raise Failure("this is no URL of a server", hint="ws://HOST:PORT, with /TOPIC where it serves several", code=ExitCode.USAGE)
        self._server = f"{_SCHEMES[parts.scheme]}://{netloc}"
        self._base = f"{self._server}{path}/api"
        self._topic = unquote(path.strip("/"))
        self._token = token or (unquote(found[0]) if found else None)
        self._signer = signer
        self._value_bytes_max = value_bytes_max
        self._proves = self._token is None
        if tls is None and parts.scheme in ("wss", "https"):
            import ssl

            tls = ssl.create_default_context()
        self._tls = tls if parts.scheme in ("wss", "https") else None

    def append(self, payload: Any) -> Entry:
        """Append a payload, with the server's heads of this moment as parents.

        Raises:
            EncodeError: The payload has no portable form, or is too large.
            CannotConnect: The server cannot be reached, or cannot store now.
            NotAuthorised: It does not let us.
            Rejected: It does not take the entry.
            RemoteProtocolError: It answers something else.
        """
        data = pcf_encode.encode(payload)
        clock = self._read("/clock")
        try:
            parents = sorted({decode_id(id) for id in clock["parents"]})[-_PARENTS_MAX:]
            topic = self._find_topic()
            check_topic(topic)
        except (DecodeError, LocalProtocolError, LookupError, TypeError, AttributeError):
            raise RemoteProtocolError(f"{self._base} answered something else") from None
        entry = sign_entry(self._signer, topic, next_clock(parents), parents, data, value_bytes_max=self._value_bytes_max)
        self._ask("/messages", entry_to_line(entry))
        return entry

    def _find_topic(self) -> str:
        if not self._topic:
            (self._topic,) = self._read("/", server=True)["topics"]
        return self._topic

    def _read(self, path: str, *, server: bool = False) -> Any:
        try:
            return json.loads(self._ask(path, server=server))
        except ValueError:
            raise RemoteProtocolError(f"{self._base} answered something else") from None

    def _ask(self, path: str, body: bytes | None = None, *, server: bool = False) -> bytes:
        try:
            return self._ask_once(path, body, server=server)
        except NotAuthorised:
            if not self._prove():
                raise
        return self._ask_once(path, body, server=server)

    def _prove(self) -> bool:
        """Get a token for our signer's did; say whether there is one that we did not have."""
        import trio

        from ..net.hub.client import fetch_token, parse_url

        if not self._proves:
            return False
        hub = parse_url("ws" + self._base.removeprefix("http").removesuffix("/api"), identity=self._signer)
        before, self._token = self._token, trio.run(fetch_token, hub, self._tls)
        return self._token not in (None, before)

    def _ask_once(self, path: str, body: bytes | None, *, server: bool) -> bytes:
        # They take a tenth of the time of a command that asks nobody.
        import http.client
        import urllib.error
        import urllib.request

        url = (self._server if server else self._base) + path
        headers = {"Content-Type": "application/json"} | ({} if self._token is None else {"Authorization": f"Bearer {self._token}"})
        try:
            request = urllib.request.Request(url, body, headers)
            with urllib.request.urlopen(request, timeout=_ANSWER_S, context=self._tls) as response:
                answer: bytes = response.read(_ANSWER_BYTES_MAX)
                return answer
        except urllib.error.HTTPError as error:
            raise _refusal(error) from None
        except http.client.HTTPException:
            raise RemoteProtocolError(f"{self._base} does not speak HTTP") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise CannotConnect(f"cannot ask {self._base}: {reason}", hint=unreached_hint(reason)) from None


def _refusal(error: urllib.error.HTTPError) -> GossipLogError:
    said = error.read(500).decode("utf-8", "replace").strip()
    message = f"the server answered {error.code}" + (f": {said}" if said else "")
    if error.code in (401, 403):
        return NotAuthorised(message, hint="--token-file FILE or GOSSIPLOG_TOKEN lets you in, or your did, if the server's rules do")
    if error.code in (429, 503):
        wait = error.headers.get("Retry-After")
        return CannotConnect(message, hint=f"nothing was stored; try again in {wait} s" if wait else "nothing was stored; try again")
    return Rejected(message) if error.code == 400 else RemoteProtocolError(message)
