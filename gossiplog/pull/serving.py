"""What the side that is pulled from decides: whose reconciliation goes on when both began, and what follows a session."""

from __future__ import annotations

from dataclasses import dataclass

from ..reconcile import Served
from ..sync.result import Ending, SyncResult
from ..sync.server import SyncServer

CROSSING = "a session that the other side began is running"
"""Said on the wire, and known again by the side that hears it."""
HEARD_S = 60.0
"""How soon a client hears that its session was cut short: when it has inserted what it got."""
RESUME_S = 0.5
"""How soon after that it resumes, if it does."""


@dataclass(slots=True)
class Dealings:
    """What runs between us and one peer, both ways. It lasts as long as the peer is connected.

    Where both begin to reconcile at once, the side that dialled goes on, and refuses the other's session with `CROSSING`: one session goes
    both ways. The side that was refused waits for it, and is told our heads after it, for that session began before some of what made the
    other side begin its own was here.

    Attributes:
        is_reconciling: A reconciliation of ours is about to be opened, or runs.
        has_crossed: We have refused one that the peer began meanwhile.
        begun: Sync streams that the peer has opened.
    """

    is_reconciling: bool = False
    has_crossed: bool = False
    begun: int = 0

    def is_crossing(self, *, is_outbound: bool) -> bool:
        """Whether to refuse a reconciliation of the peer's whose turn it is; `is_outbound`: we dialled."""
        if is_outbound and self.is_reconciling:
            self.has_crossed = True
            return True
        return False

    def take_crossed(self) -> bool:
        """Whether the peer, whose session was refused, has to be told our heads now that ours is over; once."""
        crossed, self.has_crossed = self.has_crossed, False
        return crossed


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The steps after a session that was served.

    Attributes:
        result: What it brought us, or how the peer offended in it; None if neither.
        tells: The peer may lack something: it is told our heads.
        reminds: The session was cut short: the peer is told our heads `RESUME_S` after it has heard of that, or `HEARD_S` later at the
            latest, unless it has begun another one by then. The reference resumes by itself in Node. In a browser it does not where
            `WebSocket.OPEN` is undefined in its bundle, as esbuild makes it: it would go on when all are told our heads again, up to five
            minutes later. Told while it syncs, it would begin a second sync beside the first.
    """

    result: SyncResult | None = None
    tells: bool = False
    reminds: bool = False


def after_merkle(server: SyncServer, *, has_moved: bool) -> Aftermath:
    """Conclude from a session by trees; `has_moved`: our log is not what it was when the session began."""
    if server.is_aborted:
        return Aftermath(reminds=True)
    return Aftermath(tells=server.is_short or has_moved)


def after_reconciliation(served: Served, *, is_over: bool) -> Aftermath:
    """Conclude from a reconciliation; `is_over`: it was not cut off. Entries that came before are kept."""
    result = None
    if served.taken or served.rejected:
        result = SyncResult(ending=Ending.COMPLETE, entries=served.taken, rejected=served.rejected, brought=served.brought)
        result.rejected_keys = tuple(served.rejected_keys)
    return Aftermath(result, tells=not is_over or served.has_moved)
