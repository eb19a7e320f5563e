"""Admission of connections: how many at once per address, how many that are still in the handshake, from which web pages, and how slowly
clients that may be hostile.
"""

from __future__ import annotations

import ipaddress
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum

import trio

from ...limits import TokenBucket, address_group, keep_newest
from ...pubsub.types import PeerId
from .access import Access

ANY_ORIGIN = "*"
LOOPBACK = "127.0.0.1"
_BANNED_MAX = 4_096
_DELIVERED_MAX = 4_096
_LEAVING_MAX = 64
"""Connections that lost their place and are still closing: each still costs a socket."""
IDLE_S = 10.0
"""How long a connection keeps its place before it has to have been of use."""
_FURTHER_LOGS = 8
"""Further logs that an address may use, in all, for each connection that it may have. The first log of a connection is not counted."""


@dataclass(frozen=True, slots=True)
class HubLimits:
    """What a listener lets in.

    Attributes:
        connections_per_address: Open at a time; an IPv6 /64 counts as one address. Loopback and `proxies` are exempt. An address may also
            use eight times as many logs beside the first of each connection.
        connections_max: Open at a time, in all.
        half_open_max: Connections in the handshake; one more takes the place of the oldest.
        handshake_s: Seconds for the handshake, TLS included.
        head_bytes_max: Bytes of a request before its body.
        proxies: Addresses of proxies, whose `X-Forwarded-For` names the client.
        origins: Web pages that may connect and read, as browsers name them in `Origin`; `*` for all. None: only our own pages read
            answers of plain HTTP; all pages may open WebSockets, but on loopback only those of this machine (`http_names.py`). Programs
            other than browsers send no `Origin` and are let in.
        hosts: Names under which plain HTTP is answered, beside addresses, `localhost` and the origins' names; `*` for any.
        creatable: Patterns of the topics that clients with the right `create` may create on a shelf.
        creations_per_minute: Logs that one did or one token may create.
        shelf_bytes_max: Bytes of all logs of a shelf. Above it no log is created and no client's entry is accepted.

    Source: docs/spec/limits.md, "connections and streams" and "WebSocket".
    """

    connections_per_address: int = 8
    connections_max: int = 10_000
    half_open_max: int = 64
    handshake_s: float = 5.0
    head_bytes_max: int = 16 * 1024
    proxies: frozenset[str] = field(default_factory=frozenset)
    origins: frozenset[str] | None = None
    hosts: frozenset[str] = field(default_factory=frozenset)
    access: Access = field(default_factory=Access)
    creatable: tuple[str, ...] = ()
    creations_per_minute: int = 60
    shelf_bytes_max: int | None = None

    def names_origin(self, origin: str) -> bool:
        """Whether pages from there are among those that may connect and read."""
        return self.origins is not None and (origin in self.origins or ANY_ORIGIN in self.origins)


class Refused(Exception):
    """A connection is one too many, its address is banned, or the log that it asks for cannot be used. The message is for the peer.

    Attributes:
        is_repeated: This address was refused before during its present ban.
    """

    is_repeated = False

    def __init__(self, reason: str, *, status: int = 503) -> None:
        super().__init__(reason)
        self.status = status


class NotLetIn(Refused):
    """A client lacks the right to connect, or its token is not known."""


class Worth(IntEnum):
    """How useful a connection was so far."""

    NOTHING = 0
    """Nothing useful came from it."""
    TALKS = 1
    """It announced heads or asked for entries."""
    DELIVERED = 2
    """It brought new entries."""


@dataclass(eq=False, slots=True)
class Place:
    """One connection's place among those allowed.

    Attributes:
        group: The address group that it counts for; None for exempt addresses.
        since: `trio.current_time` of its beginning.
        scope: Cancelled when another connection gets the place.
    """

    group: str | None
    since: float
    scope: trio.CancelScope
    worth: Callable[[], Worth] = lambda: Worth.TALKS


