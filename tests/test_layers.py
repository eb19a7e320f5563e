"""The package's layout holds its rules, and the rules would notice if it did not."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from house import (
    FLOORS,
    PACKAGE,
    RULES,
    House,
    circles,
    impure,
    knots,
    named_twice,
    planted,
    private_names,
    too_large,
    unreached,
    upward_imports,
)

HOUSE = House.of()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_holds(rule: Callable[[House], list[str]]) -> None:
    assert rule(HOUSE) == []


@pytest.mark.parametrize(
    ("path", "line", "rules"),
    [
        pytest.param("limits.py", "from .tasks.nursery import open_service_nursery", {impure}, id="limits-reach-trio"),
        pytest.param("pubsub/seen.py", "from ..store.base import Store", {upward_imports, impure}, id="pubsub-imports-store"),
        pytest.param("replica/log.py", "from ..net.service.service import Service", {upward_imports, circles}, id="replica-imports-net"),
        pytest.param("tree/node.py", "from ..log.requests import ReadPage", {upward_imports, circles}, id="tree-imports-log"),
        pytest.param("store/open.py", "def lazily(): from ..gossip_log import open", {upward_imports, circles}, id="lazy-circle"),
        pytest.param("net/hub/server.py", "from ..libp2p import Host", set(), id="a-new-edge-within-a-room"),
        pytest.param("net/transport/tcp.py", "from ..libp2p.transport import dial", {knots, circles}, id="a-knot"),
        pytest.param("sim/check/world.py", "from ...net.ground.journal import note", {upward_imports}, id="one-driver-imports-the-other"),
        pytest.param("shelf/shelf.py", "X = 1", {upward_imports}, id="a-room-without-a-floor"),
        pytest.param("sync/client.py", "import trio", {impure}, id="trio-in-a-machine"),
        pytest.param("codec/extra.py", "X = 1", {unreached}, id="a-file-for-nobody"),
        pytest.param("web/app.py", "from ..net.ground.journal import _secret", {private_names}, id="private-import"),
        pytest.param("web/app.py", "def peek(log): return log._writer", {private_names}, id="private-attribute"),
        pytest.param("codec/varint.py", "class Entry: ...", {named_twice}, id="a-class-name-that-is-taken"),
        pytest.param("codec/varint.py", "\n" * 700, {too_large}, id="long-file"),
        pytest.param("codec/varint.py", "def long():\n" + "    x = 1\n" * 71, {too_large}, id="long-function"),
    ],
)
def test_planted_violation_is_noticed(path: str, line: str, rules: set[Callable[[House], list[str]]]) -> None:
    broken = planted(HOUSE, path, line)
    assert [rule.__name__ for rule in rules if not rule(broken)] == []


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = {"trio", "asyncio", "sqlite3", "aiosqlite", "asyncpg", "multiformats", "dag_cbor", "rich", "click", "libp2p", "pyspark"}
    program = "import sys, gossiplog; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert sorted(heavy & set(ran.stdout.split())) == []


def test_unit_tests_stand_where_the_package_has_what_they_test() -> None:
    unit = Path(__file__).parent / "unit"
    folders = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")}
    assert len(folders) > 20
    assert [str(folder) for folder in sorted(folders) if not (PACKAGE / folder).is_dir()] == []


def test_files_of_tests_have_names_of_their_own() -> None:
    """Pytest imports them by these; of two with the same name, outside of packages, neither run nor collection gets to the end."""
    files = [path for path in Path(__file__).parent.rglob("test_*.py") if not (path.parent / "__init__.py").exists()]
    counts = Counter(path.name for path in files)
    assert [name for name, count in counts.items() if count > 1] == []


def test_picture_of_the_architecture_has_every_room_on_its_floor() -> None:
    picture = re.findall(r"^    ([a-z_ ]+?)(?:   .*)?$", (PACKAGE.parent / "docs" / "architecture.md").read_text("utf-8"), re.MULTILINE)
    floors = [{room for room in floor.split() if not room.startswith("__")} for floor in reversed(FLOORS)]
    assert [set(floor.split()) for floor in picture] == [floor for floor in floors if floor]
