"""The browser client as a process of Node."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from client_support import node
from network_support import no_faults

FOLDER = Path(__file__).parent
# How a process of Node is asked things is there.
sys.path.insert(0, str(FOLDER.parent / "interop"))

from interop_support import Reference, run_program  # noqa: E402

__all__ = ["no_faults"]


@pytest.fixture
async def client() -> AsyncIterator[Reference]:
    # Node 20 has no WebSocket without being asked for it.
    command = (node(), "--no-warnings", "--experimental-websocket", str(FOLDER / "replica.mjs"))
    async with run_program(*command) as running:
        yield running
