"""The side that opens the stream. It asks for the other side's symbols until it knows the difference, then takes and gives these entries.

At the end the roots of both logs are compared. They are equal if the whole difference was exchanged and neither log has changed meanwhile.
If they are not equal, there must be a reason:

- We left out entries: invalid ones, those in quarantine, and those set aside for a while. Their descendants arrive without their parents,
  which is not the other side's fault.
- We kept back entries: those that the other side left out lately, or all of ours if we give nothing.
- We did not ask for entries: we take none, or only those after a key.
- Entries came to one of the logs in another way, or the other side left out entries that we gave.

Without a reason, our own sketch may be wrong, and a sync by trees finds the difference.

Source: docs/spec/reconcile.md, "Session".
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

from ..entry.validation import LATER, Verdict
from ..errors import DecodeError, RemoteProtocolError
from ..sketch import SYMBOLS_MAX, Contradiction, Decoder, Difference
from ..sync.events import Ask, Send, StoreEntries
from ..sync.result import Ending, SyncResult
from ..sync.source import Source
from ..tree.node import Node
from . import messages, steps
from .messages import Hello, More, Refuse, Result, Symbols, Values, Want
from .steps import Give, LogView, Step, Unanswered

FIRST_ESTIMATE = 8
"""Expected differences when nothing is known."""
SYMBOLS_OF_SMALL, SYMBOLS_OF_LARGE = 1.45, 1.4
"""Symbols per difference, for few and for many differences."""
LARGE_ESTIMATE = 512
"""More differences than this are first estimated again, from twice as many symbols."""
FUTILE_SYMBOLS = 4
"""Symbols per difference that the other side's counts claim, after which going on is futile."""
LEAST_SYMBOLS = 128
"""Symbols before which we do not give up. Of 3.1 million pairs of keys, 41 share the first 64 symbols, and 2 the first 128."""
REJECTED_MAX = 1_000
"""The most invalid values in one session: an older or damaged log may have some, but never so many."""


@dataclass(slots=True)
class Reconciled:
    """The outcome of a session.

    Attributes:
        result: The result of taking entries, as of a sync.
        given: How many values we sent, or in a rehearsal would have sent.
        wanted: How many keys we asked for, or in a rehearsal would have.
        root: The other side's root at the end; None if the session ended early.
        is_equal: Our own root was the same then.
        refused: Keys of entries that we gave and the other side left out.
        fallback: Why a merkle sync is needed; empty if it is not.
        is_doubtful: Our own sketch may be wrong: another process may have repaired our log.
    """

    result: SyncResult = field(default_factory=SyncResult)
    given: int = 0
    wanted: int = 0
    symbols: int = 0
    root: Node | None = None
    is_equal: bool = False
    refused: Sequence[bytes] = ()
    fallback: str = ""
    is_doubtful: bool = False


