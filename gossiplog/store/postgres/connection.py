"""Connections to a server as asyncpg makes them: where a URL says, and set as a log needs them."""

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
"""A process that stops within a transaction of its own holds everybody up for so long."""
_SETTINGS = {
    "statement_timeout": f"'{_STATEMENT_S}s'",
    "lock_timeout": f"'{_LOCK_S}s'",
    "idle_in_transaction_session_timeout": f"'{_IDLE_S}s'",
    # The plan of a prepared statement is made while the log is small; then as later the index is right.
    "enable_seqscan": "off",
    "jit": "off",
}


class _PlacedConnection(asyncpg.Connection):  # type: ignore[misc]  # it has no types
    """A connection that knows its socket."""

    def __init__(self, protocol: Any, transport: Any, *rest: Any) -> None:
        super().__init__(protocol, transport, *rest)
        self.place = transport.get_extra_info("socket")


async def connect(url: PostgresUrl, *, is_pooled: bool = False) -> Connection:
    """Open a connection as the URL, the environment, a service file and a password file say.

    Args:
        is_pooled: A pooler is in between, so that a statement prepared on one of the server's connections may be missed on another.
    """
    try:
        return await _connect(url, is_pooled)
    except UnicodeError as error:
        # Python's resolver has it for what cannot be a host's name, wherever that comes from.
        reason = "a host is neither a name nor the absolute path of a socket's folder"
        raise asyncpg.exceptions.ClientConfigurationError(reason) from error


async def _connect(url: PostgresUrl, is_pooled: bool) -> Connection:
    connection = await asyncpg.connect(
        url.dsn,
        connection_class=_PlacedConnection,
        # asyncpg reads PGSERVICE too late to make use of it.
        service=os.environ.get("PGSERVICE"),
        timeout=_connect_s(url),
        # The server ends a statement that takes too long; this is for a server that is gone without a word.
        command_timeout=None if "statement_timeout" in url.settings else _STATEMENT_S + 5,
        statement_cache_size=0 if is_pooled else 256,
        max_cached_statement_lifetime=0,
        server_settings=None
        if "application_name" in url.settings
        else {"application_name": f"gossiplog, process {os.getpid()} on {socket.gethostname()}"},
    )
    _keep_alive(connection.place, url.connection)
    return connection


def _connect_s(url: PostgresUrl) -> float | None:
    """How long connecting may take: as the URL or PGCONNECT_TIMEOUT says, where 0 or less means without end, as for libpq."""
    text = str(url.connection.get("connect_timeout", os.environ.get("PGCONNECT_TIMEOUT", "")))
    try:
        chosen = int(text)
    except ValueError:
        return _CONNECT_S
    # As libpq, which takes 1 for 2.
    return max(chosen, 2) if chosen > 0 else None


_KEEPALIVES = {
    "keepalives_idle": "TCP_KEEPIDLE",
    "keepalives_interval": "TCP_KEEPINTVL",
    "keepalives_count": "TCP_KEEPCNT",
    "tcp_user_timeout": "TCP_USER_TIMEOUT",
}


def _keep_alive(place: Any, chosen: Mapping[str, int]) -> None:
    """Set what TCP does about a server that is gone without a word, as libpq does: keepalives are on unless 0 turns them off."""
    if place is None or place.family not in (socket.AF_INET, socket.AF_INET6):
        return
    is_kept = chosen.get("keepalives", 1) != 0
    place.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(is_kept))
    for name, option in _KEEPALIVES.items():
        number = chosen.get(name, 0)
        # What a system does not have, libpq leaves out, too.
        if number > 0 and hasattr(socket, option) and (is_kept or name == "tcp_user_timeout"):
            with contextlib.suppress(OSError):
                place.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), number)


async def settings_for(connection: Connection, url: PostgresUrl, durability: Durability) -> dict[str, str]:
    """Return what is set on each connection of a log, but for what the URL sets."""
    settings = dict(_SETTINGS)
    if durability is not Durability.FULL:
        # There is nothing in between, and nothing that can harm what is stored already.
        settings["synchronous_commit"] = "off"
    elif not await is_so(connection, "current_setting('synchronous_commit') = 'remote_apply'"):
        settings["synchronous_commit"] = "on"
    return {name: value for name, value in settings.items() if name not in url.settings}


async def is_so(connection: Connection, condition: str) -> bool:
    """Ask by the simple protocol: a prepared statement would stay behind on a connection that a pooler hands to other processes.

    asyncpg names those by a count that begins anew in each process, so the second one would find its name taken.
    """
    status: str = await connection.execute(f"SELECT WHERE {condition}")
    return status == "SELECT 1"
