"""The steps of a session, and the parts that both sides share. A session is a generator that knows no stream, log or clock.

It yields actions of `sync.events` that have an outcome, and two steps of its own. The outcome of each is sent back. The return value is the
outcome of the session. `machine.Reconciliation` makes a `Session` of it.

    Send            None, once it is written
    Ask             the plan's result
    StoreEntries    a verdict for each entry
    Receive         the next frame; None at the end of the stream, or after a number of seconds; a DecodeError for a bad frame
    Give            None at once: the given steps, each a Send or an Ask, run while the session goes on
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..entry.message import Entry
from ..errors import DecodeError, RemoteProtocolError
from ..log.requests import ReadCount, ReadLeaves, ReadPage, ReadQuarantined, ReadValues
from ..plan import Plan, ask
from ..sketch import SYMBOLS_MAX, Sketch
from ..sync.events import Ask, Send, StoreEntries
from ..tree.node import Node, ReadRoot
from . import messages
from .messages import FRAME_BYTES, Message, Values

ANSWER_S = 10.0
"""Seconds for an answer that takes no work."""
WORK_S = 60.0
"""Seconds for values, and for the result of many of them."""
DIFFERENCES_MAX = int(SYMBOLS_MAX / 1.42)
"""More differences than this are left to the merkle sync."""
ALIKE_RATIO = 16
BATCH_ENTRIES, BATCH_BYTES = 1_000, 2**20
"""Values that either side holds before it inserts them, whichever limit is reached first."""
SLACK = 1_000
"""Values that may come beyond the number that the other side announced, as its log may have grown meanwhile."""
_READ_FIRST, _READ_MOST = 64, 512
"""VALUEs read at a time: while their size is unknown, and at most."""


class LogView(Protocol):
    """A state of our log that does not change."""

    @property
    def seq(self) -> int:
        """Return its last insertion number."""

    @property
    def sketch(self) -> Sketch:
        """Return the sketch of all its keys, which does not change."""


class Receive(NamedTuple):
    """Wait for the next frame. Send it back, None if none came in time, or the DecodeError of a bad frame."""

    patience_s: float


class Give(NamedTuple):
    """Run these steps beside the session."""

    steps: Steps


Step: TypeAlias = Send | Receive | Ask | StoreEntries | Give
Steps: TypeAlias = Generator[Step, Any, Any]


class Unanswered(Exception):
    """The stream ended, or nothing came in time."""


def receive(patience_s: float) -> Generator[Step, Any, Message]:
    """Wait for a message.

    Raises:
        Unanswered: None came.
        RemoteProtocolError: The frame is no message.
    """
    frame = yield Receive(patience_s)
    if isinstance(frame, DecodeError):
        raise RemoteProtocolError(f"reconciliation: {frame}")
    if frame is None:
        raise Unanswered(f"nothing came within {patience_s:g} s, or the stream ended")
    try:
        return messages.decode(frame)
    except DecodeError as error:
        raise RemoteProtocolError(f"reconciliation: {error}") from None


def key_of(value: bytes) -> bytes:
    """Return the key of an unverified VALUE.

    Raises:
        RemoteProtocolError: It is no entry.
    """
    try:
        return Entry.stored(value).key
    except DecodeError as error:
        raise RemoteProtocolError(f"a value that is none: {error}") from None


def in_order(values: Sequence[bytes], last: bytes) -> list[tuple[bytes, bytes]]:
    """Return VALUEs with their keys, which have to ascend and come after `last`.

    Raises:
        RemoteProtocolError: They do not, or one of them is no entry.
    """
    keyed = []
    for value in values:
        key = key_of(value)
        if key <= last:
            raise RemoteProtocolError("values that are not in the order of their keys")
        keyed.append((key, value))
        last = key
    return keyed


def read_end() -> Plan[tuple[Node, int]]:
    """Read the root and the last insertion number."""
    root = yield from ask(ReadRoot())
    _, last = yield from ask(ReadCount(counted=False))
    return root, last


def is_wholesale(one: int, other: int) -> bool:
    """Return whether two logs of these sizes must have so little in common that each should send all of its entries."""
    return (abs(one - other) > DIFFERENCES_MAX and min(one, other) <= max(one, other) // ALIKE_RATIO) or min(one, other) == 0


def give_keys(keys: Sequence[bytes]) -> Generator[Step, Any, int]:
    """Send the VALUEs for these keys, in order. Return how many were sent: all, unless a key is not in the log."""
    sent, at_once = 0, _READ_FIRST
    while sent < len(keys):
        wanted = keys[sent : sent + at_once]
        found: dict[bytes, bytes] = yield Ask(ask(ReadValues(wanted)), of_snapshot=True)
        if len(found) < len(wanted) > 1:
            # Values are large: an answer has at most 8 MiB of them, in any order.
            at_once = len(wanted) // 2
            continue
        if not found:
            break
        values = [found[key] for key in wanted]
        del found
        at_once = min(2 * len(wanted), _fitting(values))
        yield from _send_framed(values)
        sent += len(wanted)
    return sent


def give_all(after: bytes | None, announced: int) -> Generator[Step, Any, int]:
    """Send every VALUE after a key, in key order, and the end. Return how many were sent.

    Args:
        announced: How many entries we announced. If more than `SLACK` have come since, the last ones are not sent, as the other side would
            not accept them. It is told at the end that our log has moved.
    """
    sent, at_once = 0, _READ_FIRST
    while True:
        left = announced + SLACK - sent
        page: list[tuple[bytes, bytes]] = []
        if left > 0:
            page = yield Ask(ask(ReadPage(after, None, False, min(at_once, left))), of_snapshot=True)
        if not page:
            yield Send(messages.encode(Values([])))
            return sent
        after = page[-1][0]
        sent += len(page)
        values = [value for _, value in page]
        del page
        at_once = _fitting(values)
        yield from _send_framed(values)


def _fitting(values: Sequence[bytes]) -> int:
    """Return how many VALUEs to read next, to fill one frame if they are like these. So a slow reader holds no more of our memory."""
    return max(1, min(_READ_MOST, FRAME_BYTES * len(values) // max(1, sum(map(len, values)))))


def _send_framed(values: list[bytes]) -> Generator[Step, Any, None]:
    """Send VALUEs in frames. The list is emptied before the first is sent, to free the values."""
    frames: deque[bytes] = deque()
    fill: list[bytes] = []
    size = 0
    for value in values:
        if fill and size + len(value) > FRAME_BYTES:
            frames.append(messages.encode(Values(fill)))
            fill, size = [], 0
        fill.append(value)
        size += len(value)
    frames.append(messages.encode(Values(fill)))
    values.clear()
    fill.clear()
    while frames:
        yield Send(frames.popleft())


def absent(theirs: Sequence[bytes], ours: Sequence[bytes]) -> Plan[tuple[list[bytes], int, bool]]:
    """Look up a difference in our log.

    Returns:
        Their keys that are neither in our log nor in its quarantine; how many are in the quarantine; and whether we have all of ours.
    """
    leaves = yield from ask(ReadLeaves([*theirs, *ours]))
    lacking = [key for key in theirs if key not in leaves]
    aside = (yield from ask(ReadQuarantined(lacking))) if lacking else {}
    return [key for key in lacking if key not in aside], len(aside), all(key in leaves for key in ours)
