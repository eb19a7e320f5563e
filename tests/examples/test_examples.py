"""What all examples have in common."""

from __future__ import annotations

import pytest
from example_support import EXAMPLES, lines_of_code

LINES_MAX = 150


@pytest.mark.parametrize("folder", sorted(path for path in EXAMPLES.iterdir() if path.is_dir()), ids=lambda path: path.name)
def test_example_is_short_and_has_a_readme_with_a_picture(folder):
    programs = {path.name: lines_of_code(path) for path in folder.iterdir() if path.suffix in (".py", ".html")}
    assert sum(programs.values()) <= LINES_MAX, programs
    pictures = [path for path in folder.iterdir() if path.suffix in (".svg", ".png")]
    assert pictures
    readme = (folder / "README.md").read_text("utf-8")
    for picture in pictures:
        assert picture.stat().st_size < 60_000
        assert f"]({picture.name})" in readme
    assert f"../examples/{folder.name}/README.md" in (EXAMPLES.parent / "docs" / "examples.md").read_text("utf-8")
