"""What happens to a session and what it wants done: the vocabulary between the two machines and their drivers."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..plan import Plan
from .result import SyncResult

__all__ = [
    "Answered",
    "Ask",
    "ClientAction",
    "ClientEvent",
    "Closed",
    "Done",
    "Finish",
    "InsertVerdict",
    "Pause",
    "Received",
    "Reset",
    "Resumed",
    "Send",
    "ServerAction",
    "ServerEvent",
    "TakeEntries",
    "Taken",
    "TimedOut",
]


class InsertVerdict(Protocol):
    """What the machine reads of a `gossiplog.log.Verdict`."""

    @property
    def accepted(self) -> bool:
        """Whether the entry is in the log now."""

    @property
    def rule(self) -> str | None:
        """The rule that kept it out; None if nothing did."""

    @property
    def reason(self) -> str | None:
        """The rule, applied to this entry, in words."""

    @property
    def entry(self) -> Any:
        """The entry, which has a `key`, as far as it could be decoded."""

    @property
    def is_new(self) -> bool:
        """Whether the log did not have it before."""


class Received(NamedTuple):
    """Bytes arrived."""

    data: bytes


class Closed(NamedTuple):
    """The stream ended or broke; a clean end half way is the same to us.

    Attributes:
        reason: Why, for the log.
        is_connection_lost: The whole connection ended, which says nothing about what was asked for last.
    """

    reason: str
    is_connection_lost: bool = False


class TimedOut(NamedTuple):
    """`deadline` passed while the driver was reading."""


class Answered(NamedTuple):
    """The plan of the last `Ask` returned this."""

    answer: Any


class Taken(NamedTuple):
    """The last `TakeEntries` was carried out, or refused entry by entry; one verdict an entry, in its order."""

    verdicts: Sequence[InsertVerdict]


class Send(NamedTuple):
    """Write these bytes to the stream."""

    data: bytes


class Ask(NamedTuple):
    """Run a plan on our own log."""

    plan: Plan[Any]


class TakeEntries(NamedTuple):
    """Insert these `(key, VALUE)` into our own log."""

    entries: list[tuple[bytes, bytes]]


class Finish(NamedTuple):
    """Close the stream for writing."""


class Done(NamedTuple):
    """The session is over; close the stream for good."""

    result: SyncResult


class Resumed(NamedTuple):
    """The time that `Pause` or `deadline` named has come."""


class Pause(NamedTuple):
    """Wait until this time, without reading meanwhile, then give `Resumed`."""

    until: float


class Reset(NamedTuple):
    """Break the stream; the session is over.

    Attributes:
        reason: Why, for the log.
        is_violation: Whether the peer broke the protocol and is to be marked.
    """

    reason: str
    is_violation: bool


ClientEvent: TypeAlias = Received | Closed | TimedOut | Answered | Taken
ClientAction: TypeAlias = Send | Ask | TakeEntries | Finish | Done
ServerEvent: TypeAlias = Received | Closed | Answered | Resumed
ServerAction: TypeAlias = Send | Ask | Pause | Finish | Reset
