"""The rules of the package's layout, asked of sources: which folder may import which, what is pure, how large a file may be.

Each rule is a function from a `House` to complaints, so that a violation can be planted in a copy without touching a file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

__all__ = ["ALLOWED", "PACKAGE", "PURE", "RULES", "House", "planted"]

PACKAGE = Path(__file__).parents[1] / "gossiplog"

ALLOWED: dict[str, str] = {
    "__init__": "codec entry errors gossip_log log store sync tree version",
    "__main__": "cli",
    "aio": "entry gossip_log plan portal replica store sync tasks",
    "archive": "codec entry errors",
    "arrow": "codec entry errors log plan tasks tree",
    "blocking": "entry gossip_log plan portal replica store sync tasks",
    "broadcast": "codec entry errors log plan pubsub sync",
    "cli": "archive cli/log codec entry errors ethereum gossip_log keyring net/hub store/postgres tasks version",
    "cli/log": "archive arrow cli codec entry errors gossip_log graph keyring log plan replica store store/sqlite tasks",
    "cli/net": (
        "cli cli/log entry errors glass gossip_log keyring net net/hub net/libp2p net/service "
        "plan pubsub sim store sync testnet tree version web web/glass"
    ),
    "cli/sim": "cli net/hub pubsub sim sim/check sim/experiments sim/measure sim/routing sim/simsub web/glass",
    "cli/spark": "cli entry errors spark spark/jobs spark/source",
    "cli/spark/submit": "cli",
    "codec": "errors",
    "entry": "codec errors",
    "ethereum": "codec entry errors",
    "glass": "broadcast codec entry errors pubsub pubsub/overlay sync",
    "gossip_log": "entry errors ethereum log net net/hub replica store tasks web",
    "keyring": "entry errors",
    "kit": "codec entry errors log",
    "log": "codec entry errors plan sketch tree",
    "net": "broadcast codec entry errors net/discovery net/libp2p net/service net/transport pubsub pubsub/wire replica sync tasks",
    "net/discovery": "codec errors net net/libp2p net/service net/transport pubsub sync",
    "net/hub": "broadcast codec entry errors log net net/service net/transport plan pubsub reconcile replica sync tasks tree",
    "net/libp2p": "codec entry errors net net/transport pubsub sync tasks version",
    "net/service": (
        "broadcast codec entry errors glass log net net/transport plan pubsub pubsub/wire reconcile replica store sync tasks tree"
    ),
    "net/transport": "codec errors net/transport/yamux pubsub tasks",
    "net/transport/yamux": "errors",
    "portal": "errors gossip_log log net/hub net/service replica",
    "pubsub": "codec entry errors pubsub/overlay",
    "pubsub/gossip": "pubsub",
    "pubsub/overlay": "pubsub",
    "pubsub/routers": "pubsub pubsub/gossip pubsub/overlay",
    "pubsub/wire": "codec errors pubsub pubsub/overlay",
    "reconcile": "codec entry errors log plan sketch sync tree",
    "replica": "arrow codec entry errors log plan reconcile sketch store sync tasks tree",
    "sim": "errors sim/experiments",
    "sim/experiments": "pubsub pubsub/routers",
    "sim/check": "broadcast codec entry errors log plan pubsub pubsub/overlay reconcile replica sim sketch store/memory sync tree",
    "sim/measure": "errors glass pubsub pubsub/overlay sim sim/experiments sim/routing",
    "sim/routing": "errors pubsub pubsub/overlay sim sim/experiments sim/measure",
    "sim/simsub": "errors sim sim/routing",
    "sketch": "errors tree",
    "spark": "errors spark/source spark/tables",
    "spark/autoload": "spark/source",
    "spark/jobs": "arrow entry errors log plan sim/measure spark/source spark/tables store/postgres tree version",
    "spark/source": "archive arrow codec entry errors gossip_log log plan spark/tables store store/postgres store/sqlite tasks tree",
    "spark/tables": "arrow codec entry errors ethereum glass sim/measure spark/jobs spark/source tree",
    "store": "entry errors log plan store/memory store/postgres store/sqlite tree",
    "store/memory": "entry errors log plan store tree",
    "store/postgres": "entry errors log plan store tasks tree version",
    "store/sqlite": "entry errors log plan store tree version",
    "sync": "codec entry errors log plan tree",
    "tasks": "errors",
    "testing": "codec entry errors log store",
    "testnet": (
        "archive codec entry errors glass gossip_log net/hub net/libp2p net/service net/transport pubsub pubsub/wire "
        "sim sim/measure sim/routing sync tasks version web web/glass"
    ),
    "tree": "errors plan",
    "web": "archive codec entry errors log net net/hub net/service net/transport plan pubsub replica sync tasks version web/glass",
    "web/glass": (
        "codec entry errors glass graph log net net/hub net/service net/transport plan pubsub replica sync tasks tree version web"
    ),
}
"""Which folder (or module at the top) imports which others; a new edge is a decision, made here."""

PURE = frozenset(
    {"errors", "plan", "codec", "entry", "tree", "sketch", "log", "pubsub", "sync", "reconcile", "broadcast", "glass"}
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
AT_HOME = {"libp2p": "net/libp2p", "pyspark": "spark", "aiosqlite": "store/sqlite", "asyncpg": "store/postgres"}
"""Packages that only one folder may know."""
PRIVATE_ALLOWED = {
    "store/sqlite/connection.py": "aiosqlite's queue and thread have no public name",
    "codec/link.py": "multiformats' CID has no public way to be made without checking twice",
    "testnet/nest.py": "the os has no public name for the end of a forked process that runs nothing of its parent's",
    "replica/care.py": "a replica copies from the store of another replica, of its own class",
}
"""Files that use another's private names, and why."""
LINES_MAX = 700
FUNCTION_LINES_MAX = 70
LARGE_FILES: dict[str, str] = {}
"""None at present. An entry says why the file is not cut."""
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
        "spark/autoload/pyspark_gossiplog.py",
        "testnet/liar.py",
        "testnet/nest.py",
        "sim/simsub/vector.py",
    }
)
"""What is run or imported from outside: commands, what Spark looks for, and the engine that benchmarks and users call."""


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
        docstring: Empty if it has none.
    """

    imports: tuple[Imported, ...]
    calls: frozenset[str]
    of_random: frozenset[str]
    defined: frozenset[str]
    private: tuple[tuple[int, str, str], ...]
    functions: tuple[tuple[str, int], ...]
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
            case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
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
        ast.get_docstring(tree) or "",
    )


def forbidden_edges(house: House) -> list[str]:
    """Imports from folders that a folder may not import."""
    return [
        f"{path} imports {other}: {area_of(path)} may not import {area_of(other)}"
        for path, others in house.imports.items()
        for other in sorted(others)
        if area_of(other) not in {area_of(path), *ALLOWED.get(area_of(path), "").split()}
    ]


def unused_edges(house: House) -> list[str]:
    """Edges that are allowed and that nobody uses any more."""
    used = {(area_of(path), area_of(other)) for path, others in house.imports.items() for other in others}
    return [f"{area} → {other}" for area, others in ALLOWED.items() for other in others.split() if (area, other) not in used]


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
        if lines > LINES_MAX and path not in LARGE_FILES:
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
            if "__all__" not in facts.defined:
                wrong.append(f"{path} has no __all__")
    return wrong


RULES = (
    forbidden_edges,
    unused_edges,
    circles,
    impure,
    random_of_its_own,
    away_from_home,
    private_names,
    too_large,
    unreached,
    without_words,
)
