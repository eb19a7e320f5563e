"""The programs of the guides to applications do what the guides say, and so does the example."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from terminal_picture import terminal_picture

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLE = ROOT / "examples" / "todo"
_BLOCK = re.compile(r"^```python\n(.*?)^```(?:\n\nIt prints:\n\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)


def run(*arguments: str, folder: Path) -> str:
    command = [sys.executable, "-W", "error", *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    return ran.stdout


def test_tutorial_works_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its test needs pytest, as it says, and nothing that is installed beside it.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    steps = _BLOCK.findall((DOCS / "tutorial.md").read_text("utf-8"))
    assert len(steps) == 7
    for program, printed in steps:
        name = program.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(program)
        if printed:
            assert run(name, folder=tmp_path) == printed, name
        elif name.startswith("test_"):
            run("-m", "pytest", "-q", "-p", "no:cacheprovider", name, folder=tmp_path)


@pytest.mark.parametrize("page", ["kit.md", "designing.md", "pycrdt.md"])
def test_program_of_a_page_prints_what_it_says(page: str, tmp_path: Path) -> None:
    programs = _BLOCK.findall((DOCS / page).read_text("utf-8"))
    assert programs
    for program, printed in programs:
        (tmp_path / "program.py").write_text(program)
        assert run("program.py", folder=tmp_path) == printed


def picture(printed: str) -> str:
    """Make the example's picture of what it prints. `python tests/test_application_guides.py` writes it."""
    return terminal_picture("Two devices write offline, meet, and agree", printed)


def test_example_shows_what_its_picture_shows(tmp_path: Path) -> None:
    printed = run(str(EXAMPLE / "demo.py"), folder=tmp_path)
    assert picture(printed) == (EXAMPLE / "demo.svg").read_text("utf-8")


if __name__ == "__main__":
    (EXAMPLE / "demo.svg").write_text(picture(run(str(EXAMPLE / "demo.py"), folder=Path.cwd())), "utf-8")
