"""A client of another server's `facts`: it reads them for ever, and resumes when the connection is lost.

That server is as much a stranger as any client. What it sends is bounded in bytes, read in linear time and in turns with everything else,
and believed only about itself. A violation ends the connection, which is made again after a while.

Source: docs/glass.md, "Following".
"""

from __future__ import annotations

import logging
import random
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import h11
import trio

from ...codec import plain_json
from ...errors import ClosedError, DecodeError, RemoteProtocolError
from ...glass import Fact
from ...limits import Backoff
from ...net.ground.journal import note
from ...net.hub.client import HubUrl, parse_url
from ...net.transport.tcp import TcpStream

DIAL_S = 10.0
SILENT_S = 40.0
"""A server sends something every 15 s."""
EVENT_BYTES_MAX = 256 * 1024
"""A server gathers up to 64 KiB of facts in an event."""
_NAME_CHARS_MAX = 256
_ERROR_CHARS_MAX = 300
_PIECES_A_TURN, _FACTS_A_TURN = 256, 256
_ID = re.compile(rb"[0-9A-Za-z-]{1,64}")
RETRY_FIRST_S, RETRY_MOST_S = 0.25, 5.0


@dataclass(slots=True)
class FollowedServer:
    """The state of one followed server.

    Attributes:
        node: Its peer id; empty before it was reached.
        skew_s: How far its clock was ahead of ours when it was connected.
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
    followed: FollowedServer, on_fact: Callable[[Fact], None], *, tls: ssl.SSLContext | None = None, clock: Callable[[], float]
) -> None:
    """Follow a server for ever; each of its facts comes once, in order. Lost ones give a fact of the kind `fault`, type `gap`.

    Args:
        on_fact: Takes the facts. All of them are about the server and the topic that it named first.
        tls: Checks its certificate; the system's authorities unless given.

    Raises:
        LocalProtocolError: It is not a URL.
    """
    where = parse_url(followed.url, tls=tls, of_server=True)
    backoff = Backoff(random.Random(), first_s=RETRY_FIRST_S, most_s=RETRY_MOST_S)
    reader = _Reader(followed, on_fact, clock)
    while True:
        try:
            await _read(where, reader)
            reason = "the server ended the stream"
        except (OSError, ClosedError, RemoteProtocolError, DecodeError, trio.TooSlowError) as error:
            reason = str(error) or "it does not answer"
        except Exception as error:
            # A bug of ours, but no reason to end everything else in this process.
            note("fault in following a server", level=logging.ERROR, error=error, server=where.url)
            reason = "a fault of ours in reading what it says"
        if followed.is_alive:
            backoff.reset()
        followed.is_alive, followed.error = False, reason[:_ERROR_CHARS_MAX]
        await trio.sleep(backoff.next())


async def _read(where: HubUrl, reader: _Reader) -> None:
    with trio.fail_after(DIAL_S):
        stream = await where.dial()
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
    events, pieces = _Events(), 0
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
            for fields in events.feed(event.data):
                await reader.take(fields)
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            return
        pieces += 1
        if pieces % _PIECES_A_TURN == 0:
            await trio.lowlevel.checkpoint()


class _Events:
    """Parses server-sent events. Looks at each byte once, however they are cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        # This much of it holds no end of an event, though its last byte may be half of one.
        self._looked = 0

    def feed(self, data: bytes | bytearray) -> Iterator[Mapping[bytes, bytes]]:
        """Take bytes; yield the fields of each complete event.

        Raises:
            DecodeError: An event is too long.
        """
        self._buffer += data
        while (end := self._buffer.find(b"\n\n", max(0, self._looked - 1))) >= 0:
            event = bytes(self._buffer[:end])
            del self._buffer[: end + 2]
            self._looked = 0
            if len(event) > EVENT_BYTES_MAX:
                break
            yield dict(line.split(b": ", 1) for line in event.split(b"\n") if b": " in line)
        self._looked = len(self._buffer)
        if self._looked > EVENT_BYTES_MAX or end > EVENT_BYTES_MAX:
            raise DecodeError(f"an event of more than {EVENT_BYTES_MAX} bytes")


class _Reader:
    """Makes facts from events."""

    def __init__(self, followed: FollowedServer, on_fact: Callable[[Fact], None], clock: Callable[[], float]) -> None:
        self.followed = followed
        self._on_fact = on_fact
        self._clock = clock

    async def take(self, fields: Mapping[bytes, bytes]) -> None:
        """Take one event.

        Raises:
            DecodeError: No server of facts sends such an event.
        """
        await trio.lowlevel.checkpoint()
        followed = self.followed
        event, id, data = fields.get(b"event"), fields.get(b"id"), fields.get(b"data", b"")
        if event == b"hello":
            self._greet(plain_json.decode(data))
        elif not followed.is_alive and event in (b"gap", b"facts"):
            raise DecodeError("facts before a hello")
        elif event == b"gap":
            self._on_fact(Fact(followed.topic, "", 0, self._clock(), "fault", followed.node, type="gap", reason="facts were lost"))
        elif event == b"facts":
            if id is not None and not _ID.fullmatch(id):
                raise DecodeError("an event whose id is none")
            records = plain_json.decode(data)
            if not isinstance(records, list):
                raise DecodeError("facts are a list")
            for number, record in enumerate(records, 1):
                self._tell(Fact.from_record(record))
                if number % _FACTS_A_TURN == 0:
                    await trio.lowlevel.checkpoint()
            if id is not None:
                followed.last_id = id.decode("ascii")

    def _greet(self, hello: object) -> None:
        if not isinstance(hello, dict):
            raise DecodeError("a hello is an object")
        node, topic, now = hello.get("node"), hello.get("topic"), hello.get("now")
        if not (isinstance(node, str) and isinstance(topic, str) and max(len(node), len(topic)) <= _NAME_CHARS_MAX):
            raise DecodeError("a hello without node and topic")
        followed = self.followed
        followed.node, followed.topic = node, topic
        followed.skew_s = float(now) - self._clock() if isinstance(now, int | float) else 0.0
        followed.is_alive, followed.error = True, None

    def _tell(self, fact: Fact) -> None:
        followed = self.followed
        if (fact.node, fact.scenario) != (followed.node, followed.topic):
            raise DecodeError("a fact of another server or topic than it named")
        if fact.kind == "root":
            followed.root, followed.entries = str(fact.message), fact.count
        self._on_fact(fact)
