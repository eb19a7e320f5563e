"""Notices when an application asks for the clock, for chance, or for a hash that differs between processes."""

from __future__ import annotations

import builtins
import datetime
import os
import random
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from .tables import Unrepeatable

_CLOCKS = (time.time, time.time_ns)
_DATES = frozenset({"now", "utcnow", "today"})
_HASHES = {builtins.hash: "a hash that is another one in every process", builtins.id: "an address in memory"}
_SHARED_RANDOM = random.random.__self__  # type: ignore[attr-defined]
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_EXCUSED = frozenset({"logging", "warnings", "traceback"})
"""Modules that may read the clock on behalf of an application, because it reaches no table."""


@contextmanager
def watching() -> Iterator[None]:
    """Raise `Unrepeatable` within the block as soon as something is asked for that a replay would get differently.

    While a profiler runs nothing is watched, because both need the same hook of the interpreter.
    """
    if sys.getprofile() is not None:
        yield
        return
    sys.setprofile(_on_call)
    try:
        yield
    finally:
        sys.setprofile(None)


def _on_call(frame: FrameType, event: str, called: Any) -> None:
    if event != "c_call":
        return
    what = _asks(frame, called)
    if what is not None and not _is_excused(frame):
        file = Path(frame.f_code.co_filename).name
        raise Unrepeatable(what, f"{called.__qualname__} at {file}:{frame.f_lineno}")


def _asks(frame: FrameType, called: Any) -> str | None:
    owner = getattr(called, "__self__", None)
    if called in _CLOCKS or (called.__name__ in _DATES and isinstance(owner, type) and issubclass(owner, datetime.date)):
        return "the clock"
    if called is os.urandom or owner is _SHARED_RANDOM:
        return "chance"
    if called in _HASHES and not frame.f_code.co_filename.startswith(_LIBRARIES) and frame.f_code.co_name != "__hash__":
        return _HASHES[called]
    return None


def _is_excused(frame: FrameType) -> bool:
    at: FrameType | None = frame
    while at is not None:
        if at.f_globals.get("__name__", "").partition(".")[0] in _EXCUSED:
            return True
        if at.f_code is watching.__wrapped__.__code__:  # type: ignore[attr-defined]
            return False
        at = at.f_back
    return False
