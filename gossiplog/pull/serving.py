"""The decisions of the side that is pulled from: whose reconciliation goes on if both began one, and what follows a session."""

from __future__ import annotations

from dataclasses import dataclass

from ..reconcile import Served
from ..sync.result import Ending, SyncResult
from ..sync.server import SyncServer

CROSSING = "a session that the other side began is running"
"""Sent on the wire, and recognized by the other side."""
HEARD_S = 60.0
"""Seconds until a client has surely noticed that its session was cut short: it first inserts the entries that it got."""
RESUME_S = 0.5
"""Seconds after that until it has resumed, if it does."""


@dataclass(slots=True)
class Dealings:
    """The sessions between us and one peer, both ways. It lasts as long as the peer is connected.

    If both begin to reconcile at once, the side that dialled goes on, and refuses the other's session with `CROSSING`, as one session moves
    entries both ways. The refused side waits for that session. After it we tell the peer our heads, as the session may have begun before
    some of the entries for which the peer began its own were here.

    Attributes:
        is_reconciling: A reconciliation of ours is running or about to be opened.
        has_crossed: We have refused one that the peer began meanwhile.
        begun: How many sync streams the peer has opened.
    """

    is_reconciling: bool = False
    has_crossed: bool = False
    begun: int = 0

    def is_crossing(self, *, is_outbound: bool) -> bool:
        """Decide whether to refuse a reconciliation that the peer began; `is_outbound`: we dialled."""
        if is_outbound and self.is_reconciling:
            self.has_crossed = True
            return True
        return False

    def take_crossed(self) -> bool:
        """Return, once, whether the peer has to be told our heads after our session, because its own was refused."""
        crossed, self.has_crossed = self.has_crossed, False
        return crossed


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The consequences of a session that we served.

    Attributes:
        result: The entries that it brought us, and the peer's offences; None if neither.
        tells: Tell the peer our heads, as it may lack entries.
        reminds: The session was cut short. Tell the peer our heads `RESUME_S` after it has noticed that, or after `HEARD_S` at the latest,
            unless it has begun another session by then. The reference resumes by itself in Node, but not in a browser if `WebSocket.OPEN`
            is undefined in its bundle, as in those of esbuild: it would go on only when all peers are told our heads again, up to five
            minutes later. If it were told while it syncs, it would begin a second sync beside the first.
    """

    result: SyncResult | None = None
    tells: bool = False
    reminds: bool = False


def after_merkle(server: SyncServer, *, has_moved: bool) -> Aftermath:
    """Return the consequences of a session by trees; `has_moved`: our log has changed since the session began."""
    if server.is_aborted:
        return Aftermath(reminds=True)
    return Aftermath(tells=server.is_short or has_moved)


def after_reconciliation(served: Served, *, is_over: bool) -> Aftermath:
    """Return the consequences of a reconciliation; `is_over`: it was not cut off. Entries that had come are kept in any case."""
    result = None
    if served.taken or served.rejected:
        result = SyncResult(ending=Ending.COMPLETE, entries=served.taken, rejected=served.rejected, brought=served.brought)
        result.rejected_keys = tuple(served.rejected_keys)
    return Aftermath(result, tells=not is_over or served.has_moved)
