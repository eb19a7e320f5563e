"""Running a store's plans from code that cannot await: Spark's tasks are plain functions."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ...errors import StoreError
from ...log.requests import ReadCount
from ...plan import Plan, ask, run_plan
from ...store.base import Durability
from ...store.postgres.url import is_postgres_url
from ...store.sqlite.bounds import BoundedConnection

T = TypeVar("T")


class PlanRunner(Protocol):
    """A log opened read-only: each call runs one plan on one snapshot."""

    def __call__(self, plan: Plan[T], /) -> T:
        """Run a plan to its end."""


def is_url(location: str) -> bool:
    """Say whether a location names a log in a database rather than a file."""
    return is_postgres_url(location)


def is_log(location: str) -> bool:
    """Say whether a location is a log rather than a file of entries, by what stands there."""
    if is_url(location):
        return True
    path = Path(location.removeprefix("file://"))
    if not path.is_file():
        return False
    from ...store.sqlite.file import is_database

    return is_database(path)


@contextlib.contextmanager
def opened_store(location: str, topic: str | None = None) -> Iterator[PlanRunner]:
    """Open a log read-only in this thread: a SQLite file without an event loop, anything else through one in a thread of its own.

    Args:
        location: A path or a URL, as `gossiplog.open` takes it.
        topic: What the log's topic must be; None for whatever it is.

    Raises:
        StoreError: As `gossiplog.open`.
    """
    if is_url(location):
        with _awaited(location, topic) as runner:
            yield runner
        return
    from ...store.sqlite.answers import answer
    from ...store.sqlite.file import opened_reader

    with opened_reader(Path(location.removeprefix("file://")), topic) as db:
        yield partial(_run_on_sqlite, db, answer)


def last_seq(location: str, topic: str | None = None) -> int:
    """Return the insertion number of the last entry of a log, 0 if it is empty."""
    with opened_store(location, topic) as run:
        return run(ask(ReadCount(counted=False)))[1]


def _run_on_sqlite(db: BoundedConnection, answer: Callable[[BoundedConnection, Any], Any], plan: Plan[T], /) -> T:
    db.execute("BEGIN")
    try:
        return run_plan(plan, partial(answer, db))
    finally:
        # Some errors, as of the disk, have ended the transaction already.
        if db.in_transaction:
            db.execute("ROLLBACK")


@contextlib.contextmanager
def _awaited(location: str, topic: str | None) -> Iterator[PlanRunner]:
    """Open a store that has to be awaited, in a thread whose event loop lives as long as this context."""
    import trio

    from ...store.open import open_store

    ready = threading.Event()
    opened: dict[str, Any] = {}

    async def serve() -> None:
        async with open_store(location, topic=topic, create=False, read_only=True, durability=Durability.FULL) as store:
            opened.update(store=store, token=trio.lowlevel.current_trio_token(), done=trio.Event())
            ready.set()
            await opened["done"].wait()

    def work() -> None:
        try:
            trio.run(serve)
        except BaseException as error:
            opened["error"] = error
        finally:
            ready.set()

    thread = threading.Thread(target=work, name="gossiplog-store", daemon=True)
    thread.start()
    ready.wait()
    if "error" in opened:
        raise _store_error(opened["error"])
    try:
        yield partial(trio.from_thread.run, opened["store"].read, trio_token=opened["token"])
    finally:
        trio.from_thread.run_sync(opened["done"].set, trio_token=opened["token"])
        thread.join()


def _store_error(error: BaseException) -> BaseException:
    # Spark starts a process for nearly every step of a load, and most of them have no use for an event loop.
    from ...tasks.nursery import first_error

    error = first_error(error)
    return error if isinstance(error, StoreError | OSError | ValueError) else StoreError(f"the store cannot be opened: {error}")
