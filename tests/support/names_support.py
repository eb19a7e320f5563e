"""Finds names in docstrings, comments and documents that do not exist, and docstrings that say nothing of an argument."""

import ast
import builtins
import functools
import itertools
import keyword
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from gossiplog.cli.app import COMMANDS, root

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "gossiplog").rglob("*.py"))
OTHERS = """
BlockingPortal ChaCha20 ChaChaPoly DataFrames GoCast GossipSub HyParView JetStream McCormick NeighborDown OpenMetrics OpenTelemetry
PgBouncer PyNaCl SIWESigner WebSockets KeyType Secp256k1DelegateSigner Secp256k1SignatureScheme M_MMAP_THRESHOLD
YRoom YDocExtension BaseYStore FileIdManager JUPYTER_DATA_DIR document_save_delay ystore_class
Noise_XX_25519_ChaChaPoly_SHA256 OPEN AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_REGION AWS_ENDPOINT
"""
"""Other people's software, protocols and papers, as they spell them."""
CALLED = """
Signature.from apply_update get_update client_id computeAddress getAbiString toISOString handleGraft df where __setattr__ startLibp2p
to_pandas from_arrow pushFilters group_by json_extract_string scan_parquet st randoms iostat ps chunked new_event_loop build_info
inherited_members members_order api.ts extension_preamble.nim simsub/episub.ss partial-messages.md
"""
"""Functions, options and files of others."""
MADE_UP = """
k_a k_p ed01 fe1fffffffffffff af1349b9f5f9a1a6a0404dea36dcc949 glog minclock todos my_id shared.json gossiplog_NAME _s _interval
GOSSIPLOG_CONFIG migrations/sqlite/NNNN_name.sql migrations/postgres/NNNN_name.sql report.md report.json drafts/
"""
"""Symbols of papers, bytes and words of a format, names in an example, and what the package writes where it is told to."""
ALLOWED = frozenset(f"{OTHERS} {CALLED} {MADE_UP}".split())
BESIDES = frozenset({"--add-modules", "--only", "--pause-s", "--pubsub-alone", "--terminal", "--help"}) | {
    *("--proxy-headers", "--ws-max-size", "--timeout-graceful-shutdown", "--lifespan", "--root-path"),
    *("--graceful-timeout", "--workers-kill-timeout"),
}
"""Options of Java's, of ASGI servers', of benchmarks and of examples."""
FILE = re.compile(r"(?<![\w./<>…*@{-])(?:[\w.-]+/)*[\w-]+\.(?:py|md|sql|toml|mjs|js|css|ts|nim|ss|yml|json|svg|webp)(?![\w/(-])")
FOLDER = re.compile(r"(?:[a-z_]+/)+")
NAME = re.compile(r"(?:await |async with |with |yield from )?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(.*\)|\[.*\])?")
WORD = re.compile(r"[A-Za-z_]\w*")
PLAIN = re.compile(r"\b(?:[A-Z][a-z0-9]+){2,}\b|\b[a-z]+(?:_[a-z0-9]+)+\b")
"""Words that are taken for names without backquotes."""
QUOTED = re.compile(r"(?<![`\\])`([^`]+)`(?!`)")
NOTHING = re.compile(
    r"^ +\w+: (?:(?:From|To|With|Of) )?(?:Whose|Who|Whom|Ours|Theirs|Mine|Which|What|Where|When|How|Why|How many)\.$"
    r"|^ +\w+: (?:See there|The same|As given|Any|Open|Raises)\.$",
    re.MULTILINE,
)
"""An argument, an attribute or an error of which a docstring says nothing."""
COMMENT = re.compile(r"(?:^|(?<=  ))# (.*(?:\n *# .*)*)", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


@functools.cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """A file's syntax, found once."""
    return tuple(ast.walk(ast.parse(source)))


@functools.cache
def told(source: str) -> tuple[ast.Constant, ...]:
    """The docstrings of a file, those of its attributes as well."""
    values = [node.value for node in nodes(source) if isinstance(node, ast.Expr)]
    return tuple(node for node in values if isinstance(node, ast.Constant) and isinstance(node.value, str))


def texts(source: str) -> Iterator[str]:
    """The docstrings and comments of a file; comments on lines one below the other are one text."""
    yield from (str(docstring.value) for docstring in told(source))
    yield from (re.sub(r"\n *# ?", " ", comment) for comment in COMMENT.findall(source))


def words(source: str) -> Iterator[str]:
    """The words of a file's code and of its strings, but not those of its docstrings and comments."""
    docstrings = set(map(id, told(source)))
    for node in nodes(source):
        match node:
            case ast.Constant(value=str() | bytes() as text) if id(node) not in docstrings:
                plain = text if isinstance(text, str) else text.decode("latin-1")
                yield from (word.removeprefix("gossiplog_") for word in WORD.findall(plain))
            case ast.Name(id=str(name)) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name) | ast.ImportFrom(module=str(name)):
                yield from name.split(".")


@functools.cache
def files() -> frozenset[str]:
    """The files of the repository, and its folders with a slash at the end, by every path that ends in their names."""
    top = [path for path in ROOT.iterdir() if not path.name.startswith(".") or path.name == ".ci"]
    found = [path for each in top for path in (each, *each.rglob("*")) if not {"node_modules", "__pycache__"} & set(path.parts)]
    parts = [(path.relative_to(ROOT).parts, "/" if path.is_dir() else "") for path in found]
    return frozenset("/".join(names[start:]) + slash for names, slash in parts for start in range(len(names)))


