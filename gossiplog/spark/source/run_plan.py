"""Running a store's plans from code that cannot await: Spark's tasks are plain functions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ...log.requests import ReadCount
from ...plan import Plan, ask, run_plan
from ...store.postgres.url import is_postgres_url
from ...store.sqlite.bounds import BoundedConnection

T = TypeVar("T")


class PlanRunner(Protocol):
    """A log opened read-only: each call runs one plan on one snapshot."""

    def __call__(self, plan: Plan[T], /) -> T:
        """Run a plan to its end."""


def is_log(location: str) -> bool:
    """Return whether a location is a log rather than a file of entries, by its first bytes."""
    if is_postgres_url(location):
        return True
    path = Path(location.removeprefix("file://"))
    if not path.is_file():
        return False
    from ...store.sqlite.file import is_database

    return is_database(path)


@contextlib.contextmanager
def opened_store(location: str, topic: str | None = None) -> Iterator[PlanRunner]:
    """Open a log read-only: a SQLite file in this thread, without an event loop, anything else as `gossiplog.blocking` does.

    Args:
        location: A path or a URL, as `gossiplog.open` takes it.
        topic: The topic that the log must have; None for any.

    Raises:
        StoreError: As `gossiplog.open`.
    """
    if is_postgres_url(location):
        from ...blocking import open as open_log

        with open_log(location, topic=topic, create=False, read_only=True) as log:
            yield log.run
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
        # Some errors, such as a disk's, have ended the transaction already.
        if db.in_transaction:
            db.execute("ROLLBACK")
