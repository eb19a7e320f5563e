"""The program of the library's guide does what the guide says it does."""

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parent.parent / "docs" / "library.md"


def test_program_of_the_guide_prints_what_it_says(tmp_path: Path) -> None:
    text = GUIDE.read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (expected,) = re.findall(r"^It prints:\n\n```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ran = subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.stderr == ""
    assert ran.stdout == expected
