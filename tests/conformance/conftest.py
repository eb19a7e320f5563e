"""Each store that there is. A further one joins by a fixture's parameter: the suite asks nothing else of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log_support import opened

STORES = ["memory", "sqlite"]
DURABLE = ["sqlite"]
"""Stores that are still there after they were closed, and where the application has tables."""

OpenLog = Callable[..., Any]


def _opener(store: str, folder: Path) -> OpenLog:
    def open_log(name: str = "log", **options: Any) -> Any:
        location = ":memory:" if store == "memory" else folder / f"{name}.db"
        return opened(location, **options)

    return open_log


@pytest.fixture(params=STORES)
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> OpenLog:
    """Open the log of this name in each store in turn."""
    return _opener(request.param, tmp_path)


@pytest.fixture(params=DURABLE)
def open_durable(request: pytest.FixtureRequest, tmp_path: Path) -> OpenLog:
    """The same for each store that keeps what it is given."""
    return _opener(request.param, tmp_path)
