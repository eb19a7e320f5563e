"""A user's program is what two type checkers take for right, in trio, asyncio and plain Python."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from build_client import TOOLS, install_tools

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parent / "typed_program.py"
MYPY = [sys.executable, "-m", "mypy", "--strict", "--config-file="]


def check(command: list[str], program: Path) -> str:
    return subprocess.run([*command, str(program)], cwd=program.parent, capture_output=True, text=True, check=False).stdout


@pytest.fixture(params=["mypy", "pyright"])
def checker(request: pytest.FixtureRequest) -> list[str]:
    if request.param == "mypy":
        return MYPY
    if shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    install_tools()
    return [str(TOOLS / "node_modules" / ".bin" / "pyright"), "--pythonpath", sys.executable]


def test_program_of_a_user_has_no_type_errors(checker: list[str], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.read_text("utf-8"), "utf-8")
    said = check(checker, program)
    assert said.startswith(("Success", "0 errors")), said
    # Each checker would find one.
    program.write_text(PROGRAM.read_text("utf-8").replace("Policy([signer.did])", "Policy([signer])"), "utf-8")
    assert "1 error" in check(checker, program)