class Admission:
    """Counts connections, keeps bans, and gives the places of idle connections to newcomers when none are left.

    A connection that was of no use for 10 s gives way to any newcomer, first those of the address with the most places. One that merely
    talks gives way to an address with at least two places fewer, and to one that delivered entries before. One that delivered entries
    keeps its place.

    Attributes:
        forgeries: Counts forged posts by address, over all logs.
    """

    def __init__(self, limits: HubLimits) -> None:
        self.limits = limits
        self.forgeries = Forgeries(self.is_exempt)
        self._places: dict[Place, None] = {}
        self._leaving = 0
        self._delivered: OrderedDict[str, None] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self._further: Counter[str] = Counter()
        self._half_open: OrderedDict[trio.CancelScope, None] = OrderedDict()
        # Until when an address is banned, and whether it was refused since.
        self._banned: OrderedDict[str, tuple[float, bool]] = OrderedDict()

    @property
    def open(self) -> int:
        """Connections at this moment."""
        return len(self._places)

    @property
    def half_open(self) -> int:
        """Connections in the handshake."""
        return len(self._half_open)

    def is_exempt(self, address: str) -> bool:
        """Whether an address is not counted: loopback and proxies."""
        return address in self.limits.proxies or ipaddress.ip_address(address).is_loopback

    @contextmanager
    def handshake(self) -> Iterator[trio.CancelScope]:
        """Limit a new connection's handshake to `handshake_s`. The block is cancelled earlier when others need the place."""
        while len(self._half_open) >= self.limits.half_open_max:
            oldest, _ = self._half_open.popitem(last=False)
            oldest.cancel()
        with trio.move_on_after(self.limits.handshake_s) as scope:
            self._half_open[scope] = None
            try:
                yield scope
            finally:
                self._half_open.pop(scope, None)

    @contextmanager
    def connection(self, address: str, *, others: int = 0) -> Iterator[Place]:
        """Count a connection for the length of a block, which is cancelled when another connection gets the place.

        Args:
            others: Connections that also occupy places and are counted elsewhere.

        Raises:
            Refused: There are too many, or the address is banned.
        """
        name = address_group(address)
        until, is_repeated = self._banned.get(name, (0.0, False))
        if until > trio.current_time():
            refusal = Refused("banned for a while after repeated violations")
            refusal.is_repeated = is_repeated
            self._banned[name] = until, True
            raise refusal
        is_counted = not self.is_exempt(address)
        if is_counted and self._counts[name] >= self.limits.connections_per_address:
            raise Refused(f"{self._counts[name]} connections from this address, the most that are taken")
        if len(self._places) + others >= self.limits.connections_max:
            idle = self._find_idle(name) if self._leaving < _LEAVING_MAX else None
            if idle is None:
                raise Refused(f"{len(self._places) + others} connections are open, the most that are taken")
            self._free(idle)
            self._leaving += 1
            idle.scope.cancel()
        with trio.CancelScope() as scope:
            place = Place(name if is_counted else None, trio.current_time(), scope)
            self._places[place] = None
            if is_counted:
                self._counts[name] += 1
            try:
                yield place
            finally:
                if place.worth() is Worth.DELIVERED and is_counted:
                    keep_newest(self._delivered, name, None, _DELIVERED_MAX)
                if place in self._places:
                    self._free(place)
                else:
                    self._leaving -= 1

    @contextmanager
    def further_log(self, address: str) -> Iterator[None]:
        """Count a further log of a connection for the length of a block.

        Raises:
            Refused: There are too many.
        """
        name = address_group(address)
        most = _FURTHER_LOGS * self.limits.connections_per_address
        if not self.is_exempt(address) and self._further[name] >= most:
            raise Refused(f"{most} logs are used by this address beside the first of each connection, the most that may be")
        self._further[name] += 1
        try:
            yield
        finally:
            self._further[name] -= 1
            if not self._further[name]:
                del self._further[name]

    def _free(self, place: Place) -> None:
        del self._places[place]
        if place.group is not None:
            self._counts[place.group] -= 1
            if not self._counts[place.group]:
                del self._counts[place.group]

    def _find_idle(self, newcomer: str) -> Place | None:
        """Find the place that a newcomer gets; None if every connection keeps its own. O(places)."""
        settled = trio.current_time() - IDLE_S
        silent, talking = list[Place](), list[Place]()
        for place in self._places:
            if place.since <= settled:
                worth = place.worth()
                if worth is Worth.NOTHING:
                    silent.append(place)
                elif worth is Worth.TALKS and place.group is not None and self._is_worse_off(newcomer, place.group):
                    talking.append(place)
        # Of equally crowded groups, `max` returns the oldest place.
        return max(silent or talking, key=self._crowd, default=None)

    def _is_worse_off(self, newcomer: str, group: str) -> bool:
        return newcomer in self._delivered or self._counts[group] >= self._counts[newcomer] + 2

    def _crowd(self, place: Place) -> int:
        return 1 if place.group is None else self._counts[place.group]

    def ban(self, address: str, until: float) -> None:
        """Refuse an address or a network until a time of `trio.current_time`. Exempt addresses are never banned: others share them."""
        if "/" not in address and self.is_exempt(address):
            return
        keep_newest(self._banned, address if "/" in address else address_group(address), (until, False), _BANNED_MAX)


