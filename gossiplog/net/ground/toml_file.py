"""Settings files that a server reads at start and again while it runs, so reading one must never block."""

from __future__ import annotations

import errno
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

_BYTES_MAX = 2**20
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)
"""Without it, opening a FIFO would wait for a writer."""


def read_toml(file: str | Path) -> dict[str, Any]:
    """Read a TOML file of at most 1 MiB.

    Raises:
        OSError: It cannot be read, or is not a regular file: a pipe would be empty at the next reading.
        ValueError: It is too long, or not TOML.
        RecursionError: It is nested too deeply.
    """
    descriptor = os.open(file, os.O_RDONLY | _AT_ONCE)
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file, and could not be read again", str(file))
        data = opened.read(_BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise ValueError(f"it has more than {_BYTES_MAX:,} bytes")
    return tomllib.loads(data.decode("utf-8"))
