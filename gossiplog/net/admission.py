"""Who may connect: how many at once from one address, how many that have not said what they want, and from which web pages."""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio

from ..sync.pace import address_group

__all__ = ["Admission", "HubLimits", "Refused", "client_address"]

_BANNED_MAX = 4_096


@dataclass(frozen=True, slots=True)
class HubLimits:
    """What a listener lets in.

    Attributes:
        connections_per_address: At once; of IPv6 each /64 counts as one address. Loopback and `proxies` are exempt.
        connections_max: At once in all.
        half_open_max: Connections that have not said what they want; one more takes the place of the oldest.
        handshake_s: Seconds for that, TLS included.
        head_bytes_max: Bytes of a request before its body.
        proxies: Addresses of proxies, whose `X-Forwarded-For` names the client.
        origins: Web pages that may connect, as browsers name them in `Origin`; None lets all pages open WebSockets, and none of them
            read answers of plain HTTP. What is no browser sends none, and may.
        hosts: Names that plain HTTP is answered under, beside addresses, `localhost`, and those of the origins; `*` for any.

    Source: spec/limits.md, "connections and streams" and "WebSocket".
    """

    connections_per_address: int = 8
    connections_max: int = 10_000
    half_open_max: int = 64
    handshake_s: float = 5.0
    head_bytes_max: int = 16 * 1024
    proxies: frozenset[str] = field(default_factory=frozenset)
    origins: frozenset[str] | None = None
    hosts: frozenset[str] = field(default_factory=frozenset)

    def allows_origin(self, origin: str | None) -> bool:
        """Whether a request with this `Origin` may be served."""
        return self.origins is None or origin is None or origin in self.origins


class Refused(Exception):
    """A connection is one too many, or its address is banned. The message is for the peer.

    Attributes:
        is_repeated: The same has been said to this address before, during this ban.
    """

    is_repeated = False


class Admission:
    """Counts connections and keeps bans.

    Attributes:
        limits: The rules.
    """

    def __init__(self, limits: HubLimits) -> None:
        self.limits = limits
        self._open = 0
        self._counts: Counter[str] = Counter()
        self._half_open: OrderedDict[trio.CancelScope, None] = OrderedDict()
        self._banned: OrderedDict[str, float] = OrderedDict()
        self._refused: set[str] = set()

    @property
    def open(self) -> int:
        """Connections at this moment."""
        return self._open

    @property
    def half_open(self) -> int:
        """Connections that have not said what they want."""
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
    def connection(self, address: str) -> Iterator[None]:
        """Count a connection for the length of a block.

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
        if self._open >= self.limits.connections_max:
            raise Refused(f"{self._open} connections are open, the most that are taken")
        is_counted = not self.is_exempt(address)
        if is_counted and self._counts[name] >= self.limits.connections_per_address:
            raise Refused(f"{self._counts[name]} connections from this address, the most that are taken")
        self._open += 1
        if is_counted:
            self._counts[name] += 1
        try:
            yield
        finally:
            self._open -= 1
            if is_counted:
                self._counts[name] -= 1
                if not self._counts[name]:
                    del self._counts[name]

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
        remote: The remote IP address.
        forwarded: What `X-Forwarded-For` lists, in its order.
        proxies: Whose list is believed.
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
