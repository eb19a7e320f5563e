"""The process that tests fork commands from."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import subprocess, sys
from pathlib import Path
from warm import warm_python
with warm_python(Path(sys.argv[1]), ["json"]):
    subprocess.run([sys.argv[1], "-m", "waits"])
"""


def test_what_was_forked_ends_with_a_test_run_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("import signal\nprint('runs', flush=True)\nsignal.pause()\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "python")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=tmp_path) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"runs\n"
        run.kill()
        # Whatever prints there has it open: its end is the end of them all.
        assert run.stdout.read() == b""
