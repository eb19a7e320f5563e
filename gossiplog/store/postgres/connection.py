"""Connections of asyncpg's to the server that a URL names, with the settings that a log needs."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Any, TypeAlias

import asyncpg

from ..base import Durability
from .url import PostgresUrl

Connection: TypeAlias = Any
"""asyncpg's connection, which has no types."""

_CONNECT_S = 10.0
_STATEMENT_S = 60
_LOCK_S = 30
_IDLE_S = 120
"""How long a process that hangs within its own transaction can block all others."""
_SETTINGS = {
    "statement_timeout": f"'{_STATEMENT_S}s'",
    "lock_timeout": f"'{_LOCK_S}s'",
    "idle_in_transaction_session_timeout": f"'{_IDLE_S}s'",
    # A prepared statement may be planned while the log is small, but must use the index when it has grown.
    "enable_seqscan": "off",
    "jit": "off",
}


class _PlacedConnection(asyncpg.Connection):  # type: ignore[misc]  # it has no types
    def __init__(self, protocol: Any, transport: Any, *rest: Any) -> None:
        super().__init__(protocol, transport, *rest)
        self.place = transport.get_extra_info("socket")


async def connect(url: PostgresUrl, *, is_pooled: bool = False) -> Connection:
    """Open a connection as the URL, the environment, a service file and a password file say.

    Args:
        is_pooled: There is a pooler in between, so a statement prepared on one of the server's connections may be missing on another.
    """
    name = f"gossiplog, process {os.getpid()} on {socket.gethostname()}"
    try:
        connection = await asyncpg.connect(
            url.dsn,
            connection_class=_PlacedConnection,
            # asyncpg itself reads PGSERVICE too late to use it.
            service=os.environ.get("PGSERVICE"),
            timeout=_connect_s(url),
            # The server ends a statement that takes too long; this is for a server that vanished without a word.
            command_timeout=None if "statement_timeout" in url.settings else _STATEMENT_S + 5,
            statement_cache_size=0 if is_pooled else 256,
            max_cached_statement_lifetime=0,
            server_settings=None if "application_name" in url.settings else {"application_name": name},
        )
    except UnicodeError as error:
        # Python's resolver raises this for a name that no host can have, from wherever the name came.
        reason = "a host is neither a name nor the absolute path of a socket's folder"
        raise asyncpg.exceptions.ClientConfigurationError(reason) from error
    _keep_alive(connection.place, url.connection)
    return connection


def _connect_s(url: PostgresUrl) -> float | None:
    """Return how long connecting may take, by the URL or PGCONNECT_TIMEOUT; None, without limit, for 0 or less, as in libpq."""
    text = str(url.connection.get("connect_timeout", os.environ.get("PGCONNECT_TIMEOUT", "")))
    try:
        chosen = int(text)
    except ValueError:
        return _CONNECT_S
    # libpq also makes 2 of 1.
    return max(chosen, 2) if chosen > 0 else None


_KEEPALIVES = {
    "keepalives_idle": "TCP_KEEPIDLE",
    "keepalives_interval": "TCP_KEEPINTVL",
    "keepalives_count": "TCP_KEEPCNT",
    "tcp_user_timeout": "TCP_USER_TIMEOUT",
}


def _keep_alive(place: Any, chosen: Mapping[str, int]) -> None:
    """Have TCP notice a server that vanished without a word. As in libpq, keepalives are on unless 0 turns them off."""
    if place is None or place.family not in (socket.AF_INET, socket.AF_INET6):
        return
    is_kept = chosen.get("keepalives", 1) != 0
    place.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(is_kept))
    for name, option in _KEEPALIVES.items():
        number = chosen.get(name, 0)
        # libpq, too, leaves out what a system does not support.
        if number > 0 and hasattr(socket, option) and (is_kept or name == "tcp_user_timeout"):
            with contextlib.suppress(OSError):
                place.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), number)


async def settings_for(connection: Connection, url: PostgresUrl, durability: Durability) -> dict[str, str]:
    """Return the settings for each connection of a log, without those that the URL sets."""
    settings = dict(_SETTINGS)
    if durability is not Durability.FULL:
        # PostgreSQL has no level in between, and none at which stored data can be damaged.
        settings["synchronous_commit"] = "off"
    elif not await is_so(connection, "current_setting('synchronous_commit') = 'remote_apply'"):
        settings["synchronous_commit"] = "on"
    return {name: value for name, value in settings.items() if name not in url.settings}


async def is_so(connection: Connection, condition: str) -> bool:
    """Ask by the simple protocol. A prepared statement would stay behind on a connection that a pooler hands to other processes.

    asyncpg names statements by a count that begins at 1 in each process, so the next process would find its name taken.
    """
    status: str = await connection.execute(f"SELECT WHERE {condition}")
    return status == "SELECT 1"
