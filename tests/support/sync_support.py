"""A log small enough to see through: a tree in memory, a dictionary of values, and entries that name their parents."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from random import Random
from typing import Any

import trio

from gossiplog.codec.clock import decode_clock, encode_clock
from gossiplog.codec.framing import FrameDecoder
from gossiplog.codec.framing import encode_frame as frame
from gossiplog.log.requests import Aside, ReadQuarantined, ReadValues
from gossiplog.plan import Plan, Request, run_plan
from gossiplog.replica.pulling import pull_locally
from gossiplog.sync.client import SyncClient
from gossiplog.sync.events import Answered, Ask, Closed, Done, EntriesStored, Finish, Pause, Received, Send, SessionAction, StoreEntries
from gossiplog.sync.limits import ServerLimits
from gossiplog.sync.result import SyncResult
from gossiplog.sync.serve_plan import answer
from gossiplog.sync.server import SyncServer
from gossiplog.sync.wire import decode_request, decode_response, encode_request, encode_response
from gossiplog.tree.memory import MemoryTree
from gossiplog.tree.node import Node, leaf_hash


def make_entry(body: bytes, parents: Sequence[bytes] = (), clock: int | None = None) -> tuple[bytes, bytes]:
    """A (key, VALUE) that obeys the key and clock rules; VALUE is the parents' keys and a body instead of CBOR."""
    value = len(parents).to_bytes(2, "big") + b"".join(parents) + body
    if clock is None:
        clock = 1 + max((decode_clock(parent)[0] for parent in parents), default=0)
    return (encode_clock(clock) + sha256(value).digest())[:20], value


def parents_of(value: bytes) -> list[bytes]:
    count = int.from_bytes(value[:2], "big")
    return [value[2 + 20 * index : 22 + 20 * index] for index in range(count)]


def make_history(random: Random, count: int, size: int = 40, base: dict[bytes, bytes] | None = None) -> dict[bytes, bytes]:
    """Entries each of which names up to three earlier ones."""
    entries = dict(base or {})
    keys = list(entries)
    for _ in range(count):
        recent = keys[-8:]
        parents = sorted(random.sample(recent, min(len(recent), random.randint(0, 3))))
        key, value = make_entry(random.randbytes(size), parents)
        entries[key] = value
        keys.append(key)
    return entries


@dataclass(frozen=True)
class Keyed:
    key: bytes
    value: bytes = b""


@dataclass(frozen=True)
class FakeVerdict:
    entry: Keyed | None
    accepted: bool = True
    rule: str | None = None
    reason: str | None = None
    is_new: bool = True


@dataclass
class SmallLog:
    """Answers the plans of a sync, and inserts as a log does: no entry without its parents."""

    values: dict[bytes, bytes] = field(default_factory=dict)
    quarantined: dict[bytes, bytes] = field(default_factory=dict)
    invalid: set[bytes] = field(default_factory=set)
    unreadable: set[bytes] = field(default_factory=set)
    inserted: list[bytes] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    refused: set[bytes] = field(default_factory=set)
    has_full_disk: bool = False

    def __post_init__(self) -> None:
        self.rebuild()

    def rebuild(self) -> None:
        self.tree = MemoryTree.build(Node(0, key, leaf_hash(key, self.values[key])) for key in sorted(self.values))

    @property
    def root(self) -> Node:
        return self.tree.root

    def answer(self, request: Request[Any]) -> Any:
        if isinstance(request, ReadValues):
            return {key: self.values[key] for key in request.keys if key in self.values and key not in self.unreadable}
        if isinstance(request, ReadQuarantined):
            return {key: Aside("parents", "no", 0.0) for key in request.keys if key in self.quarantined}
        return self.tree.answer(request)

    def run(self, plan: Plan[Any]) -> Any:
        return run_plan(plan, self.answer)

    def insert(self, entries: Iterable[tuple[bytes, bytes]]) -> list[FakeVerdict]:
        verdicts = [self._insert(key, value) for key, value in entries]
        self.batches.append(len(verdicts))
        self.rebuild()
        return verdicts

    def _insert(self, key: bytes, value: bytes) -> FakeVerdict:
        parents = parents_of(value)
        entry = Keyed(make_entry(value[2 + 20 * len(parents) :], parents)[0])
        if self.has_full_disk or key in self.refused:
            return FakeVerdict(entry, False, "storage", "the disk is full", False)
        if key in self.invalid:
            return FakeVerdict(entry, False, "signature", "does not verify", False)
        if any(parent in self.quarantined for parent in parents):
            self.quarantined[key] = value
            return FakeVerdict(entry, False, "quarantined", "ancestor", False)
        if any(parent not in self.values for parent in parents):
            return FakeVerdict(entry, False, "parents", "missing", False)
        is_new = entry.key not in self.values
        self.values[entry.key] = value
        self.inserted.append(entry.key)
        return FakeVerdict(entry, is_new=is_new)


