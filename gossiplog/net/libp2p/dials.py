"""Limits on the addresses that other peers can make us dial, so that nobody uses us to attack a third party.

Every place (host and port), every IP address and every peer that tells of addresses has a limit. An address from our operator has no
teller and no limit.

Source: docs/spec/limits.md, "connections and streams".
"""

from __future__ import annotations

import socket
from collections import OrderedDict
from random import Random

import trio

from ...errors import CannotConnect
from ...limits import Backoff, TokenBucket, address_group, keep_newest
from ..transport.tcp import looking_up
from .addresses import Address, reach_of

_SIZE_MAX = 4_096
_HOST_RATE, _HOST_BURST = 0.1, 8
"""Failed dials to one IP address, per second and at once. Loopback is exempt: no third party is there, and tests run many peers on it."""
_TELLER_RATE, _TELLER_BURST = 0.2, 16
"""Failed dials that one teller may cause, per second and at once."""


class DialGuard:
    """Counts the failed dials that other peers caused."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._places: OrderedDict[tuple[str, int], tuple[Backoff, float]] = OrderedDict()
        self._hosts: OrderedDict[str, TokenBucket] = OrderedDict()
        self._tellers: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        """Return the size of the fullest container."""
        return max(len(self._places), len(self._hosts), len(self._tellers))

    def begin(self, address: Address, now: float) -> None:
        """Count a dial as failed, until `reached` takes that back.

        Raises:
            CannotConnect: The place, its IP address or its teller has reached its limit.
        """
        teller, place = address.teller, (address.host, address.port)
        if teller is None:
            return
        backoff, until = self._places.get(place, (Backoff(self._rng), now))
        if now < until:
            raise CannotConnect("a dial to it failed a while ago")
        buckets = [_bucket(self._tellers, teller.name, _TELLER_RATE, _TELLER_BURST, now)]
        if not address.is_loopback:
            buckets.append(_bucket(self._hosts, _group(address), _HOST_RATE, _HOST_BURST, now))
        for number, bucket in enumerate(buckets):
            if not bucket.take(1, now):
                for taken in buckets[:number]:
                    taken.give_back(1)
                raise CannotConnect("too many dials to this address, or to those that this peer told us, failed")
        keep_newest(self._places, place, (backoff, now + backoff.next()), _SIZE_MAX)

    def reached(self, address: Address) -> None:
        """Note that a dial led to the expected peer."""
        self._places.pop((address.host, address.port), None)
        if address.teller is not None:
            for bucket in (self._tellers.get(address.teller.name), self._hosts.get(_group(address))):
                if bucket is not None:
                    bucket.give_back(1)


async def check_reach(address: Address) -> None:
    """Look up a name that a peer told us, and check that it does not lead into a network that the peer cannot reach itself.

    Raises:
        CannotConnect: It does.
        OSError: The name is unknown.
    """
    if address.teller is None or address.family in ("ip4", "ip6"):
        await trio.lowlevel.checkpoint()
        return
    with looking_up(address.host):
        found = await trio.socket.getaddrinfo(address.host, address.port, 0, socket.SOCK_STREAM)
    for *_, (host, *_) in found:
        if reach_of(str(host).partition("%")[0]) < address.teller.reach:
            raise CannotConnect(f"it leads to {host}, which the peer that told of it cannot reach")


def _group(address: Address) -> str:
    return address_group(address.host) if address.family in ("ip4", "ip6") else address.host


def _bucket(buckets: OrderedDict[str, TokenBucket], name: str, rate: float, burst: float, now: float) -> TokenBucket:
    bucket = buckets.get(name) or TokenBucket(rate, burst, now)
    keep_newest(buckets, name, bucket, _SIZE_MAX)
    return bucket
