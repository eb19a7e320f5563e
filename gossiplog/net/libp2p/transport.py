"""TCP below libp2p: listening on an address, and dialling one."""

from __future__ import annotations

import socket
import ssl
from dataclasses import replace
from ipaddress import ip_address

import ifaddr
import trio

from ..transport.stream import ByteStream
from ..transport.tcp import TcpStream, dial_tcp, looking_up
from ..transport.websocket import connect_websocket
from .addresses import Address

_BACKLOG = 256
_FAMILIES = {"dns4": socket.AF_INET, "dns6": socket.AF_INET6}


async def bind(address: Address) -> list[trio.SocketListener]:
    """Listen on one address, or on all addresses that a name stands for.

    Raises:
        OSError: The address is in use or none of this machine's, or the name is unknown.
    """
    with looking_up(address.host):
        return list(await trio.open_tcp_listeners(address.port, host=await _resolve(address), backlog=_BACKLOG))


def local_addresses(address: Address) -> list[Address]:
    """Return the addresses that an address stands for: itself, or for `0.0.0.0` and `::` the machine's addresses of that family."""
    if not address.is_unspecified:
        return [address]
    is_4, loopback = (True, "127.0.0.1") if address.family == "ip4" else (False, "::1")
    # An IPv6 address is a tuple: the address, its flow and its scope.
    texts = [str(ip.ip if ip.is_IPv4 else ip.ip[0]) for adapter in ifaddr.get_adapters() for ip in adapter.ips if ip.is_IPv4 is is_4]
    found = [*(text for text in texts if not ip_address(text).is_loopback), loopback]
    return [replace(address, host=host) for host in dict.fromkeys(found) if not ip_address(host).is_link_local]


async def dial(address: Address, tls: ssl.SSLContext | None, source: str | None = None) -> TcpStream:
    """Connect to one address; the caller sets a deadline.

    Args:
        tls: Checks the server's certificate, if the address has TLS; by default as the system does.
        source: Which of this machine's addresses to dial from; by default the system chooses.

    Raises:
        OSError: Nobody listens there, the name is unknown, or TLS failed.
    """
    if address.is_tls:
        return await dial_tcp(address.host, address.port, tls or ssl.create_default_context(), source)
    return await dial_tcp(await _resolve(address), address.port, None, source)


async def open_websocket(stream: TcpStream, address: Address) -> ByteStream:
    """Open a WebSocket on a stream if its address says so. Raises as `connect_websocket`."""
    if not address.is_websocket:
        return stream
    host = f"[{address.host}]" if address.family == "ip6" else address.host
    return await connect_websocket(stream, f"{host}:{address.port}", "/")


def remote_address(stream: trio.SocketStream) -> Address:
    """Return where a connection comes from or goes to.

    Raises:
        OSError: It is closed.
    """
    host, port = stream.socket.getpeername()[:2]
    host = str(host).partition("%")[0]
    return Address("ip6" if ":" in host else "ip4", host, int(port))


async def _resolve(address: Address) -> str:
    """Look up a name of one address family (`dns4`, `dns6`); return any other host as it is."""
    family = _FAMILIES.get(address.family)
    if family is None:
        return address.host
    with looking_up(address.host):
        found = await trio.socket.getaddrinfo(address.host, address.port, family, socket.SOCK_STREAM)
    return str(found[0][4][0])
