"""Pages of VALUEs that the server cuts by size, without reading the VALUEs that it does not send."""

from __future__ import annotations

from ...log.page import PAGE_BYTES_MAX


def cut(select: str, order: str) -> str:
    """Make a statement return its rows only up to the one with which their VALUEs reach `PAGE_BYTES_MAX`, with one more column.

    Args:
        select: Has a column `value`, and returns its rows in the order of `order`.
    """
    before = f"coalesce(sum(octet_length(value)) OVER (ORDER BY {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)"
    return f"SELECT * FROM (SELECT *, {before} AS bytes_before FROM ({select}) r) p WHERE bytes_before < {PAGE_BYTES_MAX} ORDER BY {order}"


TAIL = cut("SELECT seq, value FROM {log}.entries WHERE seq > $1 ORDER BY seq LIMIT $2", "seq")
