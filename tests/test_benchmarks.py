"""Every benchmark is there under its name, and says how it is run."""

import re
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
PROGRAM = """
import contextlib, importlib, io, re, sys
for name in sys.argv[1].split():
    module = importlib.import_module(f"benchmarks.{name}")
    if hasattr(module, "main"):
        sys.argv = [f"{name}.py", "--help"]
        with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
            module.main()
        assert re.match(rf"usage: (python -m benchmarks\\.)?{name}\\b", shown.getvalue()), (name, shown.getvalue()[:200])
        print(name)
"""


def test_every_benchmark_is_imported_and_explains_itself_by_its_one_name() -> None:
    names = sorted(path.stem for path in BENCHMARKS.glob("[a-z]*.py"))
    command = [sys.executable, "-c", PROGRAM, " ".join(names)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=BENCHMARKS.parent, check=False)
    assert ran.returncode == 0, ran.stderr
    runnable = {name for name in names if "\ndef main() -> None:" in (BENCHMARKS / f"{name}.py").read_text()}
    assert set(ran.stdout.split()) == runnable and len(runnable) >= 13


def test_documents_name_no_other_way_to_run_one() -> None:
    pages = [
        *BENCHMARKS.parent.glob("*.md"),
        *(BENCHMARKS.parent / "docs").rglob("*.md"),
        *BENCHMARKS.rglob("*.md"),
        *BENCHMARKS.glob("*.py"),
    ]
    assert [str(page) for page in pages if re.search(r"python3? \S*benchmarks/\w+\.py", page.read_text("utf-8"))] == []
