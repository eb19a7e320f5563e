"""A file of settings, which a server reads when it starts and again while it runs: nothing that lies there may keep it waiting."""

from __future__ import annotations

import errno
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

_BYTES_MAX = 2**20
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)
"""Else opening a FIFO waits for a writer."""


def read_toml(file: str | Path) -> dict[str, Any]:
    """Read a file.

    Raises:
        OSError: It cannot be read, or is none of the regular ones, the only kind that says the same when it is read again.
        ValueError: It is too long, or no TOML.
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
