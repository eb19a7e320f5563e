"""The programs of the guides do what the guides say they do."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
_PROGRAM = re.compile(r"^```python\n((?:(?!^```).)*)^```\n\n(?:It prints:\n\n)?```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = [
    pytest.param(*found, id=f"{page.stem}-{number}")
    for page in (DOCS.parent / "README.md", *(DOCS / f"{name}.md" for name in ("library", "asyncio", "arrow", "members", "pubsub")))
    for number, found in enumerate(_PROGRAM.findall(page.read_text("utf-8")))
]


def test_guides_have_their_programs() -> None:
    assert [param.id for param in PROGRAMS] == [
        "README-0",
        "library-0",
        "library-1",
        "asyncio-0",
        "asyncio-1",
        "asyncio-2",
        "arrow-0",
        "arrow-1",
        "members-0",
        "pubsub-0",
        "pubsub-1",
    ]


@pytest.mark.parametrize(("program", "expected"), PROGRAMS)
def test_program_of_a_guide_prints_what_it_says(program: str, expected: str, tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.stderr == ""
    assert ran.stdout == expected
