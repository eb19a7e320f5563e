"""Fair turns between the logs of a process: a flooded log must not make the entries of others wait.

**Theory of operation.** All logs share the event loop, the interpreter's lock and the disk. Small pieces of work cost more than large ones,
so work is cut only if another log gains by it. While no awake log has had only a few entries lately, batches are as large as they come, and
one is verified while another is inserted. As soon as there is such a log beside another one, there are two kinds of work:

- *Light*: a few entries of a log that has had few lately. It begins at once, whatever else is at work.
- *Heavy*: everything else. It is cut into small pieces, of which one at a time is at work among all logs, in turn. A piece begins when
  nothing light is at work. If light work came lately, the next piece begins after a rest as long as the piece took.

So a light entry waits for at most one small piece, and half of them wait for none. At most `PART` entries of that piece are verified before
it waits for any other work. A peer that brings heavy work is not read from meanwhile, as always when many of its entries are under way.

The more peers are told of a log's entries, the smaller its pieces. A log whose piece takes too long, because its disk does, keeps the
others waiting for `PATIENCE_S` and no longer.

**Invariants.**
1. Among the logs whose work waits, each has its turn before any of them has another.
2. A log is at work from `begin` or its turn until `end`. At most one log has a turn, unless `PATIENCE_S` ran out.
3. A log that is awake alone never waits, nor do logs that all have heavy work.

Source: docs/spec/limits.md, "several logs"
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from ..limits import TokenBucket

AWAKE_S = 5.0
"""A log is awake until nothing has come to it for this long."""
PIECE = 128
"""The piece of a heavy log with few peers: this many entries, or 512 KiB. Syncing two logs of 20,000 entries, while a third one had ten
a second, took 1.2 times the CPU with pieces of 128, 2.5 times with pieces of 64, and 5 times with pieces of 16."""
PART = 16
"""Entries of a piece that are verified in one go, which takes some 2 ms. The hop into a thread for each go costs a tenth of that."""
LIGHT = 4
"""The most entries that count as light work."""
LIGHT_PER_S, LIGHT_BURST = 100, 50
"""The work of a log that has had more entries than this lately is heavy."""
PATIENCE_S = 0.05
"""The longest wait for other work, and the longest rest, in seconds."""
_PEERS = 16
"""Telling this many peers of an entry takes as long as storing it."""


@dataclass(slots=True)
class _Awake:
    """A log that is awake.

    Attributes:
        seen_at: When work last came.
        spare: The entries that it may still have before its work is heavy.
        is_at_work: Entries of it are being verified or inserted.
        waits_since: When its work began to wait; None if none waits.
        turn_began: When its piece at work began; None if there is none.
        heavy_at: When heavy work last came.
    """

    seen_at: float
    spare: TokenBucket
    is_at_work: bool = False
    waits_since: float | None = None
    turn_began: float | None = None
    heavy_at: float = -AWAKE_S


class LogTurns:
    """Decides whose work is next; see the module's docstring. Raises nothing, and knows only the time that it is given."""

    def __init__(self) -> None:
        # In the order in which work last came.
        self._awake: OrderedDict[Hashable, _Awake] = OrderedDict()
        # How many logs are at work.
        self._at_work = 0
        # When heavy work last came while several logs were awake.
        self._heavy_at = -AWAKE_S
        # When work last came for a log that has had only light work for a while.
        self._light_at = -AWAKE_S
        # No piece begins before this time.
        self._rests_until = 0.0
        # Logs whose work waits, the next one first.
        self._waiting: OrderedDict[Hashable, _Awake] = OrderedDict()

    def is_contended(self, now: float) -> bool:
        """Return whether one log had heavy work lately while another had light work."""
        return len(self._awake) > 1 and now < self._heavy_at + AWAKE_S and self._has_light(now)

    def piece_of(self, log: Hashable, peers: int, now: float) -> int | None:
        """Return the most entries that a batch of a log may have; None for no limit, as no other log would gain by one."""
        if len(self._awake) <= (log in self._awake) or not self._has_light(now):
            return None
        return max(1, PIECE * _PEERS // (_PEERS + peers))

    def is_alone(self, log: Hashable) -> bool:
        """Return whether no other log is at work."""
        awake = self._awake.get(log)
        return self._at_work <= (awake is not None and awake.is_at_work)

    def begin(self, log: Hashable, entries: int, peers: int, now: float) -> bool:
        """Report work, and return whether it begins; if so, call `end` once the log is no longer at work. Else it waits for `next`."""
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
        """Let an awake log wait for its next turn."""
        awake = self._awake[log]
        if awake.waits_since is None:
            awake.waits_since = now
            self._waiting[log] = awake

    def look_at(self, now: float) -> float:
        """Return when to call `next` again, at the latest."""
        return self._rests_until if now < self._rests_until else now + PATIENCE_S

    def end(self, log: Hashable, now: float) -> None:
        """Note that a log is no longer at work. No effect if it was not."""
        awake = self._awake.get(log)
        if awake is not None and awake.is_at_work:
            awake.is_at_work = False
            self._at_work -= 1
            if awake.turn_began is not None and self._has_light(now):
                self._rests_until = now + min(PATIENCE_S, now - awake.turn_began)
            awake.turn_began = None

    def next(self, now: float) -> Hashable | None:
        """Return the log that has its turn now, for all of its waiting work up to a piece; None if no log has. It is then at work."""
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
        """Forget a log that is no longer served."""
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
