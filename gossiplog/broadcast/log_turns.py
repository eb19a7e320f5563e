"""Fair turns between the logs of a process: one that is flooded must not make the others' entries wait.

**Theory of operation.** All logs share the event loop, the interpreter's lock and the disk. Small pieces of work cost more than large ones,
so they have to be of use to somebody. While no log is awake that has had only a few entries lately, batches are as large as they come, and
one is verified while another is inserted. As soon as there is such a log beside another one, work is split in two kinds:

- *Light*: a few entries of a log that has had few lately. It begins at once, whatever else is at work.
- *Heavy*: everything else. It is cut into small pieces, one at a time of all logs, in turn; a piece begins when nothing light is at work,
  and the next one after a rest that is as long as the piece took, if anything light came lately.

So a light entry waits for one small piece at most, and half of them wait for none. No more than `PART` entries of that piece are verified
before it waits for whatever else is at work. A peer that brings heavy work is not read from meanwhile, as always when many of its entries
are under way.

A piece counts for more where more peers are told of it. A log whose piece takes too long, because its disk does, keeps the others waiting
for `PATIENCE_S` and no longer.

**Invariants.**
1. Of the logs whose work waits, each has its turn before any of them has another.
2. A log is at work from `begin` or from its turn to `end`; at most one has a turn, but for those that were out of patience.
3. A log that is awake alone never waits, nor do logs that all have much.

Source: docs/spec/limits.md, "several logs"
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from ..limits import TokenBucket

AWAKE_S = 5.0
"""A log to which nothing has come for so long leaves the whole machine to the others."""
PIECE = 128
"""What a heavy log gets in a turn: so many entries of a log with few peers, or 512 KiB. To sync two logs of 20,000 entries, while a third
had ten a second, cost 1.2 times the CPU by pieces of 128, 2.5 times by pieces of 64 and 5 times by pieces of 16."""
PART = 16
"""How many entries of a piece are verified in one go, which takes some 2 ms. A hop into a thread for each costs a tenth of that."""
LIGHT = 4
"""The most that begins at once."""
LIGHT_PER_S, LIGHT_BURST = 100, 50
"""A log that has had more than this lately is a heavy one."""
PATIENCE_S = 0.05
"""The longest that anything waits for what is at work, and the longest rest."""
_PEERS = 16
"""To tell so many peers of an entry takes as long as to take it in."""


@dataclass(slots=True)
class _Awake:
    """A log that is awake.

    Attributes:
        seen_at: When work came last.
        spare: The seconds that the log may still use before it counts as heavy.
        is_at_work: Something of it is being verified or inserted.
        waits_since: When its work began to wait; None if none waits.
        turn_began: When the piece began that is at work; None if there is none.
        heavy_at: When heavy work came last.
    """

    seen_at: float
    spare: TokenBucket
    is_at_work: bool = False
    waits_since: float | None = None
    turn_began: float | None = None
    heavy_at: float = -AWAKE_S


class LogTurns:
    """Whose work is next; see the module's docstring. Raises nothing, and knows only the time that it is told."""

    def __init__(self) -> None:
        # In the order of their last work.
        self._awake: OrderedDict[Hashable, _Awake] = OrderedDict()
        # How many are at work.
        self._at_work = 0
        # When heavy work came last while several logs were awake.
        self._heavy_at = -AWAKE_S
        # When work came last for a log that has had only light work for a while.
        self._light_at = -AWAKE_S
        # Until when no piece begins.
        self._rests_until = 0.0
        # Whose work waits, the next one first.
        self._waiting: OrderedDict[Hashable, _Awake] = OrderedDict()

    def is_contended(self, now: float) -> bool:
        """Whether a log has had heavy work lately while another had light work."""
        return len(self._awake) > 1 and now < self._heavy_at + AWAKE_S and self._has_light(now)

    def piece_of(self, log: Hashable, peers: int, now: float) -> int | None:
        """How many entries a batch of a log may have; None for as many as there are, as no other log would be the better for less."""
        if len(self._awake) <= (log in self._awake) or not self._has_light(now):
            return None
        return max(1, PIECE * _PEERS // (_PEERS + peers))

    def is_alone(self, log: Hashable) -> bool:
        """Whether nothing of any other log is at work."""
        awake = self._awake.get(log)
        return self._at_work <= (awake is not None and awake.is_at_work)

    def begin(self, log: Hashable, entries: int, peers: int, now: float) -> bool:
        """Bring work: it begins, and `end` is called when nothing of the log is at work any more; or it waits for `next`."""
        awake = self._awake.get(log)
        if awake is not None and len(self._awake) == 1 and awake.waits_since is None:
            awake.seen_at = now
            self._start(awake)
            return True
        awake = self._note(log, now)
        cost = entries + entries * peers // _PEERS
        is_light = awake.spare.take(cost, now) == cost and entries <= LIGHT
        if not is_light:
            awake.heavy_at = now
            if len(self._awake) > 1:
                self._heavy_at = now
        elif now >= awake.heavy_at + AWAKE_S:
            self._light_at = now
        is_free = is_light or not self._has_light(now) or not (self._at_work or self._waiting or now < self._rests_until)
        if awake.waits_since is None and is_free:
            self._start(awake)
            if not is_light:
                awake.turn_began = now
            return True
        self.wait(log, now)
        return False

    def wait(self, log: Hashable, now: float) -> None:
        """Have a log that is awake wait for its next turn."""
        awake = self._awake[log]
        if awake.waits_since is None:
            awake.waits_since = now
            self._waiting[log] = awake

    def look_at(self, now: float) -> float:
        """Return when to ask for the next one again, at the latest."""
        return self._rests_until if now < self._rests_until else now + PATIENCE_S

    def end(self, log: Hashable, now: float) -> None:
        """Nothing of a log is at work any more. Of no effect if nothing was."""
        awake = self._awake.get(log)
        if awake is not None and awake.is_at_work:
            awake.is_at_work = False
            self._at_work -= 1
            if awake.turn_began is not None and self._has_light(now):
                self._rests_until = now + min(PATIENCE_S, now - awake.turn_began)
            awake.turn_began = None

    def next(self, now: float) -> Hashable | None:
        """Return a log whose work has its turn now, if one has; all that waits of it does, up to a piece. It is at work."""
        if not self._waiting:
            return None
        log, awake = next(iter(self._waiting.items()))
        assert awake.waits_since is not None
        if now < self._rests_until or (self._at_work and now < awake.waits_since + PATIENCE_S):
            return None
        del self._waiting[log]
        awake.waits_since = None
        awake.turn_began = now
        self._start(awake)
        return log

    def forget(self, log: Hashable) -> None:
        """A log is not served any more."""
        awake = self._awake.pop(log, None)
        self._at_work -= awake is not None and awake.is_at_work
        self._waiting.pop(log, None)

    def _has_light(self, now: float) -> bool:
        return now < self._light_at + AWAKE_S

    def _start(self, awake: _Awake) -> None:
        if not awake.is_at_work:
            awake.is_at_work = True
            self._at_work += 1

    def _note(self, log: Hashable, now: float) -> _Awake:
        awake = self._awake.get(log)
        if awake is None:
            awake = self._awake[log] = _Awake(now, TokenBucket(LIGHT_PER_S, LIGHT_BURST, now))
        awake.seen_at = now
        self._awake.move_to_end(log)
        while True:
            oldest = next(iter(self._awake))
            first = self._awake[oldest]
            if first.seen_at + AWAKE_S >= now or first.is_at_work or first.waits_since is not None:
                return awake
            del self._awake[oldest]
