"""The rules of the package's layout, asked of sources: which room lies above which, what is pure, how large a file may be.

Each rule is a function from a `House` to complaints, so that a violation can be planted in a copy without touching a file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

__all__ = ["FLOORS", "PACKAGE", "PURE", "RULES", "House", "planted"]

PACKAGE = Path(__file__).parents[1] / "gossiplog"

FLOORS = (
    "errors",
    "graph limits plan tasks version",
    "codec tree",
    "entry sketch",
    "access",
    "archive ethereum keyring log pubsub tlog",
    "arrow kit presence store sync trail",
    "broadcast reconcile testing",
    "glass pull",
    "replica",
    "bucket net sim",
    "web",
    "gossip_log",
    "shelves",
    "portal",
    "mounting",
    "__init__ testnet",
    "aio blocking",
    "spark",
    "cli",
    "pycrdt",
    "__main__",
)
"""The rooms, which are the folders and modules at the top, from the ground up. A room may import those of lower floors, and no others."""
KNOTS = {
    "store store/memory": "store/open.py opens each store, and they share store/base.py",
    "store store/postgres": "as above",
    "store store/sqlite": "as above",
}
"""Folders of one room that import each other both ways, and why. A new one is a defect."""

FACADES = frozenset({"aio.py", "blocking.py"})
"""Their classes have the names of those that they stand for."""
TWICE = {"a word of two specifications, or of a public result and of an event": "Message Place Published Refused Subscription"}
"""Public class names that occur in several other files, by the reason. A new one is a defect: give it a name of its own."""

PURE = frozenset(
    {"errors", "limits", "plan", "codec", "entry", "tree", "sketch", "log", "pubsub", "sync", "reconcile", "pull", "broadcast", "glass"}
    | {"access", "presence", "tlog"}
    | {"net/transport/yamux"}
)
"""What does no input or output and knows no clock, with all folders below: what it needs is handed to it."""
PURE_FILES = frozenset({"net/transport/multistream.py", "net/discovery/table.py"})
IMPURE = frozenset(
    {"trio", "asyncio", "time", "socket", "sqlite3", "threading", "subprocess", "aiosqlite", "asyncpg", "ssl", "select", "datetime"}
)
FILES = frozenset({"os", "io", "tempfile", "secrets", "shutil", "pathlib"})
FILES_ALLOWED = frozenset({"entry/signing.py"})
"""Pure but for the keys' files, which it reads and writes where it is told to."""
AT_HOME = {"pyspark": "spark", "aiosqlite": "store/sqlite", "asyncpg": "store/postgres", "obstore": "bucket"}
"""Packages that only one folder may know."""
PRIVATE_ALLOWED = {
    "store/sqlite/connection.py": "aiosqlite's queue and thread have no public name",
    "codec/cid.py": "multiformats' CID has no public way to be made without checking twice",
    "testnet/nest.py": "the os has no public name for the end of a forked process that runs nothing of its parent's",
    "replica/log.py": "a replica copies from the store of another replica, of its own class",
}
"""Files that use another's private names, and why."""
LINES_MAX = 700
FUNCTION_LINES_MAX = 70
LARGE_FUNCTIONS = {
    "cli/net/serve.py:serve": "click takes an option per line, and the docstring is the help",
}
OF_NAMED_TUPLES = frozenset({"_replace", "_make", "_fields", "_asdict"})
ENTRANCES = frozenset(
    {
        "__init__.py",
        "__main__.py",
        "aio.py",
        "blocking.py",
        "cli/spark/submit/spark_submit.py",
        "pycrdt/jupyter.py",
        "pycrdt/lab.py",
        "spark/autoload/pyspark_gossiplog.py",
        "testnet/liar.py",
        "trail.py",
        "testnet/nest.py",
    }
)
"""What is run or imported from outside: commands, and what Spark looks for."""


