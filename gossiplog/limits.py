"""How often something may happen, and how much of it is kept: token buckets, back-offs, and tables whose oldest entry makes room."""

import ipaddress
from collections import OrderedDict
from random import Random
from typing import TypeVar

__all__ = ["Backoff", "TokenBucket", "address_group", "keep_newest"]

K = TypeVar("K")
V = TypeVar("V")

_IPV6_PREFIX = 64
"""What one household or machine has of IPv6 addresses."""


def address_group(address: str) -> str:
    """Name those who share an allowance with an IP address: the address itself, of IPv6 its /64."""
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
    return address


class TokenBucket:
    """An allowance of `rate` a second that saves up to `burst`.

    Args:
        rate: Tokens a second, above 0.
        burst: The most that is saved, at least 1; it is full at the start.
    """

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._at = now

    def take(self, count: int, now: float) -> int:
        """Take as many whole tokens as there are, at most `count`; return how many."""
        self._refill(now)
        taken = min(count, int(self._tokens))
        self._tokens -= taken
        return taken

    def give_back(self, count: int) -> None:
        """Return tokens that were taken and not used."""
        self._tokens = min(self._burst, self._tokens + count)

    def ready_at(self, now: float) -> float:
        """The time from which on `take` finds at least one token."""
        self._refill(now)
        # A little late rather than a rounding error too early, which would wake a driver twice.
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
        """Begin again at the shortest delay, after progress."""
        self._next_s = self._first_s


def keep_newest(values: OrderedDict[K, V], key: K, value: V, size_max: int) -> None:
    """Set a value as the newest; where there are too many then, the oldest is forgotten. O(1)."""
    values[key] = value
    values.move_to_end(key)
    if len(values) > size_max:
        values.popitem(last=False)
