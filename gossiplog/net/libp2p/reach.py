"""From how far away an address can be reached, and who told us of it from where."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from ...limits import address_group

__all__ = ["Reach", "Teller", "reach_of"]

_NEAR = [
    ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10", "fc00::/7", "fe80::/10")
]


class Reach(IntEnum):
    """From how far away an address can be reached."""

    MACHINE = 0
    NETWORK = 1
    WORLD = 2


@dataclass(frozen=True, slots=True)
class Teller:
    """Who told of an address.

    Attributes:
        name: Shared by those who share an allowance: their IP address, of IPv6 its /64; on this machine the peer.
        reach: Where it is. It cannot send us to where it cannot go itself.
    """

    name: str
    reach: Reach

    @classmethod
    def at(cls, address: str | None, peer: str) -> Teller:
        """Return a peer as a teller.

        Args:
            address: Its IP address, if it is connected.
            peer: Its id.
        """
        reach = Reach.WORLD if address is None else reach_of(address)
        return cls(peer if address is None or reach is Reach.MACHINE else address_group(address), reach)


def reach_of(address: str) -> Reach:
    """Say from how far away an IP address can be reached."""
    parsed: IPv4Address | IPv6Address = ip_address(address)
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if parsed.is_loopback or parsed.is_unspecified:
        return Reach.MACHINE
    return Reach.NETWORK if any(parsed in network for network in _NEAR) else Reach.WORLD
