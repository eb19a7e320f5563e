"""Appending to a log that a server serves: the entry is made and signed here, and posted there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ..archive.jsonl import entry_to_line
from ..codec import pcf
from ..entry.message import Entry
from ..entry.message_id import decode_id
from ..entry.rules import check_topic, next_clock
from ..entry.signing import Signer, sign_entry
from ..errors import CannotConnect, DecodeError, GossipLogError, LocalProtocolError, NotAuthorised, Rejected, RemoteProtocolError
from .asking import ask_server, read_json, said
from .exits import ExitCode, Failure, misused
from .output import clean
from .session import run

if TYPE_CHECKING:
    import ssl

    from ..net.hub.asking import HttpAnswer

_SCHEMES = ("ws", "wss", "http", "https")
_ANSWER_S = 30.0
_PARENTS_MAX = 256
_TOPICS_NAMED = 5


def is_server_url(text: str) -> bool:
    """Say whether a LOG is a server's."""
    return text.partition("://")[0] in _SCHEMES and "://" in text


class Poster:
    """Appends to one log of a server.

    Args:
        url: What `gossiplog serve` prints, or where a log is mounted; its last part, if any, is the topic.
        token: Lets us in; without one the signer does, where the server lets in its did.
        tls: How the server's certificate is checked; the system's authorities unless given.
        tell: Is told, before anything is signed, of a topic that the server named, and not the URL.
    """

    def __init__(
        self,
        url: str,
        signer: Signer,
        token: str | None,
        value_bytes_max: int,
        tls: ssl.SSLContext | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        from ..net.hub.asking import parse_server_url

        with misused(""):
            self._server = parse_server_url(url, token=token)
        path = self._server.target.partition("?")[0].rstrip("/")
        self._base = f"{path}/api"
        self._topic = unquote(path.rpartition("/")[2])
        self._signer = signer
        self._value_bytes_max = value_bytes_max
        self._proves = not self._server.headers
        self._tls = tls
        self._tell = tell

    def append(self, payload: Any) -> Entry:
        """Append a payload, with the server's heads of this moment as parents.

        Raises:
            EncodeError: The payload has no portable form, or is too large.
            CannotConnect: The server cannot be reached, or cannot store now.
            NotAuthorised: It does not let us.
            Rejected: It does not take the entry.
            RemoteProtocolError: It answers something else.
            Failure: It serves several logs, and the URL names none.
        """
        data = pcf.encode(payload)
        clock = self._read(f"{self._base}/clock")
        try:
            parents = sorted({decode_id(id) for id in clock["parents"]})[-_PARENTS_MAX:]
            topic = self.find_topic()
            check_topic(topic)
        except (DecodeError, LocalProtocolError, LookupError, TypeError, AttributeError):
            raise self._nonsense() from None
        entry = sign_entry(self._signer, topic, next_clock(parents), parents, data, value_bytes_max=self._value_bytes_max)
        self._ask(f"{self._base}/messages", entry_to_line(entry))
        return entry

    def find_topic(self) -> str:
        """Say which log the URL names, or ask the server which one it serves: an entry counts in the log of its topic, wherever that is, so
        the signer is told."""
        if self._topic:
            return self._topic
        topics = self._read("/")["topics"]
        if not isinstance(topics, list) or not topics or not all(isinstance(topic, str) for topic in topics):
            raise self._nonsense()
        if len(topics) > 1:
            some = ", ".join(clean(topic[:128]) for topic in topics[:_TOPICS_NAMED])
            hint = "name one at the end of the URL: URL/TOPIC"
            raise Failure(f"the server has {len(topics)} logs: {some}", hint=hint, code=ExitCode.USAGE)
        topic: str = topics[0]
        check_topic(topic)
        if self._tell is not None:
            self._tell(f"signing for the topic {topic}, which the server named; {self._server.url}/{topic} names it yourself")
        self._topic = topic
        return topic

    def _nonsense(self) -> RemoteProtocolError:
        return RemoteProtocolError(f"{self._server.url} answered something else", hint="is that a server of logs?")

    def _read(self, path: str) -> Any:
        try:
            return read_json(self._ask(path))
        except DecodeError:
            raise self._nonsense() from None

    def _ask(self, path: str, body: bytes | None = None) -> HttpAnswer:
        try:
            return self._ask_once(path, body)
        except NotAuthorised:
            if not self._prove():
                raise
        return self._ask_once(path, body)

    def _prove(self) -> bool:
        """Get a token for our signer's did; say whether there is one that we did not have."""
        from ..net.hub.client import fetch_token

        if not self._proves:
            return False
        token = run(partial(fetch_token, replace(self._server, identity=self._signer), self._tls))
        before, headers = self._server.headers, () if token is None else (("Authorization", f"Bearer {token}"),)
        self._server = replace(self._server, headers=headers)
        return headers not in ((), before)

    def _ask_once(self, path: str, body: bytes | None) -> HttpAnswer:
        answer = ask_server(self._server, path, body, tls=self._tls, answer_s=_ANSWER_S)
        if answer.status not in (200, 201):
            raise _refusal(answer)
        return answer


def _refusal(answer: HttpAnswer) -> GossipLogError:
    words = said(answer)
    message = f"the server answered {answer.status}" + (f": {words}" if words else "")
    if answer.status in (401, 403):
        return NotAuthorised(message, hint="--token-file FILE or GOSSIPLOG_TOKEN lets you in, or your did, if the server's rules do")
    if answer.status in (429, 503):
        wait = answer.first(b"retry-after") or ""
        return CannotConnect(
            message, hint=f"nothing was stored; try again in {wait} s" if wait.isdigit() else "nothing was stored; try again"
        )
    return Rejected(message) if answer.status == 400 else RemoteProtocolError(message)
