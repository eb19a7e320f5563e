"""Rate limits and bounds: token buckets, back-offs, and tables that drop their oldest entry when full."""

import ipaddress
from collections import OrderedDict
from random import Random
from typing import TypeVar

__all__ = ["Backoff", "TokenBucket", "address_group", "keep_newest"]

K = TypeVar("K")
V = TypeVar("V")

_IPV6_PREFIX = 64
"""The usual size of one household's or machine's share of IPv6 addresses."""


def address_group(address: str) -> str:
    """Return the group of addresses that share an allowance: an IPv4 address itself, or the /64 of an IPv6 address."""
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
    return address


class TokenBucket:
    """An allowance of `rate` tokens a second that accumulates up to `burst`.

    Args:
        rate: Tokens a second, > 0.
        burst: The most tokens that accumulate, ≥ 1; the bucket starts full.
    """

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._at = now

    def take(self, count: int, now: float) -> int:
        """Take up to `count` whole tokens; return how many were taken."""
        self._refill(now)
        taken = min(count, int(self._tokens))
        self._tokens -= taken
        return taken

    def give_back(self, count: int) -> None:
        """Return tokens that were taken and not used."""
        self._tokens = min(self._burst, self._tokens + count)

    def ready_at(self, now: float) -> float:
        """Return the time from which `take` gets at least one token."""
        self._refill(now)
        # Slightly late, so that rounding cannot make it too early, which would wake the driver twice.
        return now if self._tokens >= 1 else now + (1 - self._tokens) / self._rate + 1e-6

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
            self._at = now


class Backoff:
    """Delays that double from `first_s` to `most_s` until `reset`, each lengthened by up to a quarter at random.

    Source: docs/spec/sync.md, "The sync session": 1 to 300 s. The jitter keeps replicas that failed together from returning together.
    """

    def __init__(self, random: Random, *, first_s: float = 1.0, most_s: float = 300.0) -> None:
        self._random = random
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s

    @property
    def first_s(self) -> float:
        """The shortest delay, without jitter."""
        return self._first_s

    @property
    def most_s(self) -> float:
        """The longest delay."""
        return self._most_s

    def next(self) -> float:
        """Return the delay before the next attempt, in seconds, and double the one after it."""
        delay = self._next_s
        self._next_s = min(self._most_s, delay * 2)
        return min(self._most_s, delay * (1 + self._random.random() / 4))

    def reset(self) -> None:
        """Return to the shortest delay, after progress."""
        self._next_s = self._first_s


def keep_newest(values: OrderedDict[K, V], key: K, value: V, size_max: int) -> None:
    """Set a value as the newest; if there are then more than `size_max`, drop the oldest. O(1)."""
    values[key] = value
    values.move_to_end(key)
    if len(values) > size_max:
        values.popitem(last=False)
