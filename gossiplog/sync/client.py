"""The pulling side of one sync session, as a machine between bytes, our own log and time.

The source's tree is walked from the root down, many nodes at a time. Every node that differs from ours is expanded. The leaves that we lack
are fetched and handed out in batches in key order, which is a causal order. Requests are pipelined, and the source answers them in order.
Its answers are checked before they are used, and `ClientLimits` bounds what is held.

The module `events` says how to drive it. A driver must not stop reading while it writes, as the source may be writing too. At most one Ask
and one StoreEntries are outstanding, and both may run while the driver reads. After a mistake of the source only Finish and Done follow.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, assert_never

from ..codec.framing import FRAME_BYTES_MAX, FrameDecoder, FrameTooLong, encode_frame
from ..entry.validation import LATER, Verdict
from ..errors import DecodeError, LocalProtocolError, RemoteProtocolError
from ..tree.node import Node
from . import events, rpc
from .checked import checked_children, checked_entries, checked_root
from .compare_plan import Compared, compare
from .frontier import Frontier, Span
from .limits import ClientLimits
from .result import Ending, SyncResult
from .source import Source
from .wire import decode_response, encode_request

COOLDOWN_S_MAX: Final = 300.0
_LONG_BYTES, _LONG_NODES = 256 * 1024, 5_000
"""So many bytes of nodes take about 15 ms to decode and check; of values, 3 ms. For more, a hop into a thread is worth its cost."""


class _Sent(NamedTuple):
    """A request that waits for its answer. It has either `span` or `leaves`, or neither if it asks for the root."""

    round: int
    expected: int
    span: Span | None = None
    leaves: Sequence[Node] = ()


class SyncClient:
    """One session over one stream; see the module's docstring for how it is driven.

    Invalid and unsupported entries do not end a session, or one of them in an otherwise honest source would keep back all later ones. They
    are counted and set aside for an hour, and their descendants are left out as orphans. If nothing was left out, an orphan is a violation:
    a source holds no entry without its parents, and they come first.

    Args:
        source: The memory of this peer; the session reads and updates it.
        first_answer_s: Seconds for the first answer, if less than for any other.
        in_parts: In this session's protocol an answer may have only a part of a node's children.
    """

    def __init__(
        self,
        source: Source | None = None,
        limits: ClientLimits | None = None,
        *,
        first_answer_s: float | None = None,
        in_parts: bool = False,
    ) -> None:
        self.result = SyncResult()
        self._source = source or Source()
        self._limits = limits or ClientLimits()
        self._first_answer_s = min(first_answer_s or self._limits.rpc_s, self._limits.rpc_s)
        self._in_parts = in_parts
        self._frames = FrameDecoder()
        # The nodes and leaves of the source's tree that are still to be expanded or fetched.
        self._frontier = Frontier()
        # Requests that wait for their answers, in order; and frames to be written at the end of the current call.
        self._sent: deque[_Sent] = deque()
        self._out: list[bytes] = []
        # Sequential round trips so far.
        self._round = 0
        # How many of the waiting requests are for children and for values, and the expected bytes of these values.
        self._expansions = 0
        self._value_requests = 0
        self._value_bytes_expected = 0
        # Children that arrived, with their span (None for the root); those being compared with our log; and the number of all of them.
        self._arrived: list[tuple[Span | None, list[Node]]] = []
        self._comparing: list[tuple[Span | None, list[Node]]] | None = None
        self._held = 0
        # Checked entries, in key order; the bytes of their values, including the batch being inserted; and that batch.
        self._ready: deque[tuple[bytes, bytes]] = deque()
        self._ready_bytes = 0
        self._inserting: list[tuple[bytes, bytes]] | None = None
        # An entry was left out here, so an orphan is no violation.
        self._has_left_out = False
        self._has_values = False
        self._started_at: float | None = None
        # Finish was returned, so no request follows. Or something went wrong: no request may follow, and ready entries are still inserted.
        self._is_finished = False
        self._is_ending = False
        self._is_closed = False
        self.is_done = False
        # When the first request began to wait, or when our own log last held up the session.
        self._waiting_since = 0.0
        self._now = 0.0

    @property
    def wants_input(self) -> bool:
        """Return whether the driver should read now; False at the end, and while arrived entries have to be inserted first."""
        return not self._is_ending and not self._is_closed and self._ready_bytes < self._limits.ready_bytes

    def takes_long(self, event: events.SessionEvent) -> bool:
        """Return whether `handle` may take more than a few milliseconds; a busy driver then calls it in a thread."""
        match event:
            case events.Answered():
                return sum(len(nodes) for _, nodes in self._comparing or ()) > _LONG_NODES
            case events.Received():
                return self._frames.is_completed(len(event.data), _LONG_BYTES)
            case _:
                return self._frames.is_completed(0, _LONG_BYTES)

    @property
    def deadline(self) -> float | None:
        """Return when the session times out if nothing arrives before; None while no answer is due or wanted."""
        return self._waiting_since + self._patience_s if self._sent and self.wants_input else None

    @property
    def _patience_s(self) -> float:
        return self._limits.rpc_s if self.result.waits else self._first_answer_s

    def start(self, now: float) -> list[events.SessionAction]:
        """Begin the session."""
        if self._started_at is not None:
            raise LocalProtocolError("this session was started before")
        self._started_at = self._now = self._waiting_since = now
        self._request(rpc.GetRoot(), _Sent(1, 0))
        return self._flush()

    def handle(self, event: events.SessionEvent, now: float) -> list[events.SessionAction]:
        """Handle an event and return the actions that follow.

        Raises:
            LocalProtocolError: The driver answered a question that was not asked, or fed more bytes than were wanted.
        """
        self._now = now
        if self.is_done:
            return []
        try:
            match event:
                case events.Received():
                    self._on_received(event.data)
                case events.Closed():
                    self._on_break(Ending.CLOSED, event.reason or "the stream ended", is_telling=not event.is_connection_lost)
                    self._is_closed = True
                case events.Resumed():
                    # A late timer is harmless: the answer may have come meanwhile.
                    if self.deadline is not None and now >= self.deadline:
                        self._on_break(Ending.TIMED_OUT, f"no answer within {self._patience_s:g} s")
                case events.Answered():
                    self._on_compared(event.answer)
                case events.EntriesStored():
                    self._on_inserted(event.verdicts)
                case events.Failed():
                    return self._stop(Ending.STORAGE, event.reason)
                case events.Sent():
                    pass
                case _:
                    assert_never(event)
            self._read_frames()
            self._request_more()
        except (RemoteProtocolError, DecodeError) as error:
            return self._stop(Ending.VIOLATION, str(error))
        return self._flush()

    # What arrives

    def _on_received(self, data: bytes) -> None:
        self.result.bytes_received += len(data)
        if self._is_ending:
            return
        if self._frames.buffered_bytes > FRAME_BYTES_MAX + 4 and not self.wants_input:
            raise LocalProtocolError("more bytes were fed than were wanted")
        self._frames.feed(data)

    def _read_frames(self) -> None:
        while self.wants_input:
            try:
                message = self._frames.next()
            except FrameTooLong as error:
                if not self._sent or not self._sent[0].leaves:
                    raise
                # The reference sends all that it was asked for, however long. That is no lie, and a reason to ask for less.
                self._fail(Ending.CLOSED, f"values in {error}", is_certain=True)
                return
            if message is None:
                return
            self._on_response(decode_response(message))

    def _on_response(self, response: rpc.Response) -> None:
        if isinstance(response, rpc.AbortResponse):
            self.result.cooldown_s = min(response.cooldown_ms / 1000, COOLDOWN_S_MAX)
            # If everything was answered, an abort changes nothing.
            if not self._is_finished:
                wish = f", and asks for a pause of {self.result.cooldown_s:g} s" if self.result.cooldown_s else ""
                self._end(Ending.ABORTED, f"the server ended the session{wish}")
            return
        if not self._sent:
            raise RemoteProtocolError("an answer to no request")
        sent = self._sent.popleft()
        self._waiting_since = self._now
        self._round = max(self._round, sent.round)
        self.result.waits = self._round
        if sent.leaves:
            self._on_values(sent, response)
        elif sent.span is not None:
            self._expansions -= 1
            children = checked_children(sent.span, response, in_parts=self._in_parts)
            self._arrived.append((sent.span, children))
            self._held += len(children)
            if self._frontier.size + self._held > self._limits.held:
                self._end(Ending.LIMIT, f"more than {self._limits.held} nodes of the source's tree to hold")
        else:
            root = checked_root(response)
            if root.level:
                self._arrived.append((None, [root]))

    def _on_values(self, sent: _Sent, response: rpc.Response) -> None:
        self._value_requests -= 1
        self._value_bytes_expected -= sent.expected
        entries = checked_entries(sent.leaves, response)
        self._ready.extend(entries)
        self._has_values = True
        size = sum(len(value) for _, value in entries)
        self._ready_bytes += size
        self._source.on_values(len(sent.leaves), size)

    def _on_compared(self, found: object) -> None:
        if self._comparing is None or not isinstance(found, Compared):
            raise LocalProtocolError("an answer to no plan")
        compared, self._comparing = self._comparing, None
        self._held -= sum(len(nodes) for span, nodes in compared if span is not None)
        self._waiting_since = self._now
        if self._is_ending:
            return
        if found.conflict is not None:
            key = found.conflict.key
            raise RemoteProtocolError(f"leaf {key.hex() if key else 'anchor'} with another hash than ours")
        self.result.quarantined += found.quarantined
        self.result.skipped += found.aside
        self._has_left_out = self._has_left_out or found.aside > 0
        for (span, nodes), differing in zip(compared, found.differing, strict=True):
            if nodes[0].level == 0:
                self._frontier.add_leaves(differing)
            elif differing:
                self._frontier.add_spans(nodes, differing, (span.rest or span.upper) if span else None)
            if span is not None:
                self._frontier.resolve(span)

    def _on_inserted(self, verdicts: Sequence[Verdict]) -> None:
        if self._inserting is None or len(verdicts) != len(self._inserting):
            raise LocalProtocolError("verdicts on other entries than were given")
        entries, self._inserting = self._inserting, None
        self._waiting_since = self._now
        for (key, value), verdict in zip(entries, verdicts, strict=True):
            self._ready_bytes -= len(value)
            if verdict.entry is not None and verdict.entry.key != key:
                raise RemoteProtocolError(f"the value for key {key.hex()} has the key {verdict.entry.key.hex()}")
            if verdict.accepted:
                self.result.note_stored(verdict)
            elif verdict.rule == "parents":
                if not self._has_left_out:
                    raise RemoteProtocolError(f"incomplete source: {key.hex()} came without its parents")
                self.result.orphans += 1
            elif verdict.rule in LATER:
                # Its descendants in this batch lack a parent because of us, not because of the source.
                self._has_left_out = True
                self._ready.clear()
                self._end(Ending.of_later(verdict.rule), verdict.reason or "the store did not take an entry")
            else:
                rejected_max = self._limits.rejected
                self._has_left_out |= self.result.note_left_out(key, verdict, self._source, self._now, rejected_max=rejected_max)
        if self.result.orphans > self._limits.orphans:
            self._ready.clear()
            self._end(Ending.LIMIT, f"more than {self._limits.orphans} orphans")

    # What leaves

    def _request(self, request: rpc.Request, sent: _Sent) -> None:
        if not self._sent:
            self._waiting_since = self._now
        self._sent.append(sent)
        self._out.append(encode_frame(encode_request(request)))
        self.result.requests += 1

    def _request_more(self) -> None:
        if self._is_ending:
            return
        limits = self._limits
        while self._expansions < self._source.expansions_max:
            has_room = self._frontier.size < limits.look_ahead
            span = self._frontier.take_span(only_first=not has_room)
            if span is None:
                break
            self._expansions += 1
            self._request(rpc.GetChildren(span.node.level, span.node.key, span.start), _Sent(self._round + 1, 0, span=span))
        while self._has_room_for_values():
            leaves = self._frontier.ready_leaves(rpc.KEYS_MAX)
            if not leaves:
                break
            count = self._source.request_size(leaves)
            # Wait for a fuller request while answers that may fill it are on their way, and other requests keep the line busy.
            if count == len(leaves) < rpc.KEYS_MAX and self._value_requests and (self._expansions or self._comparing or self._arrived):
                break
            self._frontier.take_leaves(count)
            expected = int(count * (self._source.value_bytes or 0))
            self._value_requests += 1
            self._value_bytes_expected += expected
            keys = [leaf.key for leaf in leaves[:count] if leaf.key is not None]
            self._request(rpc.GetValues(keys), _Sent(self._round + 1, expected, leaves=leaves[:count]))

    def _has_room_for_values(self) -> bool:
        if self._source.is_careful:
            return self._value_requests == 0 and self.wants_input
        if self._source.value_bytes is None:
            return self._value_requests < self._limits.probes_in_flight
        if self._value_requests >= self._limits.values_in_flight:
            return False
        return (
            self._value_bytes_expected < self._limits.value_bytes_in_flight
            and self._value_bytes_expected + self._ready_bytes < self._limits.ready_bytes
        )

    def _flush(self) -> list[events.SessionAction]:
        actions: list[events.SessionAction] = []
        if self._out:
            data = b"".join(self._out)
            self._out.clear()
            self.result.bytes_sent += len(data)
            actions.append(events.Send(data))
        if self._arrived and self._comparing is None and not self._is_ending:
            self._comparing, self._arrived = self._arrived, []
            now, source = self._now, self._source
            actions.append(events.Ask(compare([nodes for _, nodes in self._comparing], lambda key: source.is_aside(key, now))))
        if self._is_insert_due():
            self._inserting = self._next_batch()
            actions.append(events.StoreEntries(self._inserting))
        is_walked = not self._sent and not self._arrived and self._comparing is None and self._frontier.is_done
        if (is_walked or self._is_ending) and not self._is_finished:
            self._is_finished = True
            actions.append(events.Finish())
        if self._is_finished and not self._ready and self._inserting is None and self._comparing is None:
            self._learn()
            self._is_ending = self.is_done = True
            actions.append(events.Done(self.result))
        return actions

    def _is_insert_due(self) -> bool:
        if self._inserting is not None or not self._ready:
            return False
        if len(self._ready) >= self._limits.batch_entries or self._ready_bytes >= self._limits.batch_bytes:
            return True
        # A partial batch waits only while more values are on their way.
        return self._is_ending or not self._value_requests

    def _next_batch(self) -> list[tuple[bytes, bytes]]:
        batch: list[tuple[bytes, bytes]] = []
        size = 0
        while self._ready and len(batch) < self._limits.batch_entries and size < self._limits.batch_bytes:
            entry = self._ready.popleft()
            size += len(entry[1])
            batch.append(entry)
        return batch

    # How it ends

    def _on_break(self, ending: Ending, reason: str, *, is_telling: bool = True) -> None:
        """Stop as the source fell silent; `is_telling`: the unanswered request may be the cause."""
        if self._is_ending:
            return
        self._read_frames()
        if self._is_ending or (not self._sent and self._is_finished):
            return
        if is_telling and self._sent and self._sent[0].leaves:
            self._fail(ending, reason)
        else:
            self._end(ending, reason)

    def _fail(self, ending: Ending, reason: str, *, is_certain: bool = False) -> None:
        """Stop at a getValues that the source could not answer; `is_certain`: the request was the cause, not the line."""
        keys = [leaf.key for leaf in self._sent[0].leaves if leaf.key is not None]
        timed_out, has_values = ending is Ending.TIMED_OUT, self._has_values and not is_certain
        self.result.narrowed = self._source.on_failure(keys, self._now, timed_out=timed_out, has_values=has_values)
        self._end(ending, reason)

    def _end(self, ending: Ending, reason: str) -> None:
        """Stop asking; received and checked entries are still inserted."""
        self._is_ending = True
        self.result.ending, self.result.reason = ending, reason
        self._sent.clear()
        self._arrived.clear()

    def _learn(self) -> None:
        result = self.result
        if not self._is_ending:
            result.ending = Ending.COMPLETE
            assert self._started_at is not None
            self._source.on_complete(self._started_at)
        elif result.ending in (Ending.ABORTED, Ending.CLOSED, Ending.TIMED_OUT) and result.requests > 1:
            result.narrowed |= self._source.on_cut_off(has_entries=result.entries > 0)

    def _stop(self, ending: Ending, reason: str) -> list[events.SessionAction]:
        """Stop at once, without waiting for a batch that is being inserted."""
        self._end(ending, reason)
        self._ready.clear()
        self.is_done = True
        return [events.Done(self.result)] if self._is_finished else [events.Finish(), events.Done(self.result)]
