"""Appending to a server's log: the entry is made and signed here, and posted there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import click

from ..archive.jsonl import entry_to_line
from ..codec import pcf
from ..entry.message import Entry
from ..entry.message_id import decode_id
from ..entry.rules import check_topic, next_clock
from ..entry.signing import Signer, sign_entry
from ..errors import CannotConnect, DecodeError, GossipLogError, LocalProtocolError, NotAuthorised, Rejected, RemoteProtocolError
from .asking import Asker, read_json, said
from .exits import ExitCode, Failure
from .output import clean
from .session import run

if TYPE_CHECKING:
    import ssl

    from ..net.transport.http_request import HttpAnswer

_SCHEMES = ("ws", "wss", "http", "https")
_ANSWER_S = 30.0
_PARENTS_MAX = 256
_TOPICS_NAMED = 5


def is_server_url(text: str) -> bool:
    """Whether a LOG is the URL of a server."""
    return text.partition("://")[0] in _SCHEMES and "://" in text


def refuse_server_options(tls_ca: str | None, token_file: str | None) -> None:
    """Refuse the options with which a server is reached, where LOG is none."""
    if tls_ca is not None or token_file is not None:
        raise click.UsageError("--tls-ca and --token-file are for a server, at a ws:// or wss:// URL")


class Poster:
    """Appends to one log of a server.

    Args:
        url: As `gossiplog serve` prints it, or where a log is mounted; the last part of its path, if any, is the topic.
        token: Authorises us; without one the signer logs in, if the server's rules name its did.
        tls: None for the system's certificate authorities.
        tell: Gets a sentence, before anything is signed, if the server rather than the URL named the topic.
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
        self._asker = Asker(url, tls, token)
        self._topic = unquote(self._asker.path.rpartition("/")[2])
        self._signer = signer
        self._value_bytes_max = value_bytes_max
        self._logs_in = not self._asker.server.headers
        self._tell = tell

    def append(self, payload: Any) -> Entry:
        """Append a payload whose parents are the server's heads at this moment.

        Raises:
            EncodeError: The payload has no portable form, or is too large.
            CannotConnect: The server cannot be reached, or cannot store at the moment.
            NotAuthorised: It does not let us append.
            Rejected: It refuses the entry.
            RemoteProtocolError: Its answer makes no sense.
            Failure: It has several logs, and the URL names none.
        """
        data = pcf.encode(payload)
        clock = self._read(f"{self._asker.path}/api/clock")
        try:
            parents = sorted({decode_id(id) for id in clock["parents"]})[-_PARENTS_MAX:]
            topic = self.find_topic()
            check_topic(topic)
        except (DecodeError, LocalProtocolError, LookupError, TypeError, AttributeError):
            raise self._nonsense() from None
        entry = sign_entry(self._signer, topic, next_clock(parents), parents, data, value_bytes_max=self._value_bytes_max)
        self._ask(f"{self._asker.path}/api/messages", entry_to_line(entry))
        return entry

    def find_topic(self) -> str:
        """Return the topic that the URL names; else ask the server for its only one, and tell the signer.

        The signer has to know, because an entry counts in every log of its topic.
        """
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
            self._tell(f"signing for the topic {topic}, which the server named; to name it yourself: {self._asker.server.url}/{topic}")
        self._topic = topic
        return topic

    def _nonsense(self) -> RemoteProtocolError:
        return RemoteProtocolError(f"{self._asker.server.url} answered something else", hint="is that a server of logs?")

    def _read(self, path: str) -> Any:
        try:
            return read_json(self._ask(path))
        except DecodeError:
            raise self._nonsense() from None

    def _ask(self, path: str, body: bytes | None = None) -> HttpAnswer:
        try:
            return self._ask_once(path, body)
        except NotAuthorised:
            if not self._log_in():
                raise
        return self._ask_once(path, body)

    def _log_in(self) -> bool:
        """Get a token for our signer's did; return whether there is a new one."""
        from ..net.hub.client import fetch_token

        if not self._logs_in:
            return False
        server = self._asker.server
        token = run(partial(fetch_token, replace(server, identity=self._signer)))
        headers = () if token is None else (("Authorization", f"Bearer {token}"),)
        self._asker.server = replace(server, headers=headers)
        return headers not in ((), server.headers)

    def _ask_once(self, path: str, body: bytes | None) -> HttpAnswer:
        answer = self._asker.send(path, body, answer_s=_ANSWER_S)
        if answer.status not in (200, 201):
            raise _refusal(answer)
        return answer


def _refusal(answer: HttpAnswer) -> GossipLogError:
    words = said(answer)
    message = f"the server answered {answer.status}" + (f": {words}" if words else "")
    if answer.status in (401, 403):
        return NotAuthorised(message, hint="a right that you lack comes with --token-file FILE, GOSSIPLOG_TOKEN or your did")
    if answer.status in (429, 503):
        wait = answer.first(b"retry-after") or ""
        return CannotConnect(
            message, hint=f"nothing was stored; try again in {wait} s" if wait.isdigit() else "nothing was stored; try again"
        )
    return Rejected(message) if answer.status == 400 else RemoteProtocolError(message)
