"""A hook of MkDocs: the site also has what its pages link to outside of docs/, such as results of benchmarks, examples and sources."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PLACE = "repository/"
"""Where they are on the site, below the same paths as in the repository."""
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")


def in_repository(uri: str) -> str:
    """The path of a page of the site in the repository."""
    return uri.removeprefix(PLACE) if uri.startswith(PLACE) else f"docs/{uri}"


def of_site(path: str) -> str:
    """The inverse."""
    return path.removeprefix("docs/") if path.startswith("docs/") else PLACE + path


def targets(path: str, text: str) -> set[str]:
    """The files in the repository that a page there links to."""
    found = {posixpath.normpath(posixpath.join(posixpath.dirname(path), link)) for link in _LINK.findall(text)}
    return {each for each in found if (ROOT / each).is_file()}


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add what is linked to, and what that links to."""
    waiting = [in_repository(file.src_uri) for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        if path.endswith(".md"):
            new = targets(path, (ROOT / path).read_text("utf-8")) - seen
            seen |= new
            waiting += new
        if not path.startswith("docs/"):
            files.append(File.generated(config, of_site(path), abs_src_path=str(ROOT / path)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Have links lead to where their targets are on the site."""
    here = in_repository(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[1]))
        return posixpath.relpath(of_site(path), posixpath.dirname(page.file.src_uri)) if (ROOT / path).is_file() else match[1]

    return _LINK.sub(moved, markdown)
