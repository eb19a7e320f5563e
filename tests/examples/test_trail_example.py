"""The example `examples/trail`: eight programs at once, and the two that cheat are named, whether they were collected before or not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from example_support import EXAMPLES

pytestmark = [pytest.mark.slow]
TRAIL = EXAMPLES / "trail"


def run(*command: str, code: int = 0, input: bytes | None = None) -> str:
    ran = subprocess.run([sys.executable, *command], input=input, capture_output=True, check=False)
    assert ran.returncode == code, ran.stderr.decode()
    return ran.stdout.decode()


def test_of_eight_programs_the_one_that_deletes_and_the_one_that_backdates_are_named(tmp_path: Path) -> None:
    lines = run(str(TRAIL / "demo.py"), str(tmp_path), code=3).splitlines()
    dids = {manner: did for _, _, manner, did in (line.replace(",", "").split() for line in lines[:8])}
    findings = lines[8:]
    assert {did for did in dids.values() if any(did in line for line in findings)} == {dids["delete"], dids["backdate"]}
    assert all("has deleted" in line for line in findings if dids["delete"] in line)
    assert all("has backdated" in line and "3600 s" in line for line in findings if dids["backdate"] in line)


def test_what_was_collected_before_cannot_be_deleted_unseen(tmp_path: Path) -> None:
    run(str(TRAIL / "demo.py"), str(tmp_path), code=3)
    log, files = str(tmp_path / "log.db"), sorted((tmp_path / "trail").glob("program0-*.jsonl"))
    run("-m", "gossiplog", "init", log, "--topic", "trail.example.com")
    run("-m", "gossiplog", "import", log, "-", input=files[0].read_bytes())
    before = run(str(TRAIL / "audit.py"), str(tmp_path / "trail"), log, code=3).splitlines()
    # The last records: nothing in the file refers to them.
    files[0].write_bytes(b"".join(files[0].read_bytes().splitlines(keepends=True)[:-3]))
    after = run(str(TRAIL / "audit.py"), str(tmp_path / "trail"), log, code=3).splitlines()
    assert len(set(after) - set(before)) == 3
    assert all("which was collected" in line for line in set(after) - set(before))
