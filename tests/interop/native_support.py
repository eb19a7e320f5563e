"""Programs in Go and Rust, built once and kept outside of the tree: peers of libp2p with their pubsubs, and Go's transparency logs."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["build_go", "build_rust", "build_tlog"]

_FOLDER = Path(__file__).parent
_TOOLCHAINS = (Path("/usr/local/go/bin"), Path.home() / ".cargo" / "bin")


def build_go() -> str:
    """Return the path of the program in Go; skip the tests where there is no Go."""
    go = _tool("go")
    return _build("go", [go, "build", "-o", "peer", "."], "peer", {"CGO_ENABLED": "0"})


def build_tlog() -> str:
    """Return the path of the program with Go's libraries for transparency logs; skip the tests where there is no Go."""
    go = _tool("go")
    return _build("tlog", [go, "build", "-o", "verify", "."], "verify", {"CGO_ENABLED": "0"})


def build_rust(*, is_optimized: bool = False) -> str:
    """Return the path of the program in Rust; skip the tests where there is no cargo. Optimized, for figures, it takes minutes to build."""
    command = [_tool("cargo"), "build", "--quiet", *["--release"] * is_optimized]
    program = f"target/{'release' if is_optimized else 'debug'}/gossiplog-interop"
    return _build("rust", command, program, {"CARGO_TARGET_DIR": "target"})


def _tool(name: str) -> str:
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, _TOOLCHAINS)])
    found = shutil.which(name, path=path)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _build(name: str, command: list[str], program: str, environment: dict[str, str]) -> str:
    """Build a copy of a folder here, unless that was done with just these files; several processes of one run may come at once."""
    source = _FOLDER / name
    files = sorted(path for path in source.rglob("*") if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gossiplog-interop" / name
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / f".built-{program.replace('/', '-')}"
    with (folder / ".turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not built.exists() or built.read_text() != digest:
            shutil.copytree(source, folder, dirs_exist_ok=True)
            subprocess.run(command, cwd=folder, env=os.environ | environment, check=True, stdin=subprocess.DEVNULL)
            built.write_text(digest)
    return str(folder / program)