@dataclass(frozen=True, slots=True)
class Imported:
    """One name that a file imports, as an absolute dotted name; `is_typing` if only type checkers see it."""

    name: str
    is_typing: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules ask of one file.

    Attributes:
        imports: Whatever it imports, wherever it does.
        calls: The functions that it calls by a plain name.
        of_random: What it takes from the module `random`.
        defined: Every name that it assigns or defines, at the top, in classes, and on objects of its own.
        private: Attributes with an underscore, other than those that a class has from its base: line, name, text.
        functions: The name and the number of lines of each.
        classes: Their names, wherever they are defined.
        docstring: Empty if it has none.
    """

    imports: tuple[Imported, ...]
    calls: frozenset[str]
    of_random: frozenset[str]
    defined: frozenset[str]
    private: tuple[tuple[int, str, str], ...]
    functions: tuple[tuple[str, int], ...]
    classes: tuple[str, ...]
    docstring: str


@dataclass(frozen=True)
class House:
    """The sources of the package, by path below it."""

    sources: Mapping[str, str] = field(repr=False)

    @staticmethod
    def of(package: Path = PACKAGE) -> House:
        """Read all of it."""
        return House({str(path.relative_to(package)): path.read_text("utf-8") for path in sorted(package.rglob("*.py"))})

    def facts(self, path: str) -> Facts:
        """What the rules ask of a file; found once for each text."""
        return facts_of(path, self.sources[path])

    @cached_property
    def modules(self) -> dict[str, str]:
        """Paths by dotted names below the package; the package itself is the empty name."""
        return {path.removesuffix(".py").removesuffix("__init__").rstrip("/").replace("/", "."): path for path in self.sources}

    @cached_property
    def imports(self) -> dict[str, frozenset[str]]:
        """The files of the package that each file imports, in functions and for type checkers too."""
        return {path: frozenset(self._files(path)) for path in self.sources}

    def _files(self, path: str) -> Iterator[str]:
        for imported in self.facts(path).imports:
            name = imported.name
            if name.partition(".")[0] == "gossiplog":
                found = self.resolve(name.partition(".")[2])
                if found != path:
                    yield found

    def resolve(self, name: str) -> str:
        """The file that a dotted name below the package is in: a module's own, or the one that has the attribute."""
        while name not in self.modules:
            name = name.rpartition(".")[0]
        return self.modules[name]


def planted(house: House, path: str, line: str) -> House:
    """A copy in which a file, which may be new, ends with one more line."""
    return House({**house.sources, path: house.sources.get(path, '"""Planted."""\n') + f"\n{line}\n"})


def area_of(path: str) -> str:
    """The folder of a file; a module at the top is an area of its own."""
    folder, _, name = path.rpartition("/")
    return folder or name.removesuffix(".py")


def room_of(path: str) -> str:
    """The room of a file: the first part of its path."""
    return area_of(path).partition("/")[0]


def is_pure(path: str) -> bool:
    """Whether a file belongs to the pure part of the package."""
    area = area_of(path)
    return path in PURE_FILES or any(area == pure or area.startswith(f"{pure}/") for pure in PURE)


