"""Peers that speak libp2p: keys, addresses, handshakes, and the host that keeps the connections; imported only when it is used."""

from .addresses import Address
from .host import Host, Peering
from .identify import Identity
from .identity import PeerKey

__all__ = ["Address", "Host", "Identity", "PeerKey", "Peering"]
