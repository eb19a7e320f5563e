"""What happens to a session and what it wants done: one vocabulary for both sides of a sync by the tree and of a reconciliation.

A `Session` is a machine between bytes, our log and time. Its driver carries out the actions in order and gives what they come to as events.
It answers at once where that is cheap, and later where it is not; the machine cannot tell.

| action | what the driver gives in return |
|---|---|
| Send | `Sent`, once the bytes are written, if the action has a token |
| Ask | `Answered`, or `Failed` |
| StoreEntries | `EntriesStored` |
| Pause | `Resumed` at that time, and reads nothing before |
| Finish, Reset, Done | nothing |

While the session `wants_input` the driver reads and gives `Received` or `Closed`; when its `deadline` passes first, `Resumed`, which is
harmless when it comes late.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..entry.validation import Verdict
from ..plan import Plan


class Received(NamedTuple):
    """Bytes arrived."""

    data: bytes


class Closed(NamedTuple):
    """The stream ended or broke; a clean end half way is the same to us.

    Attributes:
        is_connection_lost: The whole connection ended, which says nothing about what was asked for last.
    """

    reason: str
    is_connection_lost: bool = False


class Answered(NamedTuple):
    """The plan of an `Ask` returned this; `token` is that of the action."""

    answer: Any
    token: int = 0


class Failed(NamedTuple):
    """Our own store could not run the plan of an `Ask`."""

    reason: str


class Sent(NamedTuple):
    """The bytes of a `Send` with this token are written, or the stream is broken, of which the reader learns."""

    token: int


class EntriesStored(NamedTuple):
    """The last `StoreEntries` was carried out, or refused entry by entry; one verdict an entry, in its order."""

    verdicts: Sequence[Verdict]


class Send(NamedTuple):
    """Write these bytes to the stream; if there is a token, give `Sent` with it when that is done."""

    data: bytes
    token: int | None = None


class Ask(NamedTuple):
    """Run a plan on our own log.

    Attributes:
        of_snapshot: Run it on the state that the session is about, which stays the same; else on the log as it is now.
        token: Comes back with the answer.
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
    """The session is over; close the stream for good.

    Attributes:
        result: What it came to: a `SyncResult`, or what the side of a reconciliation returns.
    """

    result: Any = None


class Resumed(NamedTuple):
    """The time that `Pause` or `deadline` named has come."""


class Pause(NamedTuple):
    """Wait until this time, without reading meanwhile, then give `Resumed`."""

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
        """Whether nothing follows."""

    @property
    def wants_input(self) -> bool:
        """Whether the driver should read now."""

    @property
    def deadline(self) -> float | None:
        """When the session wants to hear of the time if nothing arrives before; None: no matter when."""

    def start(self, now: float) -> list[SessionAction]:
        """Begin."""

    def handle(self, event: SessionEvent, now: float) -> list[SessionAction]:
        """Take what happened and say what to do."""

    def takes_long(self, event: SessionEvent) -> bool:
        """Whether `handle` may take more than a few milliseconds, which a driver with others to serve spends in a thread."""