def client_address(remote: str, forwarded: Sequence[str], proxies: Collection[str]) -> str:
    """Return the client's address: the remote one, or, behind trusted proxies, the last forwarded one that is not a proxy's.

    Args:
        remote: Anything but an address (a Unix socket's name, a test's client) counts as loopback.
        forwarded: The addresses in `X-Forwarded-For`, in order.
        proxies: Addresses whose `X-Forwarded-For` is trusted.
    """
    address = LOOPBACK
    with suppress(ValueError):
        address = _plain(remote)
        for name in reversed(forwarded):
            if address not in proxies:
                break
            address = _plain(name.strip())
    return address


def _plain(address: str) -> str:
    """Return an address in its usual form: a socket for IPv4 and IPv6 names 1.2.3.4 `::ffff:1.2.3.4`."""
    parsed = ipaddress.ip_address(address)
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


# Forged posts
_MOST = 5
_DECAY_S = 60.0
"""After this time a forgery is forgotten."""
_ADDRESSES_MAX = 4_096


class Forgeries:
    """Counts forged posts by address, and makes an address wait before its next post.

    It only has to wait, because honest clients may share the address. Loopback and proxies are exempt.
    """

    def __init__(self, is_exempt: Callable[[str], bool]) -> None:
        self._is_exempt = is_exempt
        # When all forgeries of an address will be forgotten.
        self._until: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, address: str) -> int:
        """Return how many seconds an address has to wait before it may post again."""
        if self._is_exempt(address):
            return 0
        over = self._until.get(address_group(address), 0.0) - trio.current_time() - (_MOST - 1) * _DECAY_S
        return max(0, math.ceil(over))

    def count(self, address: str) -> None:
        """Note a forgery."""
        name = address_group(address)
        until = max(self._until.get(name, 0.0), trio.current_time()) + _DECAY_S
        keep_newest(self._until, name, until, _ADDRESSES_MAX)


# New keys from an address that a banned peer came from
#
# Keys are free, so banning a peer's key alone stops nobody. Banning its address would hit everybody behind the same proxy or NAT. So known
# peers come and go as before, and strangers from such an address are let in slowly.
#
# Source: docs/spec/limits.md, first row.
_RATE = 0.1
"""Strangers let in per second from an address with a banned peer."""
_SIZE_MAX = 4_096


class FreshKeys:
    """Remembers peers that left in good standing, and the addresses of banned ones."""

    def __init__(self) -> None:
        self._known: OrderedDict[PeerId, None] = OrderedDict()
        self._wary: OrderedDict[str, tuple[TokenBucket, float]] = OrderedDict()

    def __len__(self) -> int:
        """The size of the fuller container."""
        return max(len(self._known), len(self._wary))

    def may_enter(self, peer: PeerId, address: str, now: float) -> bool:
        """Whether a peer may connect now. Of strangers from a banned peer's address, one may every ten seconds."""
        wary = self._wary.get(address_group(address))
        if wary is None or peer in self._known or now >= wary[1]:
            return True
        return wary[0].take(1, now) > 0

    def on_left(self, peer: PeerId) -> None:
        """Remember a peer that was connected for long and was not banned."""
        keep_newest(self._known, peer, None, _SIZE_MAX)

    def on_banned(self, peer: PeerId, address: str, until: float, now: float) -> None:
        """Let strangers from a banned peer's address in slowly, for as long as the ban lasts."""
        self._known.pop(peer, None)
        group = address_group(address)
        bucket = self._wary[group][0] if group in self._wary else TokenBucket(_RATE, 1, now)
        keep_newest(self._wary, group, (bucket, until), _SIZE_MAX)
