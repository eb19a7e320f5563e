"""docs/spec/threats.md names tests: each of them exists, and each attack has one."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = [
    line
    for line in (ROOT / "docs/spec/threats.md").read_text().splitlines()
    if line.startswith("|") and not line.startswith(("|--", "| attack |"))
]


@cache
def names_in(path: Path) -> set[str]:
    nodes = ast.parse(path.read_text()).body
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_attack_has_a_test_and_every_test_exists() -> None:
    assert len(ROWS) > 40
    missing = []
    for row in ROWS:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row.split("|")[3])
        assert named, row
        missing += [f"{file}::{name}" for file, name in named if not (ROOT / file).exists() or name not in names_in(ROOT / file)]
    assert missing == []
