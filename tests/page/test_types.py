"""The page's modules as TypeScript sees them, by the types in their comments."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from build_client import install_tools

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def installed() -> None:
    """Install what package-lock.json names, unless it is there."""
    if shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    install_tools()


def check(project: Path) -> subprocess.CompletedProcess[str]:
    command = [str(FOLDER / "node_modules" / ".bin" / "tsc"), "-p", str(project)]
    return subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)


def test_modules_of_the_page_have_no_type_errors(installed: None) -> None:
    done = check(FOLDER / "tsconfig.json")
    assert done.returncode == 0, done.stdout


def test_a_type_error_would_be_found(installed: None, tmp_path: Path) -> None:
    (tmp_path / "wrong.js").write_text('/** @type {number} */\nexport const wrong = "text"\n')
    (tmp_path / "tsconfig.json").write_text(f'{{"extends": "{FOLDER / "tsconfig.json"}", "include": ["wrong.js"]}}')
    assert "TS2322" in check(tmp_path).stdout
