"""Opening the store that a user names by a path or a URL."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from ..errors import LocalProtocolError, shortened
from .base import Durability, Store
from .postgres.url import PostgresUrl, is_postgres_url

_SHOWN_CHARS = 256
"""How much of a path that is too long is quoted."""


@asynccontextmanager
async def open_store(
    location: str | os.PathLike[str], *, topic: str | None, create: bool, read_only: bool, durability: Durability
) -> AsyncIterator[Store]:
    """Open the store that a path or URL names: `:memory:`, a path of a SQLite file, or `postgresql://…?log=NAME`.

    Raises:
        LocalProtocolError: `:memory:` without a topic, a name that no file can have, or a URL of an unknown kind.
        StoreError: The store cannot be opened.
    """
    if location == ":memory:":
        from .memory.store import MemoryStore

        with closing(MemoryStore(topic, read_only=read_only)) as memory:
            yield memory
        return
    text = path_text(location)
    if is_postgres_url(text):
        # Imported here, as below, so that a log in memory needs no database driver.
        from .postgres.shelf import SharingUrl
        from .postgres.store import PostgresStore

        url, shared = PostgresUrl.parse(text), location.connections if isinstance(location, SharingUrl) else None
        async with PostgresStore.open(
            url, topic=topic, create=create, read_only=read_only, durability=durability, connections=shared
        ) as postgres:
            yield postgres
        return
    if "://" in text:
        hint = "give a path of a file, a URL like postgresql://host/database?log=NAME, or :memory:"
        raise LocalProtocolError(f"no store for {text.partition('://')[0]}://", hint=hint)
    from .sqlite.store import SqliteStore

    async with SqliteStore.open(Path(text), topic=topic, create=create, read_only=read_only, durability=durability) as store:
        yield store


def check_writable(location: str) -> None:
    """Check whether a log's file can be written to, without opening it. A log in a database is not checked.

    Raises:
        StoreError: The file does not exist, is no log, or may not be written to by this user.
    """
    if not is_postgres_url(location):
        from .sqlite.file import check_file

        check_file(Path(location), create=False, read_only=False)


async def pending_migrations(location: str | os.PathLike[str]) -> tuple[int, list[str]]:
    """Return the version of a log's schema, and the names of the migrations that opening it for writing would apply.

    Raises:
        StoreError: There is no such file, or it cannot be read.
    """
    text = path_text(location)
    if is_postgres_url(text):
        from .postgres.store import find_postgres_pending

        return await find_postgres_pending(PostgresUrl.parse(text))
    import trio

    from .sqlite.file import find_pending

    return await trio.to_thread.run_sync(find_pending, Path(text), abandon_on_cancel=True)


def path_text(location: str | os.PathLike[str]) -> str:
    """Return a path or a URL as text.

    Raises:
        LocalProtocolError: It is empty, or no file can have the name.
    """
    text = os.fsdecode(location)
    if not text:
        raise LocalProtocolError("an empty path names nothing", hint="the current folder is '.'")
    try:
        if b"\0" in os.fsencode(text):
            raise LocalProtocolError(f"{text!r} is no path: it has a NUL")
        if "://" not in text:
            os.lstat(text)
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"{text!r} is no path: {error}") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise LocalProtocolError(f"{shortened(text, _SHOWN_CHARS)} is no path: {error.strerror}") from None
    return text