class _Fallback(Exception):
    """A merkle sync is needed."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """The purpose of a session.

    Attributes:
        takes: Take the entries that we lack.
        gives: Give the entries that the other side lacks.
        is_rehearsal: Find the difference, and end.
        after: We have all of the other side's entries up to this key. It sends the rest, without looking for differences.
    """

    takes: bool = True
    gives: bool = True
    is_rehearsal: bool = False
    after: bytes | None = None


def reconcile(
    view: LogView, source: Source, now: float, wishes: Wishes, outcome: Reconciled | None = None
) -> Generator[Step, Any, Reconciled]:
    """Run the client's side of a session; the outcome is the generator's return value.

    Args:
        outcome: Filled during the session, for a caller that ends it early, and returned.
    """
    client = _Client(view, source, now, wishes, outcome or Reconciled())
    try:
        yield from client.run()
    except _Fallback as fallback:
        client.outcome.fallback = str(fallback)
        client.result.ending = Ending.COMPLETE
    except Unanswered as ended:
        if client.result.ending not in (Ending.STORAGE, Ending.QUOTA):
            client.result.ending, client.result.reason = Ending.CLOSED, str(ended)
    except (RemoteProtocolError, DecodeError) as error:
        client.result.ending, client.result.reason = Ending.VIOLATION, str(error)
    return client.outcome


class _Client:
    def __init__(self, view: LogView, source: Source, now: float, wishes: Wishes, outcome: Reconciled) -> None:
        self.outcome = outcome
        self.result = self.outcome.result
        self._view = view
        self._source = source
        self._now = now
        self._takes = wishes.takes
        self._gives = wishes.gives
        self._is_rehearsal = wishes.is_rehearsal
        self._after = wishes.after
        self._has_left_out = False
        self._has_kept_back = False

    def run(self) -> Generator[Step, Any, None]:
        sketch = self._view.sketch
        own_count = sketch.counts[0]
        is_taking = self._takes and not self._is_rehearsal
        reply = yield from self._ask(Hello(own_count, messages.pack(sketch, 0, 1), is_taking, after=self._after))
        match reply:
            case Result(root):
                yield from self._conclude(root, has_moved=reply.has_moved)
            case Refuse(reason):
                raise _Fallback(reason)
            case Hello(count, symbols, their_takes, is_wholesale):
                if not (is_wholesale or symbols):
                    raise RemoteProtocolError("an answer without symbols")
                self._gives = self._gives and their_takes
                if is_wholesale:
                    yield from self._exchange_all(own_count, count)
                else:
                    yield from self._exchange_difference(count, symbols)
            case _:
                raise RemoteProtocolError(f"{type(reply).__name__} in answer to Hello")

    def _ask(self, message: messages.Message) -> Generator[Step, Any, messages.Message]:
        self.result.requests += 1
        self.result.waits += 1
        yield Send(messages.encode(message))
        return (yield from steps.receive(steps.ANSWER_S))

    # By symbols

    def _find_difference(self, count: int, symbols: bytes) -> Generator[Step, Any, Difference]:
        """Ask for symbols until they name the difference. The decoder is freed before values are exchanged."""
        decoder = Decoder(self._view.sketch)
        try:
            decoder.add(messages.unpack(symbols, 0, count, SYMBOLS_MAX))
            while not decoder.is_complete:
                yield from self._add_more(decoder, count)
        except Contradiction as error:
            raise RemoteProtocolError(f"symbols that are no sketch: {error}") from None
        finally:
            self.outcome.symbols = decoder.symbols
        return decoder.difference()

    def _add_more(self, decoder: Decoder, count: int) -> Generator[Step, Any, None]:
        more = self._more(decoder)
        reply = yield from self._ask(More(more))
        if isinstance(reply, Refuse):
            raise _Fallback(reply.reason)
        if not isinstance(reply, Symbols):
            raise RemoteProtocolError(f"{type(reply).__name__} in answer to More")
        window = messages.unpack(reply.symbols, decoder.symbols, count, more)
        if len(window) != more:
            raise RemoteProtocolError(f"{len(window)} symbols, {more} were asked for")
        decoder.add(window)

    def _exchange_difference(self, count: int, symbols: bytes) -> Generator[Step, Any, None]:
        theirs, ours = yield from self._find_difference(count, symbols)
        lacking, in_quarantine, has_ours = yield Ask(steps.absent(theirs, ours))
        if not has_ours:
            # The other side lied, or a repair has removed an entry from our log while it was open.
            self.outcome.is_doubtful = True
            raise _Fallback("entries are said to be ours alone that we do not have")
        wanted = [key for key in lacking if not self._source.is_aside(key, self._now)]
        self.result.quarantined += in_quarantine
        self.result.skipped += len(lacking) - len(wanted)
        self._has_left_out = in_quarantine > 0 or len(wanted) < len(lacking)
        give = [key for key in ours if not self._source.is_refused(key, self._now)] if self._gives else []
        self._has_kept_back = len(give) < len(ours)
        self.outcome.wanted, self.outcome.given = len(wanted) if self._takes else 0, len(give)
        if self._is_rehearsal:
            self.result.ending = Ending.COMPLETE
            return
        yield from self._exchange_keys(wanted if self._takes else [], give)

    def _more(self, decoder: Decoder) -> int:
        """Return how many symbols to ask for: as many as the claimed differences may need, or first enough to estimate them better."""
        claimed, known = decoder.estimate(), decoder.symbols
        margin = 1 + 1.25 * sqrt(2 / known)
        most = min(SYMBOLS_MAX, max(FUTILE_SYMBOLS * claimed, LEAST_SYMBOLS))
        if claimed > steps.DIFFERENCES_MAX * margin or known >= most:
            raise _Fallback(f"some {claimed} differences, not found in {known} symbols")
        if claimed > LARGE_ESTIMATE and known < LARGE_ESTIMATE:
            return 2 * LARGE_ESTIMATE - known
        each = SYMBOLS_OF_LARGE if claimed > LARGE_ESTIMATE else SYMBOLS_OF_SMALL
        expected = int(each * claimed * margin) + FIRST_ESTIMATE
        # If twice the expected symbols were not enough, two elements are in the same ones, and the next with only one may be far away.
        goal = max(expected, 2 * known if known >= 2 * expected else known + max(known // 8, FIRST_ESTIMATE))
        return min(goal, most) - known

    def _exchange_keys(self, wanted: Sequence[bytes], give: Sequence[bytes]) -> Generator[Step, Any, None]:
        self.result.requests += 1
        self.result.waits += 1
        yield Send(messages.encode(Want(wanted, len(give))))
        if give:
            yield Give(steps.give_keys(give))
        batch: list[tuple[bytes, bytes]] = []
        size = came = 0
        while came < len(wanted):
            reply = yield from steps.receive(steps.WORK_S)
            if isinstance(reply, Refuse):
                raise _Fallback(reply.reason)
            if not isinstance(reply, Values) or not 0 < len(reply.values) <= len(wanted) - came:
                raise RemoteProtocolError(f"{type(reply).__name__} in place of the values that were wanted")
            batch += zip(wanted[came : came + len(reply.values)], reply.values, strict=True)
            came += len(reply.values)
            size += sum(map(len, reply.values))
            if len(batch) >= steps.BATCH_ENTRIES or size >= steps.BATCH_BYTES:
                yield from self._insert(batch)
                batch, size = [], 0
        yield from self._insert(batch)
        yield from self._await_result()

    # Everything

    def _exchange_all(self, own_count: int, count: int) -> Generator[Step, Any, None]:
        if self._after is None and not steps.is_wholesale(own_count, count):
            raise RemoteProtocolError(f"{count} entries are to be sent to one who has {own_count}")
        # When a stream resumes after a key, we do not know which entries the other side has before that key.
        gives = self._gives and self._after is None
        self._has_kept_back = own_count > 0 and not gives
        self.outcome.wanted, self.outcome.given = count if self._takes else 0, own_count if gives else 0
        if self._is_rehearsal:
            self.result.ending = Ending.COMPLETE
            return
        yield Give(steps.give_all(None, own_count) if gives else _give_nothing())
        batch: list[tuple[bytes, bytes]] = []
        size = 0
        last = self._after or b""
        came = 0
        while self._takes:
            reply = yield from steps.receive(steps.WORK_S)
            if not isinstance(reply, Values):
                raise RemoteProtocolError(f"{type(reply).__name__} in place of values")
            if not reply.values:
                break
            came += len(reply.values)
            if came > count + steps.SLACK:
                raise RemoteProtocolError(f"{came} values of one who said {count}")
            batch += (keyed := steps.in_order(reply.values, last))
            last = keyed[-1][0]
            size += sum(map(len, reply.values))
            if len(batch) >= steps.BATCH_ENTRIES or size >= steps.BATCH_BYTES:
                yield from self._insert(batch)
                self._source.resume_after = batch[-1][0]
                batch, size = [], 0
        yield from self._insert(batch)
        self._source.resume_after = None
        yield from self._await_result()

    # What came

    def _insert(self, batch: list[tuple[bytes, bytes]]) -> Generator[Step, Any, None]:
        if not batch:
            return
        verdicts = yield StoreEntries(batch)
        result = self.result
        later: Verdict | None = None
        for (key, _), verdict in zip(batch, verdicts, strict=True):
            if verdict.entry is not None and verdict.entry.key != key:
                raise RemoteProtocolError(f"the value for key {key.hex()} has the key {verdict.entry.key.hex()}")
            if verdict.accepted:
                result.note_stored(verdict)
            elif verdict.rule == "parents":
                if not self._has_left_out:
                    raise _Fallback(f"{key.hex()} came without its parents")
                result.orphans += 1
            elif verdict.rule in LATER:
                # Its descendants in this batch lack a parent because of that; all other entries count.
                self._has_left_out = True
                later = later or verdict
            else:
                self._has_left_out = True
                result.note_left_out(key, verdict, self._source, self._now, rejected_max=REJECTED_MAX)
        if later is not None:
            result.ending, result.reason = Ending.of_later(later.rule), later.reason or "the store did not take an entry"
            raise Unanswered(result.reason)

    def _await_result(self) -> Generator[Step, Any, None]:
        reply = yield from steps.receive(steps.WORK_S)
        if isinstance(reply, Refuse):
            raise _Fallback(reply.reason)
        if not isinstance(reply, Result):
            raise RemoteProtocolError(f"{type(reply).__name__} in place of the result")
        self.outcome.refused = reply.left_out
        for key in reply.left_out:
            self._source.set_refused(key, self._now)
        yield from self._conclude(reply.root, has_moved=reply.has_moved or bool(reply.left_out))

    def _conclude(self, root: Node, *, has_moved: bool) -> Generator[Step, Any, None]:
        """Compare the roots; see the module's docstring."""
        own_root, last = yield Ask(steps.read_end())
        self.outcome.root, self.outcome.is_equal = root, root == own_root
        self.result.ending = Ending.COMPLETE
        has_gone_over = self._takes and self._after is None and not self._has_left_out and not self._has_kept_back
        has_moved = has_moved or last != self._view.seq + self.result.entries
        if not self.outcome.is_equal and has_gone_over and not has_moved:
            self.outcome.is_doubtful = True
            raise _Fallback("the roots differ, and nothing explains it")


def _give_nothing() -> Generator[Step, Any, None]:
    yield Send(messages.encode(Values([])))
