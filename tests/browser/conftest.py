"""Chromium with the reference in its tabs; skipped where there is no Chromium or no Node, as those cannot be installed from here."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
# The reference, and how a process of Node is asked things, are there.
sys.path.insert(0, str(FOLDER.parent / "interop"))

from interop_support import Reference, install_reference, run_reference  # noqa: E402


@pytest.fixture(scope="session")
def installed_browser() -> None:
    if shutil.which("chromium") is None:
        pytest.skip("Chromium is not installed: `apt-get install chromium`")
    install_reference()
    lock = FOLDER / "package-lock.json"
    installed = FOLDER / "node_modules" / ".installed"
    with (FOLDER / ".gitignore").open() as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not installed.exists() or installed.read_bytes() != lock.read_bytes():
            subprocess.run(["npm", "ci"], cwd=FOLDER, check=True, stdin=subprocess.DEVNULL)
            installed.write_bytes(lock.read_bytes())


@pytest.fixture
async def browser(installed_browser: None) -> AsyncIterator[Reference]:
    async with run_reference("../browser/browser.mjs") as running:
        yield running
