"""How many bytes of VALUEs a store reads for one request, whatever number of entries was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

R = TypeVar("R", bound=Sequence[Any])

PAGE_BYTES_MAX = 8 * 1024 * 1024
"""A page ends with the entry with which its VALUEs reach this: a thousand entries may have 4 GiB."""


def cut_page(rows: Iterable[R]) -> list[R]:
    """Take rows up to the one with which their VALUEs reach `PAGE_BYTES_MAX`, and no more than that.

    Args:
        rows: VALUE is the second column, and may be anything in a damaged row. They are read as far as they are taken.
    """
    page: list[R] = []
    room = PAGE_BYTES_MAX
    for row in rows:
        page.append(row)
        value = row[1]
        if isinstance(value, bytes | str):
            room -= len(value)
            if room <= 0:
                break
    return page


def is_last_page(rows: Sequence[Sequence[Any]], limit: int) -> bool:
    """Whether a page of at most `limit` rows is so short because there are no more."""
    return len(rows) < limit and sum(len(row[1]) for row in rows) < PAGE_BYTES_MAX
