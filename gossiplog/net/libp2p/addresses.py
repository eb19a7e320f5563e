"""Multiaddrs that we can listen on and dial: TCP, plain or below a WebSocket, with or without TLS.

    /ip4/192.0.2.1/tcp/4001     /ip6/::1/tcp/4001/ws     /dns4/peer.example.com/tcp/443/wss/p2p/12D3Koo…

In bytes each part is a varint that names it, then its value: an IP address in 4 or 16 bytes, a port in 2, anything else after its length.
Only the parts that we speak are read here. `multiformats`, which reads others, knows neither domain names nor peer ids.

Source: the multiaddr specification and its table of protocols; libp2p specifications, "Peer Ids and Keys", for the text of a peer id.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from dataclasses import dataclass, field, replace
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from ...codec.digits import read_digits
from ...codec.framing import encode_frame
from ...codec.varint import decode_varint, encode_varint
from ...errors import DecodeError
from ...limits import address_group
from ...pubsub.types import PeerId, peer_id_bytes, peer_id_text

ADDRESS_BYTES_MAX = 512
"""The longest multiaddr, as text or bytes. A domain name has at most 253 characters."""
_HOSTS = {"ip4": 4, "ip6": 41, "dns": 53, "dns4": 54, "dns6": 55}
_TCP, _P2P = 6, 421
_FLAGS = {"tls": 448, "ws": 477, "wss": 478}
_CODES = {**_HOSTS, "tcp": _TCP, "p2p": _P2P, **_FLAGS}
_NAMES = {code: name for name, code in _CODES.items()}
_IP_BYTES = {"ip4": 4, "ip6": 16}
_PORT_BYTES = 2
_WEBSOCKETS = {("ws",): False, ("wss",): True, ("tls", "ws"): True}
_PORT_MAX = 65_535
_OTHER_TRANSPORTS = frozenset({"udp", "quic", "quic-v1", "webtransport", "webrtc", "webrtc-direct", "p2p-circuit", "unix"})
_DOMAIN = re.compile(r"[^\s/\x00-\x20\x7f]{1,253}")
_CID_PREFIX = b"\x01\x72"
"""How a peer id begins as a CID: version 1, codec libp2p-key. Some software prints peer ids like this, in base32 after a `b`."""
_MULTIHASHES = {0x00: range(1, 43), 0x12: range(32, 33)}
"""The codes of a peer id's multihash, identity and SHA-256, and how many bytes may follow."""
_NEAR = [
    ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10", "fc00::/7", "fe80::/10")
]


class Reach(IntEnum):
    """From where an address can be reached."""

    MACHINE = 0
    NETWORK = 1
    WORLD = 2


@dataclass(frozen=True, slots=True)
class Teller:
    """The source of an address.

    Attributes:
        name: Tellers with the same name share an allowance: an IPv4 address, the /64 of an IPv6 address, or on this machine the peer id.
        reach: Where the teller is. It cannot make us dial an address that it cannot reach itself.
    """

    name: str
    reach: Reach

    @classmethod
    def at(cls, address: str | None, peer: str) -> Teller:
        """Return a peer as a teller.

        Args:
            address: Its IP address; None if it is not connected.
        """
        reach = Reach.WORLD if address is None else reach_of(address)
        return cls(peer if address is None or reach is Reach.MACHINE else address_group(address), reach)


def reach_of(address: str) -> Reach:
    """Return from where an IP address can be reached."""
    parsed: IPv4Address | IPv6Address = ip_address(address)
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if parsed.is_loopback or parsed.is_unspecified:
        return Reach.MACHINE
    return Reach.NETWORK if any(parsed in network for network in _NEAR) else Reach.WORLD


