"""The side to which the stream was opened: it sends symbols and wanted values, and takes the values that the client gives.

It holds at most a batch of values, whatever the client does. Symbols, keys and values are bounded by the size of a sketch, or by the
numbers of entries that both sides claimed.

Source: docs/spec/reconcile.md, "Session".
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from ..entry.validation import LATER, Outcome, Rule
from ..errors import DecodeError, RemoteProtocolError
from ..sketch import SYMBOLS_MAX, key_of
from ..sync.events import Ask, Send, StoreEntries
from ..sync.result import Brought
from . import messages, steps
from .messages import Hello, More, Refuse, Result, Symbols, Values, Want
from .steps import LogView, Step, Unanswered

FIRST_SYMBOLS = 64
"""Symbols in the first answer when nothing is known: enough for some 36 differences, and to estimate how many there are."""
FIRST_SYMBOLS_MAX = 1_024
LEFT_OUT_MAX = 1_000
REJECTED_MAX = 32
"""The most invalid values in one session."""


@dataclass(slots=True)
class Served:
    """The outcome of a session.

    Attributes:
        taken: Entries that were new here and are stored.
        rejected: Values that no replica may accept.
        fault: How the client broke the protocol; empty if it did not.
        reason: Why the session ended early; empty if it did not.
        rejected_keys: The keys of the rejected values.
        has_moved: Other entries came meanwhile, which the client may lack.
        brought: The new entries, if they are few.
    """

    taken: int = 0
    given: int = 0
    symbols: int = 0
    rejected: int = 0
    fault: str = ""
    reason: str = ""
    rejected_keys: list[bytes] = field(default_factory=list)
    has_moved: bool = False
    brought: Brought = field(default_factory=Brought, compare=False, repr=False)


def serve(view: LogView, *, takes: bool = True, served: Served | None = None) -> Generator[Step, Any, Served]:
    """Run the server's side of a session; the outcome is the generator's return value.

    Args:
        takes: Take the values that the client gives.
        served: Filled during the session, for a caller that ends it early, and returned.
    """
    server = _Server(view, takes=takes, served=served or Served())
    try:
        yield from server.run()
    except Unanswered as ended:
        server.served.reason = str(ended)
    except (RemoteProtocolError, DecodeError) as error:
        server.served.fault = str(error)
    return server.served


class _Server:
    def __init__(self, view: LogView, *, takes: bool, served: Served) -> None:
        self.served = served
        self._view = view
        self._takes = takes
        self._left_out: list[bytes] = []

    def run(self) -> Generator[Step, Any, None]:
        hello = yield from steps.receive(steps.ANSWER_S)
        if not isinstance(hello, Hello):
            raise RemoteProtocolError(f"{type(hello).__name__} in place of Hello")
        sketch = self._view.sketch
        count = sketch.counts[0]
        first = messages.unpack(hello.symbols, 0, hello.count, 1)
        if len(first) != 1:
            raise RemoteProtocolError("Hello without a symbol")
        surplus = hello.count - count
        difference = first[0][0] ^ sketch.sums[0]
        if not surplus and not difference:
            yield from self._finish()
        elif hello.after is not None or steps.is_wholesale(hello.count, count):
            yield Send(messages.encode(Hello(count, takes=self._takes, is_wholesale=True)))
            yield from self._exchange_all(hello, count)
        else:
            is_single = abs(surplus) == 1 and key_of(difference) is not None
            sent = 1 if is_single else min(max(FIRST_SYMBOLS, abs(surplus) * 3 // 2), FIRST_SYMBOLS_MAX)
            yield Send(messages.encode(Hello(count, messages.pack(sketch, 0, sent), takes=self._takes)))
            yield from self._exchange_difference(sent)

    def _exchange_difference(self, sent: int) -> Generator[Step, Any, None]:
        while True:
            self.served.symbols = sent
            message = yield from steps.receive(steps.WORK_S)
            match message:
                case More(more):
                    if sent + more > SYMBOLS_MAX:
                        raise RemoteProtocolError(f"{sent + more} symbols, and a sketch has {SYMBOLS_MAX}")
                    yield Send(messages.encode(Symbols(messages.pack(self._view.sketch, sent, sent + more))))
                    sent += more
                case Want(keys, gives):
                    self.served.given = yield from steps.give_keys(keys)
                    if self.served.given < len(keys):
                        yield from self._refuse("a key is not in the log")
                        return
                    if not (yield from self._take(gives, is_all=False)):
                        return
                    yield from self._finish()
                    return
                case _:
                    raise RemoteProtocolError(f"{type(message).__name__} in place of More or Want")

    def _exchange_all(self, hello: Hello, count: int) -> Generator[Step, Any, None]:
        if hello.takes:
            self.served.given = yield from steps.give_all(hello.after, count)
        if (yield from self._take(hello.count + steps.SLACK, is_all=True)):
            yield from self._finish()

    def _take(self, most: int, *, is_all: bool) -> Generator[Step, Any, bool]:
        """Take values in the order of their keys, as many as were announced or up to the end. Return False after a Refuse."""
        batch: list[tuple[bytes, bytes]] = []
        size = came = 0
        last = b""
        while is_all or came < most:
            message = yield from steps.receive(steps.WORK_S)
            if not isinstance(message, Values):
                raise RemoteProtocolError(f"{type(message).__name__} in place of values")
            if not message.values:
                if is_all:
                    break
                raise RemoteProtocolError("a message without values")
            came += len(message.values)
            if came > most or not self._takes:
                raise RemoteProtocolError("values that were not announced, or not welcome")
            batch += (keyed := steps.in_order(message.values, last))
            last = keyed[-1][0]
            size += sum(map(len, message.values))
            if len(batch) >= steps.BATCH_ENTRIES or size >= steps.BATCH_BYTES:
                if not (yield from self._insert(batch)):
                    return False
                batch, size = [], 0
        return (yield from self._insert(batch))

    def _insert(self, batch: list[tuple[bytes, bytes]]) -> Generator[Step, Any, bool]:
        verdicts = (yield StoreEntries(batch)) if batch else []
        later = ""
        for (key, _), verdict in zip(batch, verdicts, strict=True):
            if verdict.accepted:
                if verdict.is_new:
                    self.served.taken += 1
                    self.served.brought.add(verdict.entry)
            elif verdict.rule in LATER:
                # The other entries of the batch count.
                later = later or (verdict.reason or "quota" if verdict.rule == Rule.QUOTA else "the store failed")
            elif verdict.rule != "parents":
                self._left_out.append(key)
                if verdict.outcome is Outcome.REJECT:
                    self.served.rejected += 1
                    self.served.rejected_keys.append(key)
                    if self.served.rejected > REJECTED_MAX:
                        raise RemoteProtocolError(f"more than {REJECTED_MAX} invalid values")
        del self._left_out[LEFT_OUT_MAX:]
        if later:
            yield from self._refuse(later)
        return not later

    def _refuse(self, reason: str) -> Generator[Step, Any, None]:
        self.served.reason = reason
        yield Send(messages.encode(Refuse(reason)))

    def _finish(self) -> Generator[Step, Any, None]:
        root, last = yield Ask(steps.read_end())
        self.served.has_moved = last != self._view.seq + self.served.taken
        yield Send(messages.encode(Result(root, self.served.has_moved, sorted(self._left_out))))