@functools.cache
def known() -> frozenset[str]:
    """Every word that may name something: of the package's code, its SQL and page, of examples, of Python, and those allowed."""
    found = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *sys.stdlib_module_names, *ALLOWED}
    for folder in ("gossiplog", "migrations", "examples", "deploy"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix == ".py":
                found.update(words(path.read_text("utf-8")))
            elif path.suffix in (".sql", ".js", ".mjs", ".html", ".css", ".toml", ".yml", ".json", ".service"):
                found.update(WORD.findall(path.read_text("utf-8")))
    found.update(WORD.findall((ROOT / "pyproject.toml").read_text("utf-8")), *(WORD.findall(Path(name).stem) for name in files()))
    return frozenset(found)


@functools.cache
def members() -> dict[str, frozenset[str]]:
    """What each class of the package has and inherits, if it builds on none of others; classes of one name count together."""
    own: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for source in SOURCES:
        for node in nodes(source.read_text("utf-8")):
            if isinstance(node, ast.ClassDef):
                own.setdefault(node.name, set()).update(defined(node))
                bases.setdefault(node.name, set()).update(WORD.findall(ast.unparse(base))[0] for base in node.bases)
    inert = own.keys() | {"Generic", "Protocol", "NamedTuple"}

    def whole(name: str) -> frozenset[str]:
        return frozenset(own[name]).union(*(whole(base) for base in bases[name] if base in own and base != name))

    return {name: whole(name) for name in own if bases[name] <= inert}


def defined(node: ast.ClassDef) -> Iterator[str]:
    """The names that a class defines: methods, fields, attributes of `self`, and what its constructor takes."""
    for inner in ast.walk(node):
        match inner:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
        if isinstance(inner, ast.FunctionDef) and inner.name in ("__init__", "__new__"):
            yield from arguments(inner)


def arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The names of a function's arguments."""
    return {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}


@functools.cache
def options() -> dict[str, frozenset[str]]:
    """The options of every command, by its path: `key new` say."""
    found: dict[str, frozenset[str]] = {}
    waiting: list[tuple[str, click.Command | None]] = [(name, root.get_command(click.Context(root), name)) for name in COMMANDS]
    while waiting:
        path, command = waiting.pop()
        assert command is not None
        found[path] = frozenset(name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts))
        if isinstance(command, click.Group):
            waiting += [(f"{path} {name}", each) for name, each in command.commands.items()]
    return found


def unknown_options(span: str) -> Iterator[str]:
    """A command that there is not, and options that no command has, or not this one."""
    given = [option for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", span) if option not in BESIDES]
    if match := re.match(r"gossiplog ([a-z]+)(?: ([a-z]+))?", span):
        path = f"{match[1]} {match[2]}" if f"{match[1]} {match[2]}" in options() else match[1]
        has = options().get(path)
        yield from [span] if has is None else [f"gossiplog {path} {option}" for option in given if option not in has]
    elif span.startswith("--"):
        yield from (option for option in given if not any(option in has for has in options().values()))


def missing_in(span: str, here: frozenset[str] = frozenset()) -> Iterator[str]:
    """The names between two backquotes that are nowhere."""
    span = " ".join(span.split())
    paths = FILE.findall(span) + FOLDER.findall(span) * (FOLDER.fullmatch(span) is not None)
    yield from (path for path in paths if path not in files() and path not in ALLOWED)
    yield from unknown_options(span)
    match = NAME.fullmatch(span)
    if paths or match is None or match[1] in ALLOWED:
        return
    parts = match[1].split(".")
    if any(not {part, part.removeprefix("gossiplog_"), part.removesuffix("_total")} & (known() | here) for part in parts) or any(
        owner in members() and name not in members()[owner] for owner, name in itertools.pairwise(parts)
    ):
        yield match[1]


def missing(text: str, here: frozenset[str] = frozenset()) -> Iterator[str]:
    """The names that a docstring, a comment or a page gives and that are nowhere; `here` are those that the page's code defines."""
    for span in QUOTED.findall(text):
        yield from missing_in(span, here)
    yield from (word for word in PLAIN.findall(QUOTED.sub(" ", text)) if word not in known() and word not in here)


def missing_on(page: str) -> Iterator[str]:
    """The names that a page gives outside of its code, and that are nowhere, nor in that code."""
    return missing(FENCE.sub("", page), frozenset(WORD.findall(" ".join(FENCE.findall(page)))))


def fields(docstring: str, head: str) -> list[str]:
    """The names that a section of a docstring explains."""
    section = re.search(rf"^{head}:\n((?:    .*\n?|\n)+)", docstring, re.MULTILINE)
    lines = re.findall(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*):", section[1], re.MULTILINE) if section else []
    return [name.strip("* ") for line in lines for name in line.split(",")]


def unfounded(source: str) -> Iterator[str]:
    """What a file's docstrings explain as arguments and attributes that are none."""
    for node in nodes(source):
        if isinstance(node, ast.ClassDef):
            bases = [members().get(WORD.findall(ast.unparse(base))[0], frozenset()) for base in node.bases]
            has = frozenset(defined(node)).union(*bases)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            has = frozenset(arguments(node))
        else:
            continue
        docstring = ast.get_docstring(node) or ""
        yield from (f"{node.name}: {name}" for head in ("Args", "Attributes") for name in fields(docstring, head) if name not in has)


def unexplained(source: str) -> list[str]:
    """Lines in which a file's docstrings say nothing of an argument, an attribute or an error."""
    return [found.strip() for found in NOTHING.findall(source)]
