"""Who may connect: how many at once from one address, how many that have not said what they want, from which web pages,
and how slowly those who may be after harm.
"""

from __future__ import annotations

import ipaddress
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum

import trio

from ...limits import TokenBucket, address_group, keep_newest
from ...pubsub.types import PeerId
from .access import Access

ANY_ORIGIN = "*"
_BANNED_MAX = 4_096
_DELIVERED_MAX = 4_096
_LEAVING_MAX = 64
"""Connections that were told to go and have not gone: they still cost a socket each."""
IDLE_S = 10.0
"""How long a connection may say nothing before others may have its place."""
_FURTHER_LOGS = 8
"""Logs that may be used beside the first of each connection, for each connection that an address may have."""


@dataclass(frozen=True, slots=True)
class HubLimits:
    """What a listener lets in.

    Attributes:
        connections_per_address: At once; of IPv6 each /64 counts as one address. Loopback and `proxies` are exempt. Beside their first log
            they may use eight times as many further ones.
        connections_max: At once in all.
        half_open_max: Connections that have not said what they want; one more takes the place of the oldest.
        handshake_s: Seconds for that, TLS included.
        head_bytes_max: Bytes of a request before its body.
        proxies: Addresses of proxies, whose `X-Forwarded-For` names the client.
        origins: Web pages that may connect and read, as browsers name them in `Origin`; `*` for all. None: no page reads answers of
            plain HTTP but our own, and pages may open WebSockets, on loopback those of this machine alone (`hub/http_names.py`). What is
            no browser sends no `Origin`, and may.
        hosts: Names that plain HTTP is answered under, beside addresses, `localhost`, and those of the origins; `*` for any.
        creatable: Patterns of the topics whose logs clients with the right `create` may create, where there is a shelf.
        creations_per_minute: Logs that one client may create: one did, or one token.
        shelf_bytes_max: What all logs of a shelf may take together. Beyond that none is created, and no client's entry taken.

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
    """A connection is one too many, its address is banned, or what it wants is not to be had. The message is for the peer.

    Attributes:
        is_repeated: The same has been said to this address before, during this ban.
    """

    is_repeated = False

    def __init__(self, reason: str, *, status: int = 503) -> None:
        super().__init__(reason)
        self.status = status


class NotLetIn(Refused):
    """Somebody may not connect, or may not by what it brought."""


class Worth(IntEnum):
    """What a connection was good for so far."""

    NOTHING = 0
    """It said nothing that we could use."""
    TALKS = 1
    """It told us heads, or asked for entries."""
    DELIVERED = 2
    """New entries came by it."""


@dataclass(eq=False, slots=True)
class Place:
    """The place of one connection.

    Attributes:
        group: Whom it counts for; None where nobody is counted.
        scope: Cancelled when the place is given to somebody else.
        worth: Says what the connection was good for.
    """

    group: str | None
    since: float
    scope: trio.CancelScope
    worth: Callable[[], Worth] = lambda: Worth.TALKS


class Admission:
    """Counts connections, keeps bans, and takes places from the idle for those who come when there are none left.

    Whoever said nothing of use for 10 s gives way to anybody, first those of the address with the most places. Who merely talks gives
    way to an address with at least two places less, and to one that has delivered before. Who delivered something keeps its place.

    Attributes:
        forgeries: Which addresses posted any, to whichever of the logs.
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
        self._banned: OrderedDict[str, float] = OrderedDict()
        self._refused: set[str] = set()

    @property
    def open(self) -> int:
        """Connections at this moment."""
        return len(self._places)

    @property
    def half_open(self) -> int:
        """Connections without a request so far."""
        return len(self._half_open)

    def is_exempt(self, address: str) -> bool:
        """Whether an address is not counted: loopback and proxies."""
        return address in self.limits.proxies or ipaddress.ip_address(address).is_loopback

    @contextmanager
    def handshake(self) -> Iterator[trio.CancelScope]:
        """Limit what a new connection may take until it has said what it wants; cancelled when others need the place."""
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
        """Count a connection for the length of a block, which is cancelled when the place is given to somebody else.

        Args:
            others: Connections that take up places as well, and are not counted here.

        Raises:
            Refused: There are too many, or the address is banned.
        """
        name = address_group(address)
        until = self._banned.get(name)
        if until is not None and until > trio.current_time():
            refusal = Refused("banned for a while after repeated violations")
            refusal.is_repeated = name in self._refused
            self._refused.add(name)
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
                    self._note_delivery(name)
                if place in self._places:
                    self._free(place)
                else:
                    self._leaving -= 1

    @contextmanager
    def further_log(self, address: str) -> Iterator[None]:
        """Count a log that a connection uses beside its first, for the length of a block.

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
        """Find who has to give way to an address; None if nobody has. O(places)."""
        settled = trio.current_time() - IDLE_S
        silent, talking = list[Place](), list[Place]()
        for place in self._places:
            if place.since <= settled:
                worth = place.worth()
                if worth is Worth.NOTHING:
                    silent.append(place)
                elif worth is Worth.TALKS and place.group is not None and self._is_worse_off(newcomer, place.group):
                    talking.append(place)
        # The first one of several is the oldest.
        return max(silent or talking, key=self._crowd, default=None)

    def _is_worse_off(self, newcomer: str, group: str) -> bool:
        return newcomer in self._delivered or self._counts[group] >= self._counts[newcomer] + 2

    def _crowd(self, place: Place) -> int:
        return 1 if place.group is None else self._counts[place.group]

    def _note_delivery(self, group: str) -> None:
        keep_newest(self._delivered, group, None, _DELIVERED_MAX)

    def ban(self, address: str, until: float) -> None:
        """Refuse an address or its network until a time of `trio.current_time`. Exempt ones never are: behind them there are others."""
        if "/" not in address and self.is_exempt(address):
            return
        name = address if "/" in address else address_group(address)
        self._banned[name] = until
        self._banned.move_to_end(name)
        self._refused.discard(name)
        if len(self._banned) > _BANNED_MAX:
            self._refused.discard(self._banned.popitem(last=False)[0])


def client_address(remote: str, forwarded: Sequence[str], proxies: Collection[str]) -> str:
    """Return whom a connection is from: its remote address, or, from a proxy, the last address it forwards for that is no proxy.

    Args:
        forwarded: What `X-Forwarded-For` lists, in its order.
        proxies: Whose list is trusted.
    """
    address = remote
    for name in reversed(forwarded):
        if address not in proxies:
            break
        try:
            address = str(ipaddress.ip_address(name.strip()))
        except ValueError:
            break
    return address


# Posts that nobody could have signed
_MOST = 5
_DECAY_S = 60.0
"""After which one is forgotten."""
_ADDRESSES_MAX = 4_096


class Forgeries:
    """Counts them by address. Loopback and proxies are let be: behind them there are others.

    Only posts wait, as nothing but the address is known of who posts, and honest ones may share it.

    Args:
        is_exempt: Whether an address is let be.
    """

    def __init__(self, is_exempt: Callable[[str], bool]) -> None:
        self._is_exempt = is_exempt
        # When all that came from an address will be forgotten.
        self._until: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, address: str) -> int:
        """How many seconds an address has to wait before it may post again."""
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
# A key costs nothing, so a ban of a peer alone is a ban of nobody. A ban of its address would hit all behind a proxy or a translated
# address. So peers that are known go in and out as before, and strangers from such an address wait their turn.
#
# Source: docs/spec/limits.md, first row.
_RATE = 0.1
"""Strangers a second from an address with a banned peer."""
_SIZE_MAX = 4_096


class FreshKeys:
    """Remembers who was here in good standing, and from where banned peers came."""

    def __init__(self) -> None:
        self._known: OrderedDict[PeerId, None] = OrderedDict()
        self._wary: OrderedDict[str, tuple[TokenBucket, float]] = OrderedDict()

    def __len__(self) -> int:
        """The size of the fuller container."""
        return max(len(self._known), len(self._wary))

    def may_enter(self, peer: PeerId, address: str, now: float) -> bool:
        """Whether a peer may be used now; a stranger from a wary address once in ten seconds."""
        wary = self._wary.get(address_group(address))
        if wary is None or peer in self._known or now >= wary[1]:
            return True
        return wary[0].take(1, now) > 0

    def on_left(self, peer: PeerId) -> None:
        """A peer has gone that was here for long and was not banned; it may come back."""
        keep_newest(self._known, peer, None, _SIZE_MAX)

    def on_banned(self, peer: PeerId, address: str, until: float, now: float) -> None:
        """A peer was banned; be wary of strangers from its address for as long."""
        self._known.pop(peer, None)
        group = address_group(address)
        bucket = self._wary[group][0] if group in self._wary else TokenBucket(_RATE, 1, now)
        keep_newest(self._wary, group, (bucket, until), _SIZE_MAX)
