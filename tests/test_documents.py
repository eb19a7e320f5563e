"""What documents say of each other and of the code is there: links, headings, and the specifications that docstrings cite."""

import re
import tomllib
from functools import cache
from inspect import signature
from pathlib import Path

import pytest
from names_support import PLAIN, members, missing, missing_on, texts, told, unexplained, unfounded

import gossiplog

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "examples")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
SOURCES = sorted((ROOT / "gossiplog").rglob("*.py"))
_CITATION = re.compile(r'docs/([\w/-]+\.md)((?:, (?:and )?"[^"]+"|,? and "[^"]+")*)')


def prose(page: Path) -> str:
    """A page without its code."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


@cache
def headings(page: Path) -> list[str]:
    """The headings of a page, without marks."""
    return [re.sub(r"[`*]", "", heading).strip() for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)]


def anchors(page: Path) -> set[str]:
    """The names by which links reach its headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(page)}


@cache
def named(page: Path) -> str:
    """What a citation may name on a page: headings, first cells of tables, and what is set in bold."""
    text = prose(page)
    cells = re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)
    return "\n".join([*headings(page), *cells, *re.findall(r"\*\*([^*]+)\*\*", text)])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists():
            wrong.append(f"{target}: no such file")
        elif anchor and there.suffix == ".md" and anchor not in anchors(there):
            wrong.append(f"{target}: no such heading")
    assert wrong == []


def test_docstrings_cite_what_is_there() -> None:
    wrong = []
    cited = 0
    for source in SOURCES:
        for name, quoted in _CITATION.findall(re.sub(r"\n\s*", " ", source.read_text("utf-8"))):
            page = ROOT / "docs" / name
            place = f"{source.relative_to(ROOT)} cites docs/{name}"
            if not page.exists():
                wrong.append(place)
                continue
            cited += 1
            wrong += [f'{place}, "{title}"' for title in re.findall(r'"([^"]+)"', quoted) if title not in named(page)]
    assert wrong == []
    assert cited > 50


def test_docstrings_cite_specifications_by_their_place() -> None:
    outside = re.compile(r"(?<![\w/])spec/\w+\.md|ARCHITECTURE\.md|CONVENTIONS\.md")
    assert [f"{source.relative_to(ROOT)}: {match[0]}" for source in SOURCES for match in outside.finditer(source.read_text("utf-8"))] == []


def test_readme_is_a_first_screen() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 14_000


def test_reference_has_every_public_name() -> None:
    text = (ROOT / "docs" / "reference.md").read_text("utf-8")
    assert [name for name in gossiplog.__all__ if name != "__version__" and f"::: gossiplog.{name}\n" not in text] == []


def test_reference_has_what_methods_return() -> None:
    text = (ROOT / "docs" / "reference.md").read_text("utf-8")
    methods = [value for name in dir(gossiplog.GossipLog) if name[0] != "_" and callable(value := getattr(gossiplog.GossipLog, name))]
    returned = {word for method in methods for word in re.findall(r"[A-Z]\w+", str(signature(method).return_annotation))}
    others = {"Any", "AsyncIterator", "Iterator", "None", "Pages", "Reader", "RecordBatch", "SketchView", "T", "V"}
    assert [name for name in sorted(returned - others) if not re.search(rf"^::: gossiplog\.\S*\b{name}$", text, re.MULTILINE)] == []
    assert {"Published", "Exchanged", "LogMember", "Hub", "HubLink"} <= returned


def test_pages_are_as_wide_as_the_phone_that_shows_them() -> None:
    # Without this line a phone draws them 980 pixels wide, and too small to read.
    texts = [page.read_text("utf-8") for page in [*PAGES, *(ROOT / "examples").rglob("*.html")]]
    pages = [page for text in texts for page in text.split("<!doctype html>")[1:]]
    assert len(pages) >= 4
    assert [page[:200] for page in pages if 'name="viewport" content="width=device-width"' not in page[:200]] == []


