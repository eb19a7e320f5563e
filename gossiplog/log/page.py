"""Limits how many bytes of VALUEs a store reads for one request, however many entries were requested."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

R = TypeVar("R", bound=Sequence[Any])

PAGE_BYTES_MAX = 8 * 1024 * 1024
"""A page ends with the entry with which its VALUEs reach this: a thousand entries may have 4 GiB."""


def cut_page(rows: Iterable[R]) -> list[R]:
    """Return rows up to the one with which their VALUEs reach `PAGE_BYTES_MAX`. Later rows are not read.

    Args:
        rows: VALUE is the second column, and may be of any type in a damaged row.
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
    """Tell whether a page of at most `limit` rows is short because there are no more rows."""
    return len(rows) < limit and sum(len(row[1]) for row in rows) < PAGE_BYTES_MAX
