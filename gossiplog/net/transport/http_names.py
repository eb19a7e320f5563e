"""Which names a server answers to, and which web pages it serves: the two checks that a browser's request has to pass.

A page whose own name points at this machine (DNS rebinding) could read everything that is served under any name. So plain HTTP is answered
only under names that such a page cannot have: addresses, `localhost`, and those that the operator gives. With a certificate of our own
every name is answered, because a browser accepts the certificate only for its names.

Source: docs/spec/limits.md, "HTTP"; RFC 9110, 15.5.20.
"""

from __future__ import annotations

import ipaddress
import socket

from ..ground.admission import HubLimits
from .http_head import HttpRequest

ANY_NAME = "*"
_FORBIDDEN, _MISDIRECTED = 403, 421


class Names:
    """The names that one server answers to.

    Args:
        limits: Their hosts and origins count.
        listens: The host that the server listens on, if that is a name.
        is_tls: The server has a certificate.
        is_mounted: The server is part of an application, which decides itself under which names it is reached. Because a browser sends
            the application's cookies along, only the application's own pages and named origins may connect.
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

    def refusal(self, request: HttpRequest, local: str, remote: str) -> tuple[int, str] | None:
        """Return the status and the reason with which a request is refused; None if it is answered.

        Args:
            request: The request's head.
            local: Our own address on the connection.
            remote: The address that it came from, a client's or a proxy's.
        """
        # WebSockets are exempt: browsers always send an `Origin` with them, and other programs cannot be tricked by a page.
        if not request.is_upgrade and request.host is not None and not self.answers_to(request.host):
            hint = f"use its address, or have it served with --host {_name(request.host)}"
            return _MISDIRECTED, f"this server does not go by the name {request.host}: {hint}"
        origin = request.first(b"origin")
        is_proxied = remote in self._limits.proxies and bool(request.forwarded)
        if origin is not None and not self._lets_in(origin, request, local, is_proxied=is_proxied):
            how = f"HubLimits(origins={{{origin!r}}}) lets them in" if self._is_mounted else f"it has to be served with --origin {origin}"
            return _FORBIDDEN, f"pages from there may not connect to this server: {how}"
        return None

    def _lets_in(self, origin: str, request: HttpRequest, local: str, *, is_proxied: bool) -> bool:
        """Whether a page of this origin may send requests.

        A server on loopback is meant for this machine, but any page of the Internet can make the browser connect to it. So without named
        origins only pages of this machine may, unless a proxy or a name that the operator gave shows that the server is reached from
        elsewhere. The origin `null`, that of files and of frames that any page can make, never counts as this machine.
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
        """Whether plain HTTP is answered under this `Host` header."""
        name = _name(host)
        return self._is_any or name in self._names or _is_loopback(name) or _is_address(name)

    def are_ours(self, host: str, local: tuple[str, int]) -> bool:
        """Whether a proof that a client signed for this host and port was meant for this server and no other.

        This is stricter than `answers_to`: only names that the operator gave count, and the exact address and port that the connection
        came to. Otherwise another server could pass on a proof that it was sent.

        Args:
            host: Host and port in the client's URL.
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
    """Return a host without port, brackets and the dot at its end."""
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
    """Whether a name or address is loopback. RFC 6761, 6.3, reserves `localhost` and all names below it."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    return _is_address(name) and ipaddress.ip_address(name.removeprefix("::ffff:")).is_loopback
