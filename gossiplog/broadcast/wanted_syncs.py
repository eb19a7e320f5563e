"""Which syncs to start, to merge and to defer, for the keys that peers named and we lack."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeAlias

from ..limits import address_group
from ..log.requests import ReadLeaves, ReadQuarantined
from ..plan import Plan, ask
from ..pubsub.actions import SetTimer
from ..pubsub.types import PeerId, TimerToken
from ..sync.result import Ending, SyncResult
from ..sync.schedule import ACTIVE_MAX, PEERS_MAX, BeginSession, SyncSchedule
from .actions import SpreadingAction, StartSync

SYNC_TIMER = TimerToken("broadcast.sync")

KEYS_MAX = 1_000
"""Keys remembered for one peer, as many as one update holds. A sync for any one of them brings all."""
DEFER_S = 5.0
"""How long a sync waits for another that may bring the same keys: as long as that one waits for one answer."""

Asker: TypeAlias = Callable[[Plan[Any], Callable[[Any], None], PeerId | None], None]
"""Runs a plan on our log, and calls back with the answer unless the peer has left by then."""


def missing(keys: Sequence[bytes]) -> Plan[list[bytes]]:
    """Return the keys that are neither in the log nor in its quarantine. At most two reads."""
    leaves = yield from ask(ReadLeaves(keys))
    absent = [key for key in keys if key not in leaves]
    if not absent:
        return []
    aside = yield from ask(ReadQuarantined(absent))
    return [key for key in absent if key not in aside]


@dataclass(slots=True, eq=False)
class _Need:
    """The keys to fetch from one peer.

    Attributes:
        keys: Keys named since its last sync began that we lack, each with whether the peer itself named it: it may lack the others.
        running: The keys that its running sync is for; None if none runs.
        deferred_until: Until this time the keys may come without a sync with this peer; None while no sync is deferred.
        token: The token of the running session; 0 before it has begun.
    """

    keys: dict[bytes, bool] = field(default_factory=dict)
    running: dict[bytes, bool] | None = None
    deferred_until: float | None = None
    token: int = 0

    def add(self, keys: Iterable[bytes], *, is_named: bool) -> None:
        for key in keys:
            if len(self.keys) >= KEYS_MAX:
                return
            self.keys[key] = is_named or self.keys.get(key, False)

    @property
    def named(self) -> list[bytes]:
        return [key for key, is_named in self.keys.items() if is_named]


class WantedSyncs:
    """Remembers the keys that each peer has and we lack, and starts a sync with the peer unless another sync brings them.

    All neighbours announce a new head within milliseconds. The sync with the first of them starts at once. A peer whose keys are all
    covered by running syncs waits until one of these ends, for at most `DEFER_S`. So a source that withholds or dawdles delays an
    entry, but cannot keep it away. The log is asked which keys are still missing before a sync begins and after it ends. No sync
    begins for keys that have come meanwhile, and a peer is not blamed for announcing them.

    Args:
        emit: Called with each action for the driver: a sync to start, or the timer.

    Attributes:
        now: Seconds; the caller sets it before any call.
        has_changed: The timer may have to be set; the caller then calls `set_timer`, once per turn.

    Source: docs/spec/sync.md, "Reliable causal broadcast".
    """

    def __init__(self, random: Random, log: Asker, emit: Callable[[SpreadingAction], None]) -> None:
        self._schedule = SyncSchedule(random)
        self._ask = log
        self._emit = emit
        self._needs: dict[PeerId, _Need] = {}
        self._groups: dict[PeerId, str] = {}
        self._sessions = 0
        self.now = 0.0
        self._timer: float | None = None
        self.has_changed = False

    def set_timer(self) -> None:
        """Set the timer for the next time at which `on_timer` has something to do. O(peers)."""
        self.has_changed = False
        times = [need.deferred_until for need in self._needs.values() if need.deferred_until is not None]
        if self._schedule.wakes_at is not None:
            times.append(self._schedule.wakes_at)
        at = min(times, default=None)
        if at is not None and at != self._timer:
            self._timer = at
            self._emit(SetTimer(SYNC_TIMER, at))

    def kept(self) -> dict[str, tuple[int, int]]:
        """Return the size and the maximum of each container: running syncs, keys of one peer, and peers in the schedule."""
        needs = self._needs.values()
        return {
            "syncs": (sum(need.running is not None for need in needs), ACTIVE_MAX),
            "keys_per_peer": (max((len(need.keys) for need in needs), default=0), KEYS_MAX),
            "schedule": (len(self._schedule), PEERS_MAX),
        }

    def on_connected(self, peer: PeerId, address: str | None) -> None:
        """Note a peer's IP address: peers of one address share their turns. None: the peer shares with nobody."""
        if address is not None:
            self._groups[peer] = address_group(address)

    def want(self, peer: PeerId, keys: Sequence[bytes]) -> None:
        """Note that a connected peer has these keys, which we lack, and sync with it now or later."""
        need = self._needs.setdefault(peer, _Need())
        need.add(keys, is_named=True)
        if need.running is None and self._is_covered(need.named):
            self._defer(need)
        else:
            need.deferred_until = None
            self._begin(self._schedule.want(peer, self._groups.get(peer), self.now))

    def want_orphaned(self, peers: Iterable[PeerId], keys: Sequence[bytes]) -> None:
        """Ask these peers for keys whose source has left, after `DEFER_S`, unless the keys have come by then. A peer may lack them."""
        for peer in peers if keys else ():
            need = self._needs.setdefault(peer, _Need())
            need.add(keys, is_named=False)
            self._defer(need)

    def _defer(self, need: _Need) -> None:
        if need.deferred_until is None:
            need.deferred_until = self.now + DEFER_S
            self.has_changed = True

    def on_finished(self, peer: PeerId, result: SyncResult, token: int) -> None:
        """Handle the result of a sync, after asking the log which of the sync's keys are still missing."""
        need = self._needs.get(peer)
        if need is None or need.running is None or need.token != token:
            return
        need.token = 0
        running = list(need.running)
        if running:
            self._ask(missing(running), lambda absent: self._conclude(peer, need, result, absent), peer)
        else:
            self._conclude(peer, need, result, [])

    def on_left(self, peer: PeerId) -> list[bytes]:
        """Forget a peer that has left, and end the waits for its sync. Return the keys that it named and we may lack."""
        self._groups.pop(peer, None)
        need = self._needs.pop(peer, None)
        if need is None:
            return []
        self._begin(self._schedule.on_left(peer, self.now))
        self._undefer()
        return [key for keys in (need.running or {}, need.keys) for key, is_named in keys.items() if is_named]

    def on_timer(self) -> None:
        """Start the syncs that are due."""
        self._timer = None
        self._undefer()
        self._begin(self._schedule.begin_due(self.now))

    def _is_covered(self, keys: Iterable[bytes]) -> bool:
        rest = set(keys)
        for need in self._needs.values():
            if need.running:
                rest.difference_update(need.running)
                if not rest:
                    return True
        return False

    def _undefer(self) -> None:
        for peer, need in list(self._needs.items()):
            until = need.deferred_until
            if until is not None and (self.now >= until or (need.named and not self._is_covered(need.named))):
                need.deferred_until = None
                self._begin(self._schedule.want(peer, self._groups.get(peer), self.now))

    def _begin(self, sessions: Iterable[BeginSession]) -> None:
        self.has_changed = True
        for session in sessions:
            peer = PeerId(session.peer)
            need = self._needs[peer]
            need.running, need.keys, need.deferred_until = need.keys, {}, None
            if need.running:
                then = partial(self._begin_unless_done, peer, need, session, need.running)
                self._ask(missing(list(need.running)), then, peer)
            else:
                # The session resumes one that was cut off, or asks again for entries that were set aside an hour ago.
                self._start(peer, need, session)

    def _start(self, peer: PeerId, need: _Need, session: BeginSession) -> None:
        self._sessions += 1
        need.token = self._sessions
        self._emit(StartSync(peer, session.source, need.token, session.first_answer_s))

    def _begin_unless_done(self, peer: PeerId, need: _Need, session: BeginSession, keys: dict[bytes, bool], absent: list[bytes]) -> None:
        if absent:
            need.running = {key: keys[key] for key in absent}
            self._start(peer, need, session)
        else:
            self._conclude(peer, need, SyncResult(ending=Ending.COMPLETE), [])

    def _conclude(self, peer: PeerId, need: _Need, result: SyncResult, absent: list[bytes]) -> None:
        running, need.running = need.running or {}, None
        named = [key for key in absent if running[key]]
        if result.ending is not Ending.COMPLETE:
            need.add(absent, is_named=False)
            need.add(named, is_named=True)
        self._begin(self._schedule.on_ended(peer, result, self.now, is_still_missing=bool(named)))
        self._undefer()
