"""The layers of the package: imports point down only, the pure ones stay pure, and each folder says what it is for.

From the bottom up: codec and errors; log and tree; store, pubsub and sync; the log and the
composed protocol; the two drivers; web and spark; the command line.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)

PACKAGE = Path(__file__).parents[1] / "gossiplog"

LAYERS = {
    "errors": 0,
    "version": 0,
    "plan": 0,
    "codec": 0,
    "log": 1,
    "tree": 1,
    "store": 2,
    "pubsub": 2,
    "sync": 2,
    "graph": 2,
    "ethereum": 2,
    "archive": 2,
    "arrow": 2,
    "keyring": 2,
    "nursery": 2,
    "ordered": 2,
    "pages": 2,
    "copying": 3,
    "gossip_log": 3,
    "integrity": 3,
    "log_care": 3,
    "log_reader": 3,
    "salvaging": 3,
    "subscription": 3,
    "writer": 3,
    "broadcast": 3,
    "sim": 4,
    "net": 4,
    "web": 5,
    "spark": 5,
    "cli": 6,
    "__main__": 6,
    "__init__": 6,
}
"""Each module and folder of the package; a new one must be given its place here."""

PURE = ("codec", "log", "tree", "pubsub", "sync", "broadcast", "errors", "plan")
"""What does no input or output and knows no clock: everything it needs is handed to it."""
PURE_IN_NET = ("net/yamux/", "net/transport/multistream.py")
FILES = {"os", "io", "tempfile", "secrets", "shutil", "pathlib"}
IMPURE = {"trio", "asyncio", "time", "socket", "sqlite3", "threading", "subprocess", "aiosqlite", "asyncpg", "ssl", "select", "datetime"}
FILES_ALLOWED = {"entry/signing.py"}
"""Pure but for the keys' files, which it reads and writes where it is told to."""
UPWARD = {("gossip_log", "net"), ("gossip_log", "web")}
"""`log.listen` and `log.connect` are where users look for them; they import the network when they are called, and nothing else does."""
AT_HOME = {"libp2p": "net", "pyspark": "spark", "aiosqlite": "store", "asyncpg": "store", "coincurve": "ethereum", "Crypto": "ethereum"}
"""Packages that only one folder may know."""

MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(module: Path) -> str:
    return str(module.relative_to(PACKAGE))


def area_of(module: Path) -> str:
    parts = module.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else module.stem


PURE_MODULES = [module for module in MODULES if area_of(module) in PURE or name_of(module).startswith(PURE_IN_NET)]


def walk(module: Path, kind: type[Node]) -> Iterator[Node]:
    return (node for node in ast.walk(ast.parse(module.read_text("utf-8"))) if isinstance(node, kind))


def imports_of(module: Path) -> Iterator[tuple[str, bool]]:
    """Absolute names of what a module imports, within functions and for type checkers as well; and whether it is at run time."""
    tree = ast.parse(module.read_text("utf-8"))
    typing_only = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test)
        for statement in branch.body
        for node in ast.walk(statement)
    }
    package = ["gossiplog", *module.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) not in typing_only
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                yield f"{source}.{alias.name}", id(node) not in typing_only


def areas_imported(module: Path) -> Iterator[tuple[str, str, bool]]:
    for name, is_real in imports_of(module):
        parts = name.split(".")
        if parts[0] != "gossiplog":
            continue
        yield (parts[1] if len(parts) > 1 else "__init__"), name, is_real


def test_every_module_has_a_layer() -> None:
    assert sorted({area_of(module) for module in MODULES} - LAYERS.keys()) == []


def test_imports_point_down_only() -> None:
    wrong = []
    for module in MODULES:
        area = area_of(module)
        for imported, name, is_real in areas_imported(module):
            # What is no module is a public name of the package itself, at its top.
            layer = LAYERS.get(imported, LAYERS["__init__"])
            if is_real and imported != area != "__init__" and layer > LAYERS.get(area, 0) and (area, imported) not in UPWARD:
                wrong.append(f"{name_of(module)} imports {name} from above")
    assert wrong == []


def test_neither_driver_imports_the_other() -> None:
    drivers = {"sim", "net"}
    wrong = []
    for module in MODULES:
        if area_of(module) in drivers:
            others = drivers - {area_of(module)}
            wrong += [f"{name_of(module)} imports {name}" for imported, name, _ in areas_imported(module) if imported in others]
    assert wrong == []


def test_pure_layers_have_no_clock_no_input_and_no_output() -> None:
    wrong = []
    for module in PURE_MODULES:
        roots = {name.split(".")[0] for name, is_real in imports_of(module) if is_real}
        refused = IMPURE if name_of(module) in FILES_ALLOWED else IMPURE | FILES
        wrong += [f"{name_of(module)} imports {root}" for root in sorted(roots & refused)]
        if name_of(module) not in FILES_ALLOWED:
            called = {call.func.id for call in walk(module, ast.Call) if isinstance(call.func, ast.Name)}
            wrong += [f"{name_of(module)} calls {function}" for function in sorted(called & {"open", "print", "input"})]
    assert wrong == []


def test_pure_layers_have_no_randomness_of_their_own() -> None:
    wrong = []
    for module in PURE_MODULES:
        # `random.Random` is the type of what a constructor is given; any other function of the module has state that all share.
        names = {name for name, _ in imports_of(module) if name.split(".")[0] in ("random", "secrets")}
        if "random" in names:
            names.discard("random")
            used = {node.attr for node in walk(module, ast.Attribute) if isinstance(node.value, ast.Name) and node.value.id == "random"}
            names |= {f"random.{attribute}" for attribute in used}
        if name_of(module) not in FILES_ALLOWED:
            wrong += [f"{name_of(module)} uses {name}" for name in sorted(names - {"random.Random"})]
    assert wrong == []


def test_some_packages_are_known_in_one_place_only() -> None:
    wrong = []
    for module in MODULES:
        for name, is_real in imports_of(module):
            home = AT_HOME.get(name.split(".")[0])
            if home is not None and is_real and area_of(module) != home:
                wrong.append(f"{name_of(module)} imports {name}, which belongs in {home}/")
    assert wrong == []


def test_every_folder_says_what_it_is_for_and_what_it_exports() -> None:
    wrong = []
    for folder in sorted({module.parent for module in MODULES}):
        init = folder / "__init__.py"
        if not init.exists():
            wrong.append(f"{folder.name} has no __init__.py")
            continue
        tree = ast.parse(init.read_text("utf-8"))
        if not (ast.get_docstring(tree) or "").partition("\n\n")[0].endswith("."):
            wrong.append(f"{folder.name} does not say what it is for")
        assigned = {name.id for node in tree.body if isinstance(node, ast.Assign) for name in node.targets if isinstance(name, ast.Name)}
        annotated = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
        if "__all__" not in assigned | annotated:
            wrong.append(f"{folder.name} has no __all__")
    assert wrong == []


def test_every_module_begins_with_a_docstring() -> None:
    assert [name_of(module) for module in MODULES if not ast.get_docstring(ast.parse(module.read_text("utf-8")))] == []


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = {"trio", "asyncio", "sqlite3", "aiosqlite", "asyncpg", "multiformats", "dag_cbor", "rich", "click", "libp2p", "pyspark"}
    program = "import sys, gossiplog; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert sorted(heavy & set(ran.stdout.split())) == []
