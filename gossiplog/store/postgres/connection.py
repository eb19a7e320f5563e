"""Connections to a server as asyncpg makes them: where a URL says, and set as a log needs them."""

from __future__ import annotations

import os
import socket
from typing import Any, TypeAlias

import asyncpg

from ..base import Durability
from .url import PostgresUrl

__all__ = ["Connection", "connect", "is_so", "settings_for"]

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


async def connect(url: PostgresUrl, *, is_pooled: bool = False) -> Connection:
    """Open a connection as the URL, the environment, a service file and a password file say.

    Args:
        url: Of the log.
        is_pooled: A pooler is in between, so that a statement prepared on one of the server's connections may be missed on another.
    """
    try:
        return await _connect(url, is_pooled)
    except UnicodeError as error:
        # Python's resolver has it for what cannot be a host's name, wherever that comes from.
        reason = "a host is neither a name nor the absolute path of a socket's folder"
        raise asyncpg.exceptions.ClientConfigurationError(reason) from error


async def _connect(url: PostgresUrl, is_pooled: bool) -> Connection:
    return await asyncpg.connect(
        url.dsn,
        # asyncpg reads PGSERVICE too late to make use of it.
        service=os.environ.get("PGSERVICE"),
        timeout=_CONNECT_S,
        # The server ends a statement that takes too long; this is for a server that is gone without a word.
        command_timeout=None if "statement_timeout" in url.settings else _STATEMENT_S + 5,
        statement_cache_size=0 if is_pooled else 256,
        max_cached_statement_lifetime=0,
        server_settings=None
        if "application_name" in url.settings
        else {"application_name": f"gossiplog, process {os.getpid()} on {socket.gethostname()}"},
    )


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