@cache
def facts_of(path: str, source: str) -> Facts:
    """Read a file's text once for all rules, and keep no tree of it."""
    tree = ast.parse(source)
    package = ["gossiplog", *path.split("/")[:-1]]
    for_types: set[ast.AST] = set()
    imports: list[Imported] = []
    private: list[tuple[int, str, str]] = []
    functions: list[tuple[str, int]] = []
    classes: list[str] = []
    calls, of_random, defined = set(), set(), set()
    # From the outside in, so that a branch for type checkers is met before what it imports.
    for node in ast.walk(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                for_types.update(inner for statement in node.body for inner in ast.walk(statement))
            case ast.Import():
                imports += [Imported(alias.name, node in for_types) for alias in node.names]
            case ast.ImportFrom():
                base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
                home = ".".join(part for part in (base, node.module) if part)
                imports += [Imported(f"{home}.{alias.name}", node in for_types) for alias in node.names]
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                defined.add(name)
                functions.append((name, (node.end_lineno or node.lineno) - node.lineno + 1))
            case ast.ClassDef(name=name):
                defined.add(name)
                classes.append(name)
            case ast.Name(id=name, ctx=ast.Store()):
                defined.add(name)
            case ast.Call(func=ast.Name(id=name)):
                calls.add(name)
            case ast.Attribute(attr=name):
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                # What is assigned on `self` is the file's own; what is assigned on another object is not.
                if owner in ("self", "cls") and isinstance(node.ctx, ast.Store):
                    defined.add(name)
                if owner == "random":
                    of_random.add(f"random.{name}")
                if re.match(r"_[a-z]", name) and owner not in ("self", "cls") and name not in OF_NAMED_TUPLES:
                    private.append((node.lineno, name, ast.unparse(node)))
    return Facts(
        tuple(imports),
        frozenset(calls),
        frozenset(of_random),
        frozenset(defined),
        tuple(private),
        tuple(functions),
        tuple(classes),
        ast.get_docstring(tree) or "",
    )


def upward_imports(house: House) -> list[str]:
    """Imports of a room on the same floor or a higher one, and rooms without a floor."""
    floors = {room: number for number, rooms in enumerate(FLOORS) for room in rooms.split()}
    wrong = [f"{room} is on no floor" for room in sorted({room_of(path) for path in house.sources} - floors.keys())]
    return wrong + [
        f"{path} imports {other}: {room_of(other)} is not below {room_of(path)}"
        for path, others in house.imports.items()
        for other in sorted(others)
        if room_of(other) != room_of(path) and floors.get(room_of(other), -1) >= floors.get(room_of(path), -1)
    ]


def knots(house: House) -> list[str]:
    """Folders that import each other both ways without a reason, and reasons that are needed no longer."""
    edges = {(area_of(path), area_of(other)) for path, others in house.imports.items() for other in others}
    found = {f"{one} {other}" for one, other in edges if one < other and (other, one) in edges}
    return [f"{each} import each other" for each in sorted(found - KNOTS.keys())] + [
        f"{each} are untied" for each in sorted(KNOTS.keys() - found)
    ]


def circles(house: House) -> list[str]:
    """Files that import each other, over whatever way; lazy and type-only imports count."""
    imports = {path: set(others) for path, others in house.imports.items()}
    # Whoever imports nothing, or is imported by nobody, is in no circle; what is left when they are gone is.
    while True:
        imported = set().union(*imports.values()) if imports else set()
        outside = {path for path, others in imports.items() if not others or path not in imported}
        if not outside:
            break
        imports = {path: others - outside for path, others in imports.items() if path not in outside}
    return [f"{path} ↔ {', '.join(sorted(others))}" for path, others in sorted(imports.items())]


def impure(house: House) -> list[str]:
    """Pure files that import what has clocks, files, sockets or threads, or a file of ours that is not pure."""
    wrong = []
    for path in filter(is_pure, house.sources):
        wrong += [f"{path} imports {other}, which is not pure" for other in sorted(house.imports[path]) if not is_pure(other)]
        if path in FILES_ALLOWED:
            continue
        facts = house.facts(path)
        roots = {imported.name.partition(".")[0] for imported in facts.imports if not imported.is_typing}
        wrong += [f"{path} imports {root}" for root in sorted(roots & (IMPURE | FILES))]
        wrong += [f"{path} calls {function}" for function in sorted(facts.calls & {"open", "print", "input"})]
    return wrong


def random_of_its_own(house: House) -> list[str]:
    """Pure files that use more of `random` than the type of what a constructor is given."""
    wrong = []
    for path in filter(is_pure, house.sources):
        if path in FILES_ALLOWED:
            continue
        facts = house.facts(path)
        names = {imported.name for imported in facts.imports if imported.name.partition(".")[0] in ("random", "secrets")}
        if "random" in names:
            names = names - {"random"} | facts.of_random
        wrong += [f"{path} uses {name}" for name in sorted(names - {"random.Random"})]
    return wrong


def away_from_home(house: House) -> list[str]:
    """Packages that a folder must not know."""
    wrong = []
    for path in house.sources:
        for imported in house.facts(path).imports:
            home = AT_HOME.get(imported.name.partition(".")[0])
            if home is not None and not imported.is_typing and not path.startswith(f"{home}/"):
                wrong.append(f"{path} imports {imported.name}, which belongs in {home}/")
    return wrong


def private_names(house: House) -> list[str]:
    """Names with an underscore that are used outside the file that defines them."""
    wrong = []
    for path in house.sources:
        if path in PRIVATE_ALLOWED:
            continue
        facts = house.facts(path)
        for imported in facts.imports:
            name = imported.name.rpartition(".")[2]
            if imported.name.startswith("gossiplog.") and name.startswith("_") and not name.startswith("__"):
                wrong.append(f"{path} imports {imported.name}")
        wrong += [f"{path}:{line} uses {text}" for line, name, text in facts.private if name not in facts.defined]
    return wrong


def too_large(house: House) -> list[str]:
    """Files and functions too large to be read in one go."""
    wrong = []
    for path, source in house.sources.items():
        lines = source.count("\n")
        if lines > LINES_MAX:
            wrong.append(f"{path} has {lines} lines")
        wrong += [
            f"{path}:{name} has {length} lines"
            for name, length in house.facts(path).functions
            if length > FUNCTION_LINES_MAX and f"{path}:{name}" not in LARGE_FUNCTIONS
        ]
    return wrong


def unreached(house: House) -> list[str]:
    """Files that nothing imports or names as a place of a command."""
    reached = set().union(*house.imports.values()) | ENTRANCES
    commands = re.findall(r'"([a-z_.]+):[a-z_]+"', house.sources["cli/app.py"])
    reached |= {house.modules[f"cli.{name}"] for name in commands if f"cli.{name}" in house.modules}
    routers = re.findall(r'"(\.routers\.\w+)"', house.sources.get("pubsub/registry.py", ""))
    reached |= {house.modules[f"pubsub{name}"] for name in routers}
    return sorted(path for path in house.sources if path not in reached and not path.endswith("/__init__.py"))


def without_words(house: House) -> list[str]:
    """Files without a docstring, folders that do not say in one sentence what they are for, or what they export."""
    wrong = []
    folders = {path.rpartition("/")[0] for path in house.sources}
    wrong += [f"{folder} has no __init__.py" for folder in sorted(folders) if f"{folder}/__init__.py".lstrip("/") not in house.sources]
    for path in house.sources:
        facts = house.facts(path)
        if not facts.docstring:
            wrong.append(f"{path} has no docstring")
        elif path.endswith("__init__.py"):
            if not facts.docstring.partition("\n\n")[0].endswith("."):
                wrong.append(f"{path} does not say what the folder is for")
            if facts.imports and "__all__" not in facts.defined:
                wrong.append(f"{path} does not say what it exports")
    return wrong


def named_twice(house: House) -> list[str]:
    """Public class names that occur in several files without a reason, and reasons that are needed no longer."""
    places: dict[str, list[str]] = {}
    for path in set(house.sources) - FACADES:
        for name in house.facts(path).classes:
            places.setdefault(name, []).append(path)
    found = {name for name, paths in places.items() if len(paths) > 1 and not name.startswith("_")}
    allowed = {name for names in TWICE.values() for name in names.split()}
    return [f"{name} is in {', '.join(sorted(places[name]))}" for name in sorted(found - allowed)] + [
        f"{name} is there once" for name in sorted(allowed - found)
    ]


RULES = (
    upward_imports,
    knots,
    circles,
    impure,
    random_of_its_own,
    away_from_home,
    private_names,
    too_large,
    unreached,
    without_words,
    named_twice,
)
