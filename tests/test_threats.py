"""docs/spec/threats.md names tests, and places of the package: each of them exists, each attack has a test, and no place is left out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gossiplog"
ATTACKS, _, PLACES = (ROOT / "docs/spec/threats.md").read_text().partition("\n## Places\n")
OF_OURS = ("sim", "spark", "kit", "testing")
"""Folders that read what we have written, or their caller."""
WITHOUT_A_STRANGER = {
    "gossiplog/cli/log/demo.py": "opens the copy that it made",
    "gossiplog/cli/sim.py": "reads what its user typed",
    "gossiplog/testnet/processes.py": "reads what processes say that it started",
    "gossiplog/testnet/nest.py": "is told by the process that started it",
    "gossiplog/store/sqlite/schema.py": "makes a database in memory",
    "gossiplog/store/memory/store.py": "makes a database in memory",
    "gossiplog/store/memory/fsck.py": "makes a database in memory",
    "gossiplog/archive/parents.py": "makes a database of its own",
}
FORMATS = ("json.loads(", "tomllib.loads(", "h11.Connection(", "sqlite3.connect(", "raise DecodeError")
"""What a module does that takes the bytes of others apart."""


def rows_of(text: str) -> list[list[str]]:
    """The cells of each row of each table."""
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|") and not line.startswith("|--")]
    return [row for row in rows if row[0].strip() not in ("attack", "place")]


@cache
def names_in(path: Path) -> set[str]:
    """Functions, classes, their methods, and constants of a file."""
    if path.suffix == ".js":
        return set(re.findall(r"^(?:export )?(?:async )?(?:function\*?|class|const) (\w+)", path.read_text(), re.MULTILINE))
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        names |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return names


def missing(named: list[tuple[str, str]]) -> list[str]:
    return [f"{file}::{name}" for file, name in named if not (ROOT / file).exists() or name not in names_in(ROOT / file)]


def test_every_attack_has_a_test_and_every_test_exists() -> None:
    rows = rows_of(ATTACKS)
    assert len(rows) > 40
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row[2])
        assert named, row
        assert missing(named) == []


def test_every_place_has_a_rule_and_whatever_it_names_exists() -> None:
    rows = rows_of(PLACES)
    assert len(rows) > 35
    absent = []
    for row in rows:
        named = re.findall(r"`(gossiplog/[\w/]+\.(?:py|js))::([\w.]+)`", row[2])
        assert len(named) == row[2].count("::") > 0, row
        assert row[1].strip(), row
        absent += missing(named)
    assert absent == []


def test_no_rule_stands_twice() -> None:
    rules = [row[1].strip() for row in rows_of(PLACES)]
    assert len(set(rules)) == len(rules)


@pytest.mark.parametrize("form", FORMATS)
def test_no_module_takes_the_bytes_of_others_apart_without_being_named(form: str) -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] not in OF_OURS and form in path.read_text():
            found.add(str(path.relative_to(ROOT)))
    assert found, f"nothing has {form} any more"
    assert {file for file in found if f"`{file}::" not in PLACES} - set(WITHOUT_A_STRANGER) == set()
