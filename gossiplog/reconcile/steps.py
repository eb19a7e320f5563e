"""What a session does, step by step, and what both sides do alike. A session is a generator: it knows no stream, log or clock.

It yields the actions of `sync.events` that something comes of, and two steps of its own, and is sent back what each came to; its return
value is the outcome. `machine.Reconciliation` makes a machine of it that is driven as any session.

    Send            None, when it is written
    Ask             the plan's result
    StoreEntries    a verdict for each entry
    Receive         the next frame; None at the end of the stream, or after so many seconds; a DecodeError where it is no frame
    Give            None at once: these steps, each a Send or an Ask, are taken while the session goes on
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
"""How long an answer that takes no work may take."""
WORK_S = 60.0
"""How long values, and the verdict on many of them, may take."""
DIFFERENCES_MAX = int(SYMBOLS_MAX / 1.42)
"""More than these are not looked for in a sketch: the merkle sync is there for them."""
ALIKE_RATIO = 16
BATCH_ENTRIES, BATCH_BYTES = 1_000, 2**20
"""What either side holds of values that came, until it inserts them: whichever is reached first."""
SLACK = 1_000
"""Values that may come above the number that the other side told: it may have grown meanwhile."""
_READ_FIRST, _READ_MOST = 64, 512
"""VALUEs read at once: while their size is not known, and at most."""


class LogView(Protocol):
    """A state of our log that does not change."""

    @property
    def seq(self) -> int:
        """Its last insertion number."""

    @property
    def sketch(self) -> Sketch:
        """Of all its keys; it does not change."""


class Receive(NamedTuple):
    """Wait for the next frame for so many seconds; send it back, None if none came, or the DecodeError of the frames' reader."""

    patience_s: float


class Give(NamedTuple):
    """Take these steps beside the session."""

    steps: Steps


Step: TypeAlias = Send | Receive | Ask | StoreEntries | Give
Steps: TypeAlias = Generator[Step, Any, Any]


class Unanswered(Exception):
    """The stream ended, or nothing came in time."""


def receive(patience_s: float) -> Generator[Step, Any, Message]:
    """Wait for a message.

    Raises:
        Unanswered: None came.
        RemoteProtocolError: What came is none.
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
    """Return the key of a VALUE that nobody has verified yet.

    Raises:
        RemoteProtocolError: It has none.
    """
    try:
        return Entry.stored(value).key
    except DecodeError as error:
        raise RemoteProtocolError(f"a value that is none: {error}") from None


def in_order(values: Sequence[bytes], last: bytes) -> list[tuple[bytes, bytes]]:
    """Return VALUEs with their keys, which have to ascend from after `last`.

    Raises:
        RemoteProtocolError: They do not, or one of them has no key.
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
    """Whether two logs of these sizes have so little in common that each had better send all that it has."""
    return (abs(one - other) > DIFFERENCES_MAX and min(one, other) <= max(one, other) // ALIKE_RATIO) or min(one, other) == 0


def give_keys(keys: Sequence[bytes]) -> Generator[Step, Any, int]:
    """Send the VALUEs for these keys, in that order; return how many there were, which is all unless one is not in the log."""
    sent, at_once = 0, _READ_FIRST
    while sent < len(keys):
        wanted = keys[sent : sent + at_once]
        found: dict[bytes, bytes] = yield Ask(ask(ReadValues(wanted)), of_snapshot=True)
        if len(found) < len(wanted) > 1:
            # Large values, of which an answer has 8 MiB, in any order.
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
    """Send every VALUE after a key, in key order, and the end; return how many those were.

    Args:
        announced: How many we said we have. If more than `SLACK` have come since, the last ones stay here, as the other side takes no
            more: it hears at the end that our log has moved.
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
    """How many VALUEs to read next, for them to fill a frame if they are like these: a slow reader has no more of our memory."""
    return max(1, min(_READ_MOST, FRAME_BYTES * len(values) // max(1, sum(map(len, values)))))


def _send_framed(values: list[bytes]) -> Generator[Step, Any, None]:
    """Send VALUEs in frames, and let go of them before that: the list is empty then."""
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
        Which of their keys we have neither in the log nor in the quarantine; how many are in that; and whether we have all of ours.
    """
    leaves = yield from ask(ReadLeaves([*theirs, *ours]))
    lacking = [key for key in theirs if key not in leaves]
    aside = (yield from ask(ReadQuarantined(lacking))) if lacking else {}
    return [key for key in lacking if key not in aside], len(aside), all(key in leaves for key in ours)
