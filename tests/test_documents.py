"""What documents say of each other and of the code is there: links, headings, and the specifications that docstrings cite."""

import re
from functools import cache
from pathlib import Path

import pytest

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
