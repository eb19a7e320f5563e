"""Makes `gossiplog/web/built/client.js` of the client's modules, by esbuild of npm: `python tests/support/build_client.py`."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
from pathlib import Path

TOOLS = Path(__file__).parents[1] / "page"
SOURCES = Path(__file__).parents[2] / "gossiplog" / "web" / "client"
BUILT = SOURCES.parent / "built" / "client.js"


def install_tools() -> None:
    """Install what package-lock.json names, unless it is there."""
    lock, mark = TOOLS / "package-lock.json", TOOLS / "node_modules" / ".installed"
    # Several processes of one run of pytest may come here.
    with (TOOLS / ".gitignore").open() as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not mark.exists() or mark.read_bytes() != lock.read_bytes():
            subprocess.run(["npm", "ci"], cwd=TOOLS, check=True, stdin=subprocess.DEVNULL)
            mark.write_bytes(lock.read_bytes())


def head() -> str:
    """The first line of what is built: it names the sources by a hash, which tells whether they have changed since."""
    sources = b"\0".join(path.name.encode() + b"\0" + path.read_bytes() for path in sorted(SOURCES.glob("*.js")))
    return f"// GossipLog's client for browsers, MIT licence; built of its modules {hashlib.sha256(sources).hexdigest()[:16]}"


def build() -> str:
    """Bundle the modules, and shorten what comes of it."""
    options = ["--bundle", "--minify", "--format=esm", "--target=es2022", "--charset=utf8", f"--banner:js={head()}"]
    command = [str(TOOLS / "node_modules" / ".bin" / "esbuild"), str(SOURCES / "client.js"), *options]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    install_tools()
    BUILT.parent.mkdir(exist_ok=True)
    BUILT.write_text(build())
    print(f"{BUILT}: {BUILT.stat().st_size:,} bytes")
