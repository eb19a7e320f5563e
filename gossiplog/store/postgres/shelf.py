"""The logs of a database, each in a schema named by its topic.

Source: docs/rooms.md, "A shelf in a database".
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ...codec.base32hex import encode_base32hex
from ...entry.rules import check_topic, is_topic
from ..base import Durability
from .connections import OF_A_SHELF, Connections, open_connections
from .url import NAME_BYTES_MAX, SCHEMA_PREFIX, PostgresUrl

_LOGS = """
    FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = 'log' AND c.relkind = 'r'
    WHERE starts_with(n.nspname, $1) AND has_schema_privilege(n.oid, 'USAGE')"""


@dataclass(frozen=True, slots=True)
class SharingUrl(os.PathLike[str]):
    """The URL of a log that shares its connections with other logs."""

    url: str
    connections: Connections

    def __fspath__(self) -> str:
        return self.url


def _name_of(topic: str) -> str:
    """Return the name of a topic's log: the topic itself, unless it is too long for a schema."""
    check_topic(topic)
    return topic if len(topic) <= NAME_BYTES_MAX else "=" + encode_base32hex(hashlib.sha256(topic.encode()).digest()[:20])


class LogDatabase:
    """A database of logs; see `ShelfPlace`."""

    def __init__(self, url: str, connections: Connections | None = None) -> None:
        self._text = url
        self._url = PostgresUrl.parse(url, is_shelf=True)
        self._connections = connections
        self.location = self._url.location

    def log_at(self, topic: str) -> str | SharingUrl:
        """See `ShelfPlace`."""
        url = f"{self._text}{'&' if '?' in self._text else '?'}log={quote(_name_of(topic), safe='')}"
        return url if self._connections is None else SharingUrl(url, self._connections)

    @asynccontextmanager
    async def opened(self, durability: Durability) -> AsyncIterator[LogDatabase]:
        """See `ShelfPlace`. Its logs share connections."""
        async with open_connections(self._url, durability, OF_A_SHELF) as connections:
            yield LogDatabase(self._text, connections)

    async def check(self) -> None:
        """See `ShelfPlace`."""
        await self.count()

    async def topics(self) -> list[str]:
        """See `ShelfPlace`."""
        names = [name.removeprefix(SCHEMA_PREFIX) for (name,) in await self._ask(f"SELECT n.nspname {_LOGS}", SCHEMA_PREFIX)]
        found = [name for name in names if not name.startswith("=")]
        for name in names:
            if name.startswith("="):
                schema = (SCHEMA_PREFIX + name).replace('"', '""')
                found += [topic for (topic,) in await self._ask(f'SELECT topic FROM "{schema}".log')]
        return sorted(topic for topic in found if is_topic(topic) and _name_of(topic) in names)

    async def has(self, topic: str) -> bool:
        """See `ShelfPlace`."""
        return bool(await self._ask(f"SELECT 1 {_LOGS} AND n.nspname = $1", SCHEMA_PREFIX + _name_of(topic)))

    async def count(self) -> int:
        """See `ShelfPlace`."""
        return int((await self._ask(f"SELECT count(*) {_LOGS}", SCHEMA_PREFIX))[0][0])

    async def size_bytes(self) -> int:
        """See `ShelfPlace`."""
        size = "SELECT coalesce(sum(pg_total_relation_size(t.oid)), 0)::bigint FROM pg_class t"
        found = await self._ask(f"{size} WHERE t.relkind = 'r' AND t.relnamespace IN (SELECT n.oid {_LOGS})", SCHEMA_PREFIX)
        return int(found[0][0])

    async def _ask(self, statement: str, *parameters: str) -> list[Any]:
        if self._connections is None:
            async with self.opened(Durability.FULL) as place:
                return await place._ask(statement, *parameters)
        return list(await self._connections.ask(lambda connection: connection.fetch(statement, *parameters)))
