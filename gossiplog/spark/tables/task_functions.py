"""The functions that tasks can be asked to run, by the name in the source's option `work`."""

from __future__ import annotations

from ...errors import LocalProtocolError
from .state import PICK
from .task_function import Work
from .tree import FOLD
from .verify import JUDGE

__all__ = ["find_work"]


def find_work(name: str) -> Work:
    """Return the work of a name.

    Raises:
        LocalProtocolError: There is none.
    """
    for work in (JUDGE, PICK, FOLD):
        if work.name == name:
            return work
    raise LocalProtocolError(f"option work: {name!r} is none of judge, pick, fold")
