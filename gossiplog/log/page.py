"""How many bytes of VALUEs a store reads for one request, whatever number of entries was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

R = TypeVar("R", bound=Sequence[Any])

PAGE_BYTES_MAX = 8 * 1024 * 1024
"""A page ends with the entry with which its VALUEs reach this: a thousand entries may have 4 GiB."""


def cut_page(rows: Iterable[R], value_at: int = 1) -> list[R]:
    """Take rows up to the one with which their VALUEs reach `PAGE_BYTES_MAX`, and no more than that.

    Args:
        rows: Read as far as they are taken. A damaged one may have anything for VALUE.
        value_at: Where in a row VALUE is.
    """
    page: list[R] = []
    room = PAGE_BYTES_MAX
    for row in rows:
        page.append(row)
        value = row[value_at]
        if isinstance(value, bytes | str):
            room -= len(value)
            if room <= 0:
                break
    return page


def is_last_page(rows: Sequence[Sequence[Any]], limit: int, value_at: int = 1) -> bool:
    """Whether a page of at most `limit` rows is so short because there are no more."""
    return len(rows) < limit and sum(len(row[value_at]) for row in rows) < PAGE_BYTES_MAX
