"""The events and actions of a session: one vocabulary for both sides of a sync by trees and of a reconciliation.

A `Session` is a machine between bytes, our log and time. Its driver carries out the actions in order, and reports their outcomes as events:
at once if that is cheap, else later. The machine cannot tell.

| action | the driver's answer |
|---|---|
| Send | `Sent`, once the bytes are written, if the action has a token |
| Ask | `Answered`, or `Failed` |
| StoreEntries | `EntriesStored` |
| Pause | `Resumed` at that time; nothing is read before |
| Finish, Reset, Done | none |

While the session `wants_input`, the driver reads and reports `Received` or `Closed`. If the `deadline` passes first, it reports `Resumed`,
which is harmless if late.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..entry.validation import Verdict
from ..plan import Plan


class Received(NamedTuple):
    """Bytes arrived."""

    data: bytes


class Closed(NamedTuple):
    """The stream ended or broke. It makes no difference whether it ended cleanly.

    Attributes:
        is_connection_lost: The whole connection ended, so the last request is not to blame.
    """

    reason: str
    is_connection_lost: bool = False


class Answered(NamedTuple):
    """The plan of the `Ask` with this token returned an answer."""

    answer: Any
    token: int = 0


class Failed(NamedTuple):
    """Our own store could not run the plan of an `Ask`."""

    reason: str


class Sent(NamedTuple):
    """The bytes of the `Send` with this token are written, or the stream is broken, which the reader will notice."""

    token: int


class EntriesStored(NamedTuple):
    """The last `StoreEntries` was carried out. One verdict for each entry, in order."""

    verdicts: Sequence[Verdict]


class Send(NamedTuple):
    """Write bytes to the stream. If there is a token, report `Sent` with it afterwards."""

    data: bytes
    token: int | None = None


class Ask(NamedTuple):
    """Run a plan on our own log.

    Attributes:
        of_snapshot: Run it on the session's snapshot; else on the log as it is now.
        token: Returned with the answer.
    """

    plan: Plan[Any]
    of_snapshot: bool = False
    token: int = 0


class StoreEntries(NamedTuple):
    """Insert these `(key, VALUE)` into our own log."""

    entries: list[tuple[bytes, bytes]]


class Finish(NamedTuple):
    """Close the stream for writing."""


class Done(NamedTuple):
    """The session is over; close the stream.

    Attributes:
        result: Its `SyncResult`, or the outcome of that side of a reconciliation.
    """

    result: Any = None


class Resumed(NamedTuple):
    """The time of `Pause` or `deadline` has come."""


class Pause(NamedTuple):
    """Wait until this time without reading, then report `Resumed`."""

    until: float


class Reset(NamedTuple):
    """Break the stream; the session is over.

    Attributes:
        is_violation: Whether the peer broke the protocol and is to be marked.
    """

    reason: str
    is_violation: bool


SessionEvent: TypeAlias = Received | Closed | Answered | Failed | EntriesStored | Sent | Resumed
SessionAction: TypeAlias = Send | Ask | StoreEntries | Pause | Finish | Reset | Done


class Session(Protocol):
    """One session over one stream."""

    @property
    def is_done(self) -> bool:
        """Return whether the session is over."""

    @property
    def wants_input(self) -> bool:
        """Return whether the driver should read now."""

    @property
    def deadline(self) -> float | None:
        """Return when `Resumed` is due if nothing arrives before; None for never."""

    def start(self, now: float) -> list[SessionAction]:
        """Begin the session."""

    def handle(self, event: SessionEvent, now: float) -> list[SessionAction]:
        """Handle an event and return the actions that follow."""

    def takes_long(self, event: SessionEvent) -> bool:
        """Return whether `handle` may take more than a few milliseconds; a busy driver then calls it in a thread."""
