"""Where `--app` and `--authorize` are imported from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
CODE = f"""
import sys
sys.path.append({str(REPOSITORY)!r})
from gossiplog.cli.session import load_application
print(load_application("ours:apply").name)
import colorsys
print(colorsys.__file__)
load_application("ours:apply")
print(sys.path.count(""))
"""


def test_current_folder_comes_last_so_nothing_there_stands_in_for_the_standard_library(tmp_path: Path) -> None:
    (tmp_path / "colorsys.py").write_text("raise SystemExit('planted')\n")
    (tmp_path / "ours.py").write_text("import colorsys\n\n\ndef apply(tx, entry):\n    pass\n")
    done = subprocess.run([sys.executable, "-I", "-c", CODE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    name, where, times = done.stdout.splitlines()
    assert (name, times) == ("app", "1")
    assert not Path(where).is_relative_to(tmp_path)
