"""Each store that there is. A further one joins by a fixture's parameter: the suite asks nothing else of it."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log_support import opened

from gossiplog.store.postgres.url import PostgresUrl

STORES = ["memory", "sqlite", "postgres"]
DURABLE = ["sqlite", "postgres"]
"""Stores that are still there after they were closed, and where the application has tables."""


class OpenLog:
    """Opens the logs of one test by their names.

    Attributes:
        store: Which store they lie in.
        server: The PostgreSQL server that they lie on, if they do.
    """

    def __init__(self, store: str, locate: Callable[[str], str | Path], server: Any = None) -> None:
        self.store = store
        self.server = server
        self._locate = locate

    def __call__(self, name: str = "log", **options: Any) -> Any:
        return opened(self._locate(name), **options)

    def schema(self, name: str = "log") -> str:
        """The schema of a log on a server."""
        return PostgresUrl.parse(str(self._locate(name))).schema if self.store == "postgres" else ""


def _opener(request: pytest.FixtureRequest) -> OpenLog:
    match request.param:
        case "memory":
            return OpenLog("memory", lambda name: ":memory:")
        case "sqlite":
            folder: Path = request.getfixturevalue("tmp_path")
            return OpenLog("sqlite", lambda name: folder / f"{name}.db")
        case _:
            server = request.getfixturevalue("postgres")
            test = secrets.token_hex(4)
            # Where the application's tables go, which the schemas of the logs are not.
            server.sql(f"CREATE SCHEMA app_{test}")
            return OpenLog("postgres", lambda name: server.url(f"{name}-{test}", search_path=f"app_{test}"), server)


@pytest.fixture(params=STORES)
def open_log(request: pytest.FixtureRequest) -> OpenLog:
    """Open the log of this name in each store in turn."""
    return _opener(request)


@pytest.fixture(params=DURABLE)
def open_durable(request: pytest.FixtureRequest) -> OpenLog:
    """The same for each store that keeps what it is given."""
    return _opener(request)