def pull(target: SmallLog, origin: SmallLog, **options: Any) -> SyncResult:
    """Run a whole sync in process."""

    def later(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        async def wait(argument: Any) -> Any:
            return call(argument)

        return wait

    return trio.run(partial(pull_locally, later(target.run), later(target.insert), later(origin.run), **options))


@dataclass
class ClientDriver:
    """Drives a client by hand: local work at once, the wire under the test's control."""

    client: Any
    log: SmallLog
    now: float = 0.0
    sent: bytearray = field(default_factory=bytearray)
    is_finished: bool = False
    result: SyncResult | None = None

    def start(self) -> None:
        self._perform(self.client.start(self.now))

    def give(self, event: Any) -> None:
        self._perform(self.client.handle(event, self.now))

    def feed(self, data: bytes) -> None:
        self.give(Received(data))

    def close(self, reason: str = "") -> None:
        self.give(Closed(reason))

    def take_sent(self) -> bytes:
        data = bytes(self.sent)
        self.sent.clear()
        return data

    def _perform(self, actions: list[SessionAction]) -> None:
        todo = list(actions)
        while todo:
            match todo.pop(0):
                case Send(data):
                    assert not self.is_finished
                    self.sent += data
                case Ask(plan):
                    todo += self.client.handle(Answered(self.log.run(plan)), self.now)
                case StoreEntries(entries):
                    todo += self.client.handle(EntriesStored(self.log.insert(entries)), self.now)
                case Finish():
                    self.is_finished = True
                case Done(result):
                    assert self.result is None
                    self.result = result


def serve_one(log: SmallLog, request: Any) -> Any:
    """The honest response to one request, from the real server's plan; None where it would end the stream."""
    reply = log.run(answer([request], ServerLimits()))
    if reply.fault is not None:
        return None
    frames = FrameDecoder()
    frames.feed(reply.frames[0])
    message = frames.next()
    assert message is not None
    return decode_response(message)


def converse(driver: ClientDriver, log: SmallLog, lie: Callable[[Any, Any], Any] | None = None, requests_max: int = 100_000) -> SyncResult:
    """Serve a driven client to its end. `lie` sees each request and honest response, and returns what is sent: a response, bytes, or
    None for an end of the stream.
    """
    frames = FrameDecoder()
    driver.start()
    for _ in range(requests_max):
        frames.feed(driver.take_sent())
        message = frames.next()
        if driver.result is not None:
            return driver.result
        if message is None:
            driver.close("nothing was asked")
            continue
        request = decode_request(message)
        response = serve_one(log, request)
        sent = lie(request, response) if lie and response is not None else response
        if sent is None:
            driver.close("the server gave up")
        else:
            driver.feed(sent if isinstance(sent, bytes) else frame(encode_response(sent)))
    raise AssertionError("the session does not end")


def lie_to(entries: dict[bytes, bytes], lie: Callable[[Any, Any], Any], target: SmallLog | None = None) -> tuple[SyncResult, SmallLog]:
    """Pull these entries from a server that lies."""
    target = target if target is not None else SmallLog()
    driver = ClientDriver(SyncClient(), target)
    return converse(driver, SmallLog(entries), lie), target


class ServerDriver:
    """Drives a server by hand; plans run at once unless `is_slow`."""

    def __init__(self, log: Any, **options: Any) -> None:
        self.now = options.pop("now", 0.0)
        self.log = log
        self.server = SyncServer(self.now, **options)
        self.frames = FrameDecoder()
        self.plans = self.bytes_most = 0
        self.pauses: list[float] = []
        self.end: Any = None

    def give(self, event: Any) -> None:
        todo = list(self.server.handle(event, self.now))
        while todo:
            action = todo.pop(0)
            match action:
                case Ask(plan):
                    self.plans += 1
                    todo += self.server.handle(Answered(self.log.run(plan)), self.now)
                case Send(data):
                    self.bytes_most = max(self.bytes_most, len(data))
                    self.frames.feed(data)
                case Pause(until):
                    self.pauses.append(until)
                case _:
                    assert self.end is None
                    self.end = action

    def ask(self, *requests: Any) -> list[Any]:
        self.give(Received(b"".join(frame(encode_request(request)) for request in requests)))
        return self.responses()

    def responses(self) -> list[Any]:
        out: list[Any] = []
        while (message := self.frames.next()) is not None:
            out.append(decode_response(message))
        return out
