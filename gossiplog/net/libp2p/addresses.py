"""Multiaddrs of what we can listen on and dial: TCP, plain or below a WebSocket, with or without TLS.

    /ip4/192.0.2.1/tcp/4001     /ip6/::1/tcp/4001/ws     /dns4/peer.example.com/tcp/443/wss/p2p/12D3Koo…

Source: the multiaddr specification; `multiaddr` reads and writes both forms.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, replace

from multiaddr import Multiaddr

from ...errors import DecodeError
from ...pubsub.peer_id import peer_id_bytes
from ...pubsub.types import PeerId
from .reach import Teller

__all__ = ["ADDRESS_BYTES_MAX", "Address"]

ADDRESS_BYTES_MAX = 512
"""Of a multiaddr in either form; a domain name has at most 253 characters."""
_HOSTS = ("ip4", "ip6", "dns", "dns4", "dns6")
_WEBSOCKETS = {("ws",): False, ("wss",): True, ("tls", "ws"): True}
_PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """A place where a peer listens, or is to.

    Attributes:
        family: `ip4`, `ip6`, `dns`, `dns4` or `dns6`.
        host: An IP address or a domain name.
        port: 0 … 65,535; 0 lets the system choose.
        is_websocket: WebSocket over TCP, else TCP alone.
        is_tls: TLS below the WebSocket.
        peer: Whose it is, if it says so.
        teller: Who told us of it; None for our operator. No part of what it is.
    """

    family: str
    host: str
    port: int
    is_websocket: bool = False
    is_tls: bool = False
    peer: PeerId | None = None
    teller: Teller | None = field(default=None, compare=False)

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read the text of a multiaddr.

        Raises:
            DecodeError: It is none, or one of a transport that we do not speak.
        """
        if len(text) > ADDRESS_BYTES_MAX:
            raise DecodeError(f"a multiaddr of {len(text)} characters, at most {ADDRESS_BYTES_MAX} are allowed")
        try:
            parts = [(protocol.name, value) for protocol, value in Multiaddr(text).items()]
        except Exception as error:  # its parts raise whatever they do
            raise DecodeError(f"{text!r} is not a multiaddr: {error}") from None
        return cls._of_parts(text, parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Address:
        """Read the bytes of a multiaddr. Raises as `parse`."""
        if len(data) > ADDRESS_BYTES_MAX:
            raise DecodeError(f"a multiaddr of {len(data)} bytes, at most {ADDRESS_BYTES_MAX} are allowed")
        try:
            address = Multiaddr(data)
            text, parts = str(address), [(protocol.name, value) for protocol, value in address.items()]
        except Exception as error:  # as above
            raise DecodeError(f"{data.hex()} is not a multiaddr: {error}") from None
        return cls._of_parts(text, parts)

    @classmethod
    def _of_parts(cls, text: str, parts: list[tuple[str, str | None]]) -> Address:
        peer = None
        if parts and parts[-1][0] == "p2p" and parts[-1][1] is not None:
            peer = PeerId(parts.pop()[1] or "")
            peer_id_bytes(peer)
        if len(parts) < 2 or parts[0][0] not in _HOSTS or parts[1][0] != "tcp":
            raise DecodeError(
                f"{text} is not a TCP address",
            )
        (family, host), (_, port), *rest = parts
        names = tuple(name for name, _ in rest)
        if not host or not port or any(value for _, value in rest) or (names and names not in _WEBSOCKETS):
            raise DecodeError(f"{text} is of a transport that is not spoken here")
        return cls(family, host, int(port), bool(names), _WEBSOCKETS.get(names, False), peer)

    def __str__(self) -> str:
        transport = "/wss" if self.is_tls else "/ws" if self.is_websocket else ""
        whose = f"/p2p/{self.peer}" if self.peer is not None else ""
        return f"/{self.family}/{self.host}/tcp/{self.port}{transport}{whose}"

    def to_bytes(self) -> bytes:
        """Return the bytes of the multiaddr."""
        data: bytes = Multiaddr(str(self)).to_bytes()
        return data

    def of(self, peer: PeerId | None) -> Address:
        """Return the same place as this peer's."""
        return replace(self, peer=peer)

    def told_by(self, teller: Teller | None) -> Address:
        """Return the same place as this teller's word."""
        return replace(self, teller=teller)

    @property
    def is_unspecified(self) -> bool:
        """It stands for all addresses of the machine, as `0.0.0.0` does, so nobody can dial it."""
        return self.family in ("ip4", "ip6") and ipaddress.ip_address(self.host).is_unspecified

    @property
    def is_loopback(self) -> bool:
        """It is reached from this machine alone."""
        return self.family in ("ip4", "ip6") and ipaddress.ip_address(self.host).is_loopback
