"""Groups of processes with a fixed share of the CPU, by cgroups of either version; they need root, or a part of the tree that is ours."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["CpuGroup", "cpu_group", "why_no_groups"]

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000


class CpuGroup:
    """One group."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, pids: Iterable[int]) -> None:
        """Move processes into it, with what they start from then on."""
        for pid in pids:
            (self._folder / "cgroup.procs").write_text(str(pid))

    def throttled(self) -> float:
        """Return the share of the periods in which the group wanted more than its quota."""
        found = dict(line.split() for line in (self._folder / "cpu.stat").read_text().splitlines())
        return int(found["nr_throttled"]) / max(1, int(found["nr_periods"]))


def _is_second() -> bool:
    return (_ROOT / "cgroup.controllers").exists()


def _base() -> Path:
    return _ROOT if _is_second() else _ROOT / "cpu"


def why_no_groups() -> str | None:
    """Return why there can be none here; None if there can."""
    if not (_base() / "cgroup.procs").exists():
        return f"there is no controller for the CPU below {_ROOT}"
    return None if os.access(_base(), os.W_OK) else f"{_base()} cannot be written to: be root"


@contextmanager
def cpu_group(name: str, cores: float | None = None) -> Iterator[CpuGroup]:
    """Make a group, and remove it at the end, when its processes have ended or are moved back.

    Its weight is the largest that there is: what it may have it gets, whatever else runs on the machine.

    Args:
        cores: What its processes may use together; None for no bound.
    """
    folder = _base() / f"gossiplog-{os.getpid()}-{name}"
    quota = None if cores is None else round(cores * _PERIOD_US)
    if _is_second():
        (_ROOT / "cgroup.subtree_control").write_text("+cpu")
    folder.mkdir()
    try:
        if _is_second():
            (folder / "cpu.weight").write_text("10000")
            (folder / "cpu.max").write_text(f"{quota or 'max'} {_PERIOD_US}")
        else:
            (folder / "cpu.shares").write_text("262144")
            (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(quota or -1))
        yield CpuGroup(folder)
    finally:
        for _ in range(100):
            for pid in (folder / "cgroup.procs").read_text().split():
                (_base() / "cgroup.procs").write_text(pid)
            try:
                folder.rmdir()
                break
            except OSError:
                time.sleep(0.05)
