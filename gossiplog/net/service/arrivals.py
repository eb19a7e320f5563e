"""Entries that peers bring, one by one or by a sync: taken in, counted for whoever brought them, and decided upon."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from ...broadcast import Event, Foreseen, Inserted, InsertEntry, PeerKind
from ...entry.message import Entry
from ...entry.validation import Outcome, Rule, Verdict
from ...pubsub.types import PeerId
from ...replica.log import Replica
from .figures import Figures
from .insert_queue import InsertQueue
from .intake import Bringer, Intakes
from .observer import Observer
from .own_appends import OwnAppends
from .peers import Peer
from .strangers import Strangers, note_refusal

__all__ = ["MAY_NOT_PUSH", "Arrivals"]

SLOWED_SYNCED = 10
"""Entries of a sync that count as one of a push for a stranger who is slowed: it is us who asked for them."""
MAY_NOT_PUSH = Verdict(Outcome.IGNORE, Rule.UNWELCOME, "this client may not push")
_COUNTED = {Outcome.ACCEPT: "entries accepted", Outcome.IGNORE: "entries ignored", Outcome.REJECT: "entries rejected"}


class Owner(Protocol):
    """The service that entries arrive at.

    Attributes:
        log: Its log.
        strangers: Whom of its peers has to wait.
        figures: What it has done so far.
        observer: Told of what a sync brought; None where nobody wants to know.
        intakes: Which entries of clients are taken.
    """

    log: Replica
    strangers: Strangers
    figures: Figures
    observer: Observer | None
    intakes: Intakes

    @property
    def peers(self) -> Mapping[PeerId, Peer]:
        """Who is connected."""
        ...

    def tell(self, event: Event) -> None:
        """Hand an event to the broadcast machine."""
        ...

    def count(self, what: str, number: int = 1) -> None:
        """Count something that happened."""
        ...


class Arrivals:
    """Takes in what peers bring.

    Args:
        service: Whose.
        appends: Told what is not ours.

    Attributes:
        queue: Of entries that came one by one.
    """

    def __init__(self, service: Owner, appends: OwnAppends) -> None:
        self._service = service
        self.queue = InsertQueue(service.log, appends, self._refuse, self._admit, self._on_foreseen, self._on_decided)

    def put(self, action: InsertEntry) -> None:
        """Take an entry in; the machine hears what becomes of it."""
        peer = self._service.peers.get(action.source)
        if peer is not None:
            peer.inserting += 1
        self.queue.put(action, None if peer is not None and peer.kind is not PeerKind.CLIENT else action.source)

    async def insert_synced(self, peer: Peer, way: str, entries: Sequence[tuple[bytes, bytes]]) -> list[Verdict]:
        """Insert what a sync with a peer brought, by which way it was. See `InsertQueue.insert_synced`."""
        service = self._service
        if "push" not in peer.rights:
            # A reconciliation goes both ways, whatever a client may.
            for key, _ in entries:
                peer.refusal_box.add(key, MAY_NOT_PUSH)
            return [MAY_NOT_PUSH] * len(entries)
        await service.strangers.wait(peer, 1 + len(entries) // SLOWED_SYNCED)
        admit: Callable[[Verdict], Verdict] | None = None
        if peer.bringer.intake is not None and not peer.bringer.intake.is_open:
            admit = peer.bringer.judge
        verdicts = await self.queue.insert_synced(entries, partial(self._foresee, peer), admit)
        for (key, _), verdict in zip(entries, verdicts, strict=True):
            note_refusal(peer, key, verdict)
            _note_intake(peer, verdict)
            peer.refusal_box.add(key, verdict)
            service.figures.count("sync", verdict)
            if admit is not None:
                peer.bringer.settle(verdict)
        if service.observer is not None:
            service.observer.on_synced(peer.id, way, [key for key, _ in entries], verdicts)
        return verdicts

    def _refuse(self, action: InsertEntry) -> Verdict | None:
        peer = self._service.peers.get(action.source)
        return None if peer is None else self._foresee(peer, action.key, action.value)

    def _foresee(self, peer: Peer, key: bytes, value: bytes) -> Verdict | None:
        """Refuse without verifying it what a client brings that was over a limit with what it brought last."""
        return peer.bringer.foresee(key, value) if peer.is_over else None

    def _admit(self, action: InsertEntry, verdict: Verdict) -> Verdict:
        return self._bringer(action.source).judge(verdict)

    def _bringer(self, source: PeerId) -> Bringer:
        peer = self._service.peers.get(source)
        return self._service.intakes.bringer(source) if peer is None else peer.bringer

    def _on_foreseen(self, action: InsertEntry, entry: Entry) -> None:
        if len(self._service.peers) > 1:
            # Else there is nobody to pass it on to.
            self._service.tell(Foreseen(action.token, entry))

    def _on_decided(self, action: InsertEntry, verdict: Verdict) -> None:
        service = self._service
        service.count("entries known" if verdict.accepted and not verdict.is_new else _COUNTED[verdict.outcome])
        peer = service.peers.get(action.source)
        service.figures.count("gossip" if peer is not None and peer.kind is PeerKind.MESH else "push", verdict)
        self._bringer(action.source).settle(verdict)
        if peer is not None:
            # Of a peer that went and came back, what it sent before may be decided upon now.
            peer.inserting = max(0, peer.inserting - 1)
            peer.settled.set()
            note_refusal(peer, action.key, verdict)
            _note_intake(peer, verdict)
            peer.refusal_box.add(action.key, verdict)
            if verdict.accepted and verdict.is_new:
                peer.count("entries new")
        service.tell(Inserted(action.token, verdict))


def _note_intake(peer: Peer, verdict: Verdict) -> None:
    """Remember of a peer whether what it brings is over a limit."""
    if verdict.rule in (Rule.UNWELCOME, Rule.QUOTA):
        peer.is_over = True
    elif verdict.accepted and verdict.is_new:
        peer.is_over = False
