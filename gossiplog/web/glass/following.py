"""A client of another server's `facts`: it reads them for ever, and goes on where it was when the connection is lost.

Source: docs/glass.md, "Following".
"""

from __future__ import annotations

import json
import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import h11
import trio

from ...errors import ClosedError, DecodeError, RemoteProtocolError
from ...glass import Fact
from ...net.hub.client import HubUrl, parse_url
from ...net.transport.tcp import TcpStream, dial_tcp
from ...sync.rate import Backoff

__all__ = ["Followed", "follow"]

DIAL_S = 10.0
SILENT_S = 40.0
"""A server says something every 15 s."""
_EVENT_BYTES_MAX = 8 * 2**20
RETRY_FIRST_S, RETRY_MOST_S = 0.25, 5.0


@dataclass(slots=True)
class Followed:
    """One server that is followed, as far as it is known.

    Attributes:
        url: Its log's URL, as `gossiplog serve` prints it.
        name: What people call it.
        node: Its peer id; empty before it was reached.
        topic: Its log's.
        is_alive: It is connected now.
        root: The last that it told, in hex.
        entries: As many as it had then.
        error: Why it is not connected.
        skew_s: How far its clock was before ours when it was connected.
    """

    url: str
    name: str = ""
    node: str = ""
    topic: str = ""
    is_alive: bool = False
    root: str | None = None
    entries: int | None = None
    error: str | None = None
    skew_s: float = 0.0
    last_id: str | None = field(default=None, repr=False)


async def follow(
    followed: Followed, on_fact: Callable[[Fact], None], *, tls: ssl.SSLContext | None = None, clock: Callable[[], float]
) -> None:
    """Follow a server for ever; each of its facts comes once, in order. What it lost is a fact of the kind `fault`, type `gap`.

    Args:
        followed: Whom; kept up to date.
        on_fact: Takes the facts.
        tls: Checks its certificate; the system's authorities unless given.
        clock: Unix time.

    Raises:
        LocalProtocolError: The URL is none.
    """
    scheme, separator, rest = followed.url.partition("://")
    where = parse_url(f"{ {'http': 'ws', 'https': 'wss'}.get(scheme, scheme) }{separator}{rest}")
    backoff = Backoff(random.Random(), first_s=RETRY_FIRST_S, most_s=RETRY_MOST_S)
    reader = _Reader(followed, on_fact, clock)
    while True:
        try:
            await _read(where, reader, tls)
            followed.error = "the server ended the stream"
        except (OSError, ClosedError, RemoteProtocolError, DecodeError, trio.TooSlowError) as error:
            followed.error = str(error) or "it does not answer"
        if followed.is_alive:
            backoff.reset()
        followed.is_alive = False
        await trio.sleep(backoff.next())


async def _read(where: HubUrl, reader: _Reader, tls: ssl.SSLContext | None) -> None:
    with trio.fail_after(DIAL_S):
        stream = await dial_tcp(where.host, where.port, (tls or ssl.create_default_context()) if where.is_tls else None)
    try:
        headers = [("host", where.host_header), ("accept", "text/event-stream"), *where.headers]
        if reader.followed.last_id is not None:
            headers.append(("last-event-id", reader.followed.last_id))
        parser = h11.Connection(h11.CLIENT)
        target = where.target.partition("?")[0].rstrip("/") + "/api/facts"
        request = h11.Request(method="GET", target=target, headers=headers)
        await stream.send_all((parser.send(request) or b"") + (parser.send(h11.EndOfMessage()) or b""))
        await _read_answer(stream, parser, reader)
    finally:
        await stream.aclose()


async def _read_answer(stream: TcpStream, parser: h11.Connection, reader: _Reader) -> None:
    reader.begin()
    while True:
        try:
            event = parser.next_event()
        except h11.RemoteProtocolError as error:
            raise RemoteProtocolError(f"no HTTP: {error}") from None
        if event is h11.NEED_DATA:
            with trio.fail_after(SILENT_S):
                parser.receive_data(await stream.receive_some())
        elif isinstance(event, h11.Response):
            if event.status_code != 200:
                raise RemoteProtocolError(f"answered {event.status_code}")
        elif isinstance(event, h11.Data):
            reader.feed(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            return


class _Reader:
    """Takes server-sent events apart."""

    def __init__(self, followed: Followed, on_fact: Callable[[Fact], None], clock: Callable[[], float]) -> None:
        self.followed = followed
        self._on_fact = on_fact
        self._clock = clock
        self._buffer = b""

    def begin(self) -> None:
        """A new stream begins."""
        self._buffer = b""

    def feed(self, data: bytes) -> None:
        """Take what came.

        Raises:
            DecodeError: It is no stream of facts.
        """
        *events, self._buffer = (self._buffer + data).split(b"\n\n")
        if len(self._buffer) > _EVENT_BYTES_MAX:
            raise DecodeError("an event is too long")
        for event in events:
            fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if b": " in line)
            self._on_event(fields.get(b"event"), fields.get(b"id"), fields.get(b"data", b""))

    def _on_event(self, event: bytes | None, id: bytes | None, data: bytes) -> None:
        followed = self.followed
        if event == b"hello":
            hello = _json(data)
            if not isinstance(hello, dict):
                raise DecodeError("a hello is an object")
            followed.node, followed.topic = str(hello.get("node", "")), str(hello.get("topic", ""))
            now = hello.get("now")
            followed.skew_s = float(now) - self._clock() if isinstance(now, int | float) else 0.0
            followed.is_alive, followed.error = True, None
        elif event == b"gap":
            self._on_fact(Fact(followed.topic, "", 0, self._clock(), "fault", followed.node, type="gap", reason="facts were lost"))
        elif event == b"facts":
            records = _json(data)
            if not isinstance(records, list):
                raise DecodeError("facts are a list")
            for record in records:
                fact = Fact.from_record(record)
                if fact.kind == "root":
                    followed.root, followed.entries = str(fact.message), fact.count
                self._on_fact(fact)
            if id is not None:
                followed.last_id = id.decode("ascii", "replace")


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"no JSON: {error}") from None
