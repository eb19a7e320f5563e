"""Which names a server answers to, and which web pages it serves: the two questions that a browser's request has to pass.

A page that has its own name point at this machine (DNS rebinding) reads whatever is served under any name. So plain HTTP is answered only
under names that such a page cannot have: addresses, `localhost`, and what the operator names. Behind our own certificate every name is
answered, for a browser goes to none that the certificate is not for.

Source: docs/spec/limits.md, "HTTP"; RFC 9110, 15.5.20.
"""

from __future__ import annotations

import ipaddress
import socket

from ..ground.admission import HubLimits
from ..transport.http_head import HttpRequest

ANY_NAME = "*"
_FORBIDDEN, _MISDIRECTED = 403, 421


class Names:
    """The names that one server answers to.

    Args:
        limits: Name hosts and origins.
        listens: The host that it was told to listen on, if that is a name.
        is_tls: Whether it has a certificate.
        is_mounted: It is a part of an application. Under which names that is reached is the application's business; and as a browser
            brings along what it knows of the person, only its own pages, and those that are named, may connect.
    """

    def __init__(self, limits: HubLimits, listens: str | None, *, is_tls: bool = False, is_mounted: bool = False) -> None:
        own = [_authority(origin) for origin in limits.origins or ()]
        named = [listens, socket.gethostname(), *own, *limits.hosts]
        self._limits = limits
        self._names = frozenset(_name(name) for name in named if name)
        self._is_mounted = is_mounted
        self._is_any = ANY_NAME in limits.hosts or ((is_tls or is_mounted) and not limits.hosts)
        is_named = listens is not None and listens != "localhost" and not _is_address(listens)
        self._own = frozenset(_name(name) for name in (listens if is_named else None, *limits.hosts) if name)
        self._port = 443 if is_tls else 80

    def refusal(self, request: HttpRequest, local: str, *, is_proxied: bool) -> tuple[int, str] | None:
        """Say with what status and why a request is not answered; None if it is.

        Args:
            request: The request's head, with the client's address and the name asked for.
            local: Our own address on the connection.
            is_proxied: It came from a proxy that is trusted.
        """
        # A browser's WebSocket always says where its page is from, and what is no browser cannot be led astray.
        if not request.is_upgrade and request.host is not None and not self.answers_to(request.host):
            hint = f"use its address, or have it served with --host {_name(request.host)}"
            return _MISDIRECTED, f"this server does not go by the name {request.host}: {hint}"
        origin = request.first(b"origin")
        if origin is not None and not self._lets_in(origin, request, local, is_proxied=is_proxied):
            how = f"HubLimits(origins={{{origin!r}}}) lets them in" if self._is_mounted else f"it has to be served with --origin {origin}"
            return _FORBIDDEN, f"pages from there may not connect to this server: {how}"
        return None

    def _lets_in(self, origin: str, request: HttpRequest, local: str, *, is_proxied: bool) -> bool:
        """Whether a page from there may ask for something.

        What listens on loopback is for this machine, and yet any page of the Internet can have the browser connect to it. So where nobody
        said which pages may, only those of this machine do, unless a proxy, or a name of the operator's, shows that it is reached from
        elsewhere. An origin that is no place, `null`, is that of a file, and of a frame that any page may make.
        """
        if self._limits.names_origin(origin):
            return True
        is_own = request.host is not None and _authority(origin) == request.host.lower() and self.answers_to(request.host)
        if self._is_mounted:
            return is_own or (_is_loopback(_name(_authority(origin))) and _is_loopback(_name(request.host or "")))
        if self._limits.origins is not None:
            return is_own and not request.is_upgrade
        if is_own or _is_loopback(_name(_authority(origin))):
            return True
        host = None if request.host is None else _name(request.host)
        is_named = host is not None and not _is_loopback(host) and (host in self._own or ANY_NAME in self._limits.hosts)
        return is_proxied or is_named or not _is_loopback(local)

    def answers_to(self, host: str) -> bool:
        """Whether plain HTTP is answered under this `Host`."""
        name = _name(host)
        return self._is_any or name in self._names or _is_loopback(name) or _is_address(name)

    def are_ours(self, host: str, local: tuple[str, int]) -> bool:
        """Whether a client that dialled this host, with its port, means this server and no other, so that what it signed for it counts.

        Stricter than what is answered: a name of the operator's, or the very address and port that the connection came to. Another
        server that a client signs for could pass on what it signed, and every server is known to somebody as some address.

        Args:
            host: As in the client's URL.
            local: Our own address and port on the connection.
        """
        name = _name(host)
        if name in self._own or ANY_NAME in self._limits.hosts:
            return True
        if _port(host, self._port) != local[1]:
            return False
        address = local[0].removeprefix("::ffff:")
        return name == address or (name == "localhost" and _is_loopback(address))


def _port(host: str, usual: int) -> int:
    port = host.rpartition("]")[2].rpartition(":")[2] if host.startswith("[") or host.count(":") == 1 else ""
    return int(port) if port.isascii() and port.isdigit() else usual


def _name(host: str) -> str:
    """A name without its port, its brackets and the dot at its end."""
    host = host.lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return (host if host.count(":") > 1 else host.partition(":")[0]).rstrip(".")


def _authority(origin: str) -> str:
    return origin.lower().partition("://")[2]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    """Whether a name or an address is this machine's for itself; RFC 6761, 6.3, keeps `localhost` and what ends with it for that."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    return _is_address(name) and ipaddress.ip_address(name.removeprefix("::ffff:")).is_loopback
