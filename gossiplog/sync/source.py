"""What earlier sessions with a source have taught us: how much to ask for at once, and which keys it fails on."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from ..limits import keep_newest
from ..tree.node import Node
from .rpc import KEYS_MAX

RESPONSE_BYTES: Final = 2**18
"""The size aimed at for an answer to getValues, which takes as much memory on both sides. The protocol's limit is sixteen times as much,
which leaves room for bad guesses."""
RESPONSE_BYTES_MIN: Final = 16 * 1024
RETRY_S: Final = 3600.0
"""Seconds for which a key is set aside that the source served with an invalid value, and at most for one that it could not serve."""
RETRY_FIRST_S: Final = 60.0
"""Seconds for which a key that it could not serve is set aside at first, doubled each time. A line that breaks twice at the same place
looks the same, and the key's descendants are missing meanwhile. The specification has an hour at once; this is a deviation.
"""
UNSKETCHED_FIRST_S: Final = 60.0
"""Seconds for which a peer is synced with only by merkle sync after a reconciliation failed, doubled each time."""
ASIDE_MAX: Final = 10_000
"""Keys set aside at a time. Beyond that, the one that was set aside first is forgotten."""
EXPANSIONS_MAX: Final = 256
"""The most unanswered getChildren, to a source that has not failed."""
PROBE_KEYS: Final = 60
"""Keys in a request before any value was seen: with values of 64 KiB, our default limit, the answer still fits a frame."""
_VALUE_BYTES_MIN: Final = 64
_LONE_FAILURES_MAX: Final = 2


class _Aside(NamedTuple):
    """When a key that is set aside may be asked for again, and for how many seconds it was set aside in all."""

    until: float
    wait_s: float


class Source:
    """The memory of one peer that outlives a session. It is kept while the peer is known, and given to each `SyncClient`.

    A server that cannot answer a getValues can only end the stream, so a bad key is found over several sessions. The keys of the failed
    request become suspects, and the next session asks for half of them at a time and for nothing else meanwhile, and so on until one key
    is alone. If that key fails twice, it is set aside for a while. That takes at most 2 + log2(1024) streams per bad key.

    Attributes:
        response_bytes: The current size aimed at for answers; halved by time-outs (a slow line), doubled by complete sessions.
        value_bytes: The mean size of recent values, in bytes; None before the first.
        resume_after: A stream of all of the source's entries, in key order, broke off after this key; None if none did. See `reconcile`.
        is_careful: getValues must not be pipelined, so that it is clear which of them failed.
        expansions_max: The most unanswered getChildren. Looking far ahead delays a session's first entry, so a session that the server
            cuts off before any entry came makes the next one look less far ahead.
    """

    def __init__(self) -> None:
        self.response_bytes = RESPONSE_BYTES
        self.value_bytes: float | None = None
        self.expansions_max = EXPANSIONS_MAX
        self._suspects: frozenset[bytes] = frozenset()
        self._lone_failures = 0
        self.is_careful = False
        self._aside: OrderedDict[bytes, _Aside] = OrderedDict()
        # Keys that the peer refused, and when each may be offered again.
        self._refused: OrderedDict[bytes, float] = OrderedDict()
        self.resume_after: bytes | None = None
        self._unsketched_until = 0.0
        self._unsketched_s = UNSKETCHED_FIRST_S

    def is_aside(self, key: bytes, now: float) -> bool:
        """Return whether the key is set aside."""
        aside = self._aside.get(key)
        return aside is not None and now < aside.until

    def retry_at(self) -> float | None:
        """Return when the first of the keys set aside should be asked for again; None if there is none. O(keys set aside)."""
        return min((aside.until for aside in self._aside.values()), default=None)

    def set_aside(self, key: bytes, now: float, wait_s: float = RETRY_S) -> None:
        """Do not ask for a key for a while."""
        keep_newest(self._aside, key, _Aside(now + wait_s, wait_s), ASIDE_MAX)

    @property
    def keys_held(self) -> int:
        """Return how many keys are remembered, set aside or refused."""
        return len(self._aside) + len(self._refused)

    def forget_keys(self) -> None:
        """Forget which keys are set aside, and which were refused."""
        self._aside.clear()
        self._refused.clear()

    def may_reconcile(self, now: float) -> bool:
        """Return whether reconciliation is worth trying with the peer."""
        return now >= self._unsketched_until

    def on_fallback(self, now: float) -> None:
        """Note that a reconciliation failed."""
        self._unsketched_until = now + self._unsketched_s
        self._unsketched_s = min(RETRY_S, 2 * self._unsketched_s)

    def on_reconciled(self) -> None:
        """Note that a reconciliation succeeded."""
        self._unsketched_s = UNSKETCHED_FIRST_S

    def is_refused(self, key: bytes, now: float) -> bool:
        """Return whether the peer left out this entry, which we gave it, less than an hour ago."""
        return now < self._refused.get(key, 0.0)

    def set_refused(self, key: bytes, now: float) -> None:
        """Note that the peer left an entry out."""
        keep_newest(self._refused, key, now + RETRY_S, ASIDE_MAX)

    def request_size(self, leaves: Sequence[Node]) -> int:
        """Return how many of these leaves, from the first on, the next getValues should ask for; at least 1. O(answer)."""
        if self.value_bytes is None:
            most = PROBE_KEYS
        else:
            most = int(self.response_bytes / max(self.value_bytes, _VALUE_BYTES_MIN))
        most = max(1, min(most, KEYS_MAX, len(leaves)))
        if not self._suspects:
            return most
        is_suspect = leaves[0].key in self._suspects
        if is_suspect:
            most = min(most, max(1, len(self._suspects) // 2))
        # A request has only suspects or none, so a failure leaves fewer of them.
        for count in range(1, most):
            if (leaves[count].key in self._suspects) != is_suspect:
                return count
        return most

    def on_values(self, count: int, size: int) -> None:
        """Learn from an answer of `count` values with `size` bytes in all; O(1)."""
        if not count:
            return
        mean = size / count
        if self.value_bytes is None:
            self.value_bytes = mean
        else:
            # Up at once, down slowly: asking for too little costs less than failing.
            self.value_bytes = mean if mean > self.value_bytes else 0.75 * self.value_bytes + 0.25 * mean

    def on_failure(self, keys: Sequence[bytes], now: float, *, timed_out: bool, has_values: bool = False) -> bool:
        """Learn that a stream ended instead of the answer to a getValues.

        Args:
            timed_out: It ended because no answer came in time.
            has_values: Others were answered before, so the line is as likely to blame as the keys. The keys become suspects only if they
                are the first to fail in the next session as well.

        Returns:
            Whether the suspects changed or a key was set aside, so that the next session differs from this one.
        """
        if timed_out:
            self.response_bytes = max(RESPONSE_BYTES_MIN, self.response_bytes // 2)
        self.is_careful = True
        if has_values and not self._suspects.issuperset(keys):
            self._suspects, self._lone_failures = frozenset(), 0
            return True
        known, self._suspects = self._suspects, frozenset(keys)
        if len(keys) > 1:
            self._lone_failures = 0
            return self._suspects != known
        self._lone_failures = self._lone_failures + 1 if self._suspects == known else 1
        if self._lone_failures < _LONE_FAILURES_MAX:
            return True
        before = self._aside.get(keys[0])
        self.set_aside(keys[0], now, RETRY_FIRST_S if before is None else min(RETRY_S, 2 * before.wait_s))
        self._suspects, self._lone_failures = frozenset(), 0
        return True

    def on_cut_off(self, *, has_entries: bool) -> bool:
        """Learn that the source ended a session early. Return whether the next one will look less far ahead."""
        before = self.expansions_max
        self.expansions_max = min(EXPANSIONS_MAX, before * 2) if has_entries else max(1, before // 8)
        return self.expansions_max < before

    def on_complete(self, started_at: float) -> None:
        """Learn that a session that began at this time is complete: it has asked again for keys whose time had come by then."""
        for key in [key for key, aside in self._aside.items() if aside.until <= started_at]:
            del self._aside[key]
        self._suspects, self._lone_failures, self.is_careful = frozenset(), 0, False
        self.response_bytes = min(RESPONSE_BYTES, self.response_bytes * 2)
        self.expansions_max = min(EXPANSIONS_MAX, self.expansions_max * 2)
