"""Invariants of the quotas that simulated hubs set for their clients, recomputed from the verdicts.

Source: docs/operations.md, "Access"; `gossiplog/broadcast/allowance.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...broadcast.allowance import Quota
from ...broadcast.events import PeerKind
from ...entry.message import Entry
from ...entry.validation import Rule, Verdict
from ...pubsub.types import PeerId
from .checker import Checker, Run
from .replica import SimReplica, address_of

MINUTE_S = 60.0
DECIDED_S = 5.0
"""An entry that was let in is decided within this time. It is charged meanwhile."""
ROUNDING = 0.01


class _Charge(NamedTuple):
    """An amount taken from a limit at a time."""

    at_s: float
    amount: int


@dataclass(slots=True)
class _Meter:
    """The amounts that one writer or one address has brought under a limit.

    Attributes:
        most: The most that it may bring per minute.
        stored: Charges for entries that were new and were stored.
        tried: Charges for entries that were let in but not stored; they count until that is known.
    """

    most: int
    stored: list[_Charge]
    tried: list[_Charge]

    def level(self, now: float) -> float:
        """Return the amount left at a time, after everything stored up to then; negative if that was too much."""
        level, at_s = float(self.most), 0.0
        for charge in self.stored:
            if charge.at_s > now:
                break
            level = min(self.most, level + (charge.at_s - at_s) * self.most / MINUTE_S) - charge.amount
            at_s = charge.at_s
        return min(self.most, level + (now - at_s) * self.most / MINUTE_S)

    def least(self, now: float) -> float:
        """Return the least amount that can have been left when an entry decided now was judged; entries under way were charged too."""
        since = now - DECIDED_S
        under_way = sum(charge.amount for charge in (*self.stored, *self.tried) if since < charge.at_s <= now + DECIDED_S)
        return self.level(since) - under_way


class _Refusal(NamedTuple):
    """An entry refused at a time because of one of these limits: its meter, and the amount that the entry takes."""

    at_s: float
    entry: Entry
    limits: list[tuple[_Meter, int]]


class QuotaInvariants(Checker):
    """Computes the amounts that the clients of a hub with quotas have brought since it started, when all limits were fresh.

    Attributes:
        clients: All since the start: an entry may be decided after the client that brought it has left.
    """

    def __init__(self, replica: SimReplica, run: Run) -> None:
        super().__init__(replica, run)
        self.meters: dict[tuple[str, str], _Meter] = {}
        self.refusals: list[_Refusal] = []
        self.clients: set[PeerId] = set()

    def on_connected(self, peer: PeerId) -> None:
        """The peer may be a client."""
        if self.replica.wires[peer].kind_for(self.replica) is PeerKind.CLIENT:
            self.clients.add(peer)

    def on_verdict(self, source: PeerId, verdict: Verdict) -> None:
        """See `on_let_in`."""
        self.on_let_in(source, [verdict])

    def on_let_in(self, peer: PeerId, verdicts: Sequence[Verdict]) -> None:
        """Charge a client for its entries."""
        if self.replica.spec.quota is None or peer not in self.clients:
            return
        now = self.replica.local_now() - self.replica.spec.offset_s
        for verdict in verdicts:
            if verdict.entry is None or verdict.rule == Rule.KEY:
                continue
            limits = list(self._limits(self.replica.spec.quota, peer, verdict.entry))
            if verdict.rule == Rule.QUOTA:
                self.refusals.append(_Refusal(now, verdict.entry, limits))
                continue
            is_stored = verdict.accepted and verdict.is_new
            for meter, amount in limits:
                (meter.stored if is_stored else meter.tried).append(_Charge(now, amount))
                slack = amount + DECIDED_S * meter.most / MINUTE_S
                if is_stored and (level := meter.level(now)) < -slack:
                    self.fail("clients bring no more than they may", f"{peer} has brought {-level:.0f} more than {meter.most} a minute")

    def _limits(self, quota: Quota, peer: PeerId, entry: Entry) -> Iterator[tuple[_Meter, int]]:
        for kind, name, amount, most in (
            ("entries", entry.author, 1, quota.entries_per_minute),
            ("bytes", entry.author, len(entry.value), quota.bytes_per_minute),
            ("address", address_of(peer), 1, quota.address_entries_per_minute),
        ):
            if most is not None:
                yield self.meters.setdefault((kind, name), _Meter(most, [], [])), min(amount, most)

    def sample(self) -> None:
        """Check refusals of a while ago, and the totals."""
        waiting = []
        now = self.replica.local_now() - self.replica.spec.offset_s
        for refusal in self.refusals:
            if now <= refusal.at_s + DECIDED_S:
                waiting.append(refusal)
            elif all(meter.least(refusal.at_s) > amount + ROUNDING for meter, amount in refusal.limits):
                self.fail("entries within a quota are let in", f"{refusal.entry.id} was refused at {refusal.at_s:.3f} s")
        self.refusals = waiting
        if self.replica.allowance is not None and self.replica.is_idle:
            counts = Counter(Entry.stored(value).author for value in self.replica.state.values)
            totals = {did: total[0] for did, total in self.replica.allowance.totals.items()}
            if totals != counts:
                wrong = sorted(did for did in totals.keys() | counts.keys() if totals.get(did) != counts.get(did))
                detail = f"of {wrong[0]} {totals.get(wrong[0], 0)} entries are counted, and {counts[wrong[0]]} are stored"
                self.fail("stored entries are counted", detail)