@dataclass(frozen=True, slots=True)
class Address:
    """A place where a peer listens, or shall listen.

    Attributes:
        family: `ip4`, `ip6`, `dns`, `dns4` or `dns6`.
        port: 0 … 65,535; 0 lets the system choose.
        peer: The peer's id, if the address ends in one.
        teller: The peer that told us of it; None for our operator. Ignored in comparisons.
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
            DecodeError: It is malformed, or of a transport that we do not speak.
        """
        if len(text) > ADDRESS_BYTES_MAX:
            raise DecodeError(f"a multiaddr of {len(text)} characters, at most {ADDRESS_BYTES_MAX} are allowed")
        empty, *words = text.rstrip("/").split("/")
        if empty or not words:
            raise DecodeError(f"{text!r} is not a multiaddr: it does not begin with /ip4, /ip6, /dns, /dns4 or /dns6")
        parts: list[tuple[str, str]] = []
        rest = iter(words)
        for name in rest:
            if name in _OTHER_TRANSPORTS:
                raise DecodeError(f"{text!r} is not a TCP address: {name} is not spoken here, but TCP is, and WebSocket over it")
            if name not in _CODES:
                raise DecodeError(f"{text!r} is not a TCP address that is spoken here: {name[:40]!r}")
            parts.append((name, "" if name in _FLAGS else next(rest, "")))
        return cls._of_parts(text, parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Address:
        """Read the bytes of a multiaddr. Raises as `parse`."""
        if len(data) > ADDRESS_BYTES_MAX:
            raise DecodeError(f"a multiaddr of {len(data)} bytes, at most {ADDRESS_BYTES_MAX} are allowed")
        parts, position = [], 0
        while position < len(data):
            code, position = decode_varint(data, position)
            name = _NAMES.get(code)
            if name is None:
                raise DecodeError(f"{data.hex()} is not a TCP address that is spoken here: code {code}")
            if name in _FLAGS:
                size = 0
            elif name == "tcp" or name in _IP_BYTES:
                size = _IP_BYTES.get(name, _PORT_BYTES)
            else:
                size, position = decode_varint(data, position)
            if size > len(data) - position:
                raise DecodeError(f"{data.hex()} is not a multiaddr: it is cut short")
            parts.append((name, _value_text(name, data[position : position + size])))
            position += size
        return cls._of_parts(data.hex(), parts)

    @classmethod
    def _of_parts(cls, whole: str, parts: list[tuple[str, str]]) -> Address:
        peer = None
        if parts and parts[-1][0] == "p2p":
            peer = _peer(whole, parts.pop()[1])
        if len(parts) < 2 or parts[0][0] not in _HOSTS or parts[1][0] != "tcp":
            raise DecodeError(f"{whole!r} is not a TCP address")
        (family, host), (_, port), *rest = parts
        names = tuple(name for name, _ in rest)
        if names and names not in _WEBSOCKETS:
            raise DecodeError(f"{whole!r} is of a transport that is not spoken here")
        return cls(family, _host(whole, family, host), _port(whole, port), bool(names), _WEBSOCKETS.get(names, False), peer)

    def __str__(self) -> str:
        transport = "/wss" if self.is_tls else "/ws" if self.is_websocket else ""
        whose = f"/p2p/{self.peer}" if self.peer is not None else ""
        return f"/{self.family}/{self.host}/tcp/{self.port}{transport}{whose}"

    def to_bytes(self) -> bytes:
        """Return the bytes of the multiaddr."""
        if self.family in _IP_BYTES:
            host = ipaddress.ip_address(self.host).packed
        else:
            host = encode_frame(self.host.encode())
        parts = [encode_varint(_HOSTS[self.family]), host, encode_varint(_TCP), self.port.to_bytes(_PORT_BYTES, "big")]
        if self.is_websocket:
            parts.append(encode_varint(_FLAGS["wss" if self.is_tls else "ws"]))
        if self.peer is not None:
            parts += [encode_varint(_P2P), encode_frame(peer_id_bytes(self.peer))]
        return b"".join(parts)

    def of(self, peer: PeerId | None) -> Address:
        """Return this address with another peer."""
        return replace(self, peer=peer)

    def told_by(self, teller: Teller | None) -> Address:
        """Return this address with another teller."""
        return replace(self, teller=teller)

    @property
    def is_unspecified(self) -> bool:
        """Whether it stands for all addresses of the machine, as `0.0.0.0` does, so that nobody can dial it."""
        return self.family in ("ip4", "ip6") and ipaddress.ip_address(self.host).is_unspecified

    @property
    def is_loopback(self) -> bool:
        """Whether it can be reached from this machine only."""
        return self.family in ("ip4", "ip6") and ipaddress.ip_address(self.host).is_loopback


def _value_text(name: str, value: bytes) -> str:
    """Return the text of a part's value, which is then checked like one that came as text."""
    if name in _IP_BYTES:
        return str(ipaddress.ip_address(value))
    if name == "tcp":
        return str(int.from_bytes(value, "big"))
    if name == "p2p":
        return peer_id_text(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise DecodeError(f"{value.hex()} is no domain name: it is not UTF-8") from None


def _host(whole: str, family: str, host: str) -> str:
    if family not in _IP_BYTES:
        if not _DOMAIN.fullmatch(host):
            raise DecodeError(f"{whole!r} is not a multiaddr: {host!r} is no domain name")
        return host
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        raise DecodeError(f"{whole!r} is not a multiaddr: {host!r} is no IP address") from None
    # A zone, as in fe80::1%eth0, only means something on this machine.
    if len(ip.packed) != _IP_BYTES[family] or "%" in host:
        raise DecodeError(f"{whole!r} is not a multiaddr: {host!r} is not of {family}")
    return str(ip)


def _port(whole: str, port: str) -> int:
    number = read_digits(port, 0, _PORT_MAX)
    if number is None:
        raise DecodeError(f"{whole!r} is not a multiaddr: {port!r} is no port, 0 to {_PORT_MAX}")
    return number


def _peer(whole: str, text: str) -> PeerId:
    """Read a peer id, in base58 or as a CID; return it in base58."""
    try:
        data = _of_cid(text) if text.startswith("b") else peer_id_bytes(PeerId(text))
        if len(data) < 2 or len(data) - 2 != data[1] or data[1] not in _MULTIHASHES.get(data[0], ()):
            raise DecodeError("it is no multihash of a public key")
    except DecodeError as error:
        raise DecodeError(f"{whole!r} is not a multiaddr: {text!r} is no peer id: {error}") from None
    return PeerId(peer_id_text(data))


def _of_cid(text: str) -> bytes:
    digits = text[1:].upper()
    try:
        data = base64.b32decode(digits + "=" * (-len(digits) % 8))
    except (binascii.Error, ValueError):
        raise DecodeError("it is not base32") from None
    if not data.startswith(_CID_PREFIX):
        raise DecodeError("it is not the CID of a peer's key")
    return data.removeprefix(_CID_PREFIX)
