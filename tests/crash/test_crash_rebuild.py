"""kill -9 of a process that builds an application's tables anew."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_hundred_kills_leave_the_old_tables_or_the_new(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.crash.rebuild_kills", str(tmp_path), "100", "1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/support")])}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-5_000:]
    versions, unfinished = map(int, ran.stdout.split())
    assert versions > 10
    assert unfinished > 10
