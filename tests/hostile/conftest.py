"""Fixtures of the tests with hostile peers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_support import Server, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One hub for all tests of a module: it has to outlive them all."""
    folder: Path = tmp_path_factory.mktemp("hostile")
    with running_server(folder) as running:
        yield running