def test_readme_and_the_site_begin_alike() -> None:
    start = (ROOT / "docs" / "index.md").read_text("utf-8").partition("\nBegin with")[0]
    assert len(start.splitlines()) > 5
    assert (ROOT / "README.md").read_text("utf-8").startswith(start)


def test_extras_exist_and_are_added_in_one_way() -> None:
    # pip takes an installed package as it is, from a clone too, and adds what the extra brings. Only a first command in a clone names that.
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])
    for path in [*PAGES, *SOURCES]:
        text = path.read_text("utf-8")
        assert {name for names in re.findall(r"pip install .*?'\S*\[([\w,]+)\]'", text) for name in names.split(",")} <= extras, path
        assert re.findall(r"pip install '\.\[(?!docs\])", prose(path)) == [], f"{path}: pip install 'gossiplog[…]'"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_names_on_a_page_exist(page: Path) -> None:
    # Not in CHANGELOG.md, which may name what is gone.
    assert list(missing_on(page.read_text("utf-8"))) == []


def test_names_in_docstrings_and_comments_exist() -> None:
    assert [
        f"{path.relative_to(ROOT)}: {name}" for path in SOURCES for text in texts(path.read_text("utf-8")) for name in missing(text)
    ] == []


def test_docstrings_explain_arguments_and_attributes_that_exist() -> None:
    assert [f"{path.relative_to(ROOT)}: {name}" for path in SOURCES for name in unfounded(path.read_text("utf-8"))] == []


def test_docstrings_say_something_of_each_argument() -> None:
    assert [f"{path.relative_to(ROOT)}: {line}" for path in SOURCES for line in unexplained(path.read_text("utf-8"))] == []
    assert unexplained("        peer: Who.\n        key: 20 bytes.\n") == ["peer: Who."]


def test_tables_in_docstrings_have_a_line_for_each_row() -> None:
    lines = [(path, line) for path in SOURCES for node in told(path.read_text("utf-8")) for line in str(node.value).splitlines()]
    assert [f"{path.relative_to(ROOT)}: {line}" for path, line in lines if re.search(r"\S\s*\|---", line.strip().lstrip("|-: "))] == []


def test_docstrings_do_not_begin_with_a_class() -> None:
    """They begin with a verb or a noun: `Append` that became `AppendPayloads` everywhere is no verb any more."""
    names = members().keys() - {"GossipLog"}
    begun = [(path, str(node.value).split(maxsplit=1)) for path in SOURCES for node in told(path.read_text("utf-8"))]
    assert [f"{path.relative_to(ROOT)}: {first[0]}" for path, first in begun if PLAIN.fullmatch(first[0]) and first[0] in names] == []


@pytest.mark.parametrize(
    "text",
    [
        "calls `no_such_function`",
        "`NoSuchClass(1)` of ours",
        "NoSuchClass without backquotes",
        "no_such_function without them",
        "`gossiplog.no_such_module`",
        "`Entry.no_such_attribute`",
        "`await log.no_such_method()`",
        "`replica/no_such_file.py`",
        "see `no_such_room/`",
        "`gossiplog nosuchcommand app.db`",
        "`gossiplog append --no-such-option`",
        "`--no-such-option`",
    ],
)
def test_name_that_does_not_exist_is_found(text: str) -> None:
    assert len(list(missing(text))) == 1


@pytest.mark.parametrize(
    "text", ["`Entry.message`", "`gossiplog append -q --key NAME`", "`log/commit.py` of `log/`", "`apply`", "`trio.Lock()`"]
)
def test_name_that_exists_is_not_found(text: str) -> None:
    assert list(missing(text)) == []


def test_argument_that_does_not_exist_is_found() -> None:
    assert list(unfounded('def call(a, *b):\n    """Call.\n\n    Args:\n        a, b: Two.\n        gone: Three.\n    """\n')) == [
        "call: gone"
    ]
    assert list(
        unfounded('class C:\n    """A class.\n\n    Attributes:\n        kept: One.\n        gone: Two.\n    """\n\n    kept: int\n')
    ) == ["C: gone"]
