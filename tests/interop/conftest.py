"""Fixtures of the tests against the reference."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from interop_support import Reference, install_reference, run_reference


@pytest.fixture(scope="session")
def installed_reference() -> None:
    install_reference()


@pytest.fixture
async def reference(installed_reference: None) -> AsyncIterator[Reference]:
    async with run_reference() as running:
        yield running
