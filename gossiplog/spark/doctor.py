"""The prerequisites of Spark, and which of them are missing. It imports neither PySpark nor Arrow, so it works without them."""

from __future__ import annotations

import importlib.util
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from ..errors import LocalProtocolError
from .java import find_java, java_candidates

_EXTRA = "pip install 'gossiplog[spark]'"
_PACKAGES = (
    ("pyspark", (4, 3), (4, 4), "Spark itself"),
    ("pyarrow", (18,), None, "what carries rows between Spark and Python"),
    ("pandas", (2, 2), (3,), "needed by PySpark's Arrow functions"),
)
_CONNECT = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")


@dataclass(frozen=True, slots=True)
class Check:
    """One prerequisite, and whether it is met.

    Attributes:
        name: The prerequisite, in a word or two.
        found: What was found, in a few words.
        is_needed: Whether Spark fails to start without it.
        hint: What to do if it is not met.
    """

    name: str
    found: str
    is_good: bool
    is_needed: bool = True
    hint: str | None = None


def examine() -> list[Check]:
    """Check all prerequisites, in the order in which they are needed. Starts Java, not Spark; takes up to a second."""
    checks = [Check("python", f"{platform.python_version()}, {sys.executable}", sys.version_info >= (3, 11))]
    checks += [_package(*each) for each in _PACKAGES]
    missing = [name for name in _CONNECT if _version(name) is None]
    found = f"missing {', '.join(missing)}" if missing else f"grpcio {_version('grpcio')}"
    checks.append(Check("connect", found, not missing, is_needed=False, hint=f"for Spark Connect: {_EXTRA}"))
    checks.append(_java())
    is_there = importlib.util.find_spec("pyspark_gossiplog") is not None
    found = "registers itself" if is_there else "not on Python's path"
    checks.append(
        Check(
            "data source",
            found,
            is_there,
            is_needed=False,
            hint="gossiplog.spark.register(spark) does it for a session; or install the package again",
        )
    )
    return checks


def environment() -> dict[str, str]:
    """Return the variables under which spark-submit finds the same Java and the same Python.

    Raises:
        LocalProtocolError: There is no Java.
    """
    return {"JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


def _package(name: str, least: tuple[int, ...], below: tuple[int, ...] | None, about: str) -> Check:
    wanted = f"{name}>={'.'.join(map(str, least))}" + (f",<{'.'.join(map(str, below))}" if below else "")
    found = _version(name)
    if found is None:
        return Check(name, f"missing ({about})", False, hint=_EXTRA)
    numbers = tuple(int(part) for part in found.split(".")[:3] if part.isdigit())
    is_good = numbers >= least and (below is None or numbers < below)
    return Check(name, found, is_good, hint=None if is_good else f"{_EXTRA}, which has {wanted}")


def _java() -> Check:
    try:
        java = find_java()
    except LocalProtocolError as error:
        seen = ", ".join(f"{origin}: {executable}" for origin, executable in java_candidates())
        return Check("java", f"none that starts Spark ({seen})" if seen else "none", False, hint=error.hint)
    shim = ", through a script in the cache that leaves out the vector module" if java.is_shimmed else ""
    return Check("java", f"{java.version} of {java.origin}, {java.executable}{shim}", True)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
