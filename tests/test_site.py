"""The documents as a site: whole without the Internet, with the API reference that it promises."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']([^"']+)|<link\b(?=[^>]*\brel=["'](?!canonical)[^"']+)[^>]*\bhref=["']([^"']+)"""
)
_OF_STYLES = re.compile(r"""(?:url\(|@import\s+)["']?((?:https?:)?//[^"')\s]+)""")


@pytest.mark.slow
def test_site_is_whole_without_the_internet_and_has_the_reference(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(site)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    loaded = {target for page in pages for found in _LOADED.findall(page.read_text("utf-8")) for target in found if target}
    assert any(target.endswith("assets/code.css") for target in loaded)
    outside = {target for target in loaded if re.match(r"(?:https?:)?//", target)}
    outside |= {target for style in site.rglob("*.css") for target in _OF_STYLES.findall(style.read_text("utf-8"))}
    assert outside == set()
    links = {(page, link) for page in pages for link in re.findall(r'<a\b[^>]*\bhref="([^"#?]+)', page.read_text("utf-8"))}
    dead = {
        f"{page.relative_to(site)}: {link}"
        for page, link in links
        if not re.match(r"[a-z]+:|/", link) and not (page.parent / link).exists()
    }
    assert dead == set()
    assert (site / "repository/benchmarks/results/hub/index.html").exists()
    assert '<div class="codehilite">' in (site / "library" / "index.html").read_text("utf-8")
    anchors = set(re.findall(r'id="(gossiplog[\w.]*)"', (site / "reference" / "index.html").read_text("utf-8")))
    names = (
        "open",
        "Application",
        "replica.tx.Tx",
        "replica.tx.SyncTx",
        "log.past.Past",
        "aio.open",
        "aio.GossipLog",
        "blocking.GossipLog",
    )
    assert {f"gossiplog.{name}" for name in names} <= anchors
