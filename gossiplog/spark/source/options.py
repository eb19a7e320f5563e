"""The names of the data source's options, so that a misspelt one is an error: Spark passes on whatever it is given."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ...errors import LocalProtocolError

__all__ = ["LOAD_OPTIONS", "STREAM_OPTIONS", "WRITE_OPTIONS", "check_options"]

_PLACE = frozenset({"path", "url"})
LOAD_OPTIONS = _PLACE | {"columns", "partitions", "topic", "minClock", "maxClock", "from", "to", "ids", "minSeq", "maxSeq", "maxBytes"}
STREAM_OPTIONS = _PLACE | {"columns", "partitions", "topic", "startSeq", "maxRowsPerBatch"}
WRITE_OPTIONS = _PLACE | {"topic", "durability", "schemes", "staging", "quarantine", "counts"}

_INTERNAL = frozenset({"work", "workwith"})
"""What `Work.at` alone gives."""
_OF_SPARK = frozenset({"paths", "provider", "location", "owner", "comment", "collation", "external", "is_managed_location"})
"""What Spark itself adds, for `load([…])` and for `CREATE TABLE`, which repeats the user's as `option.NAME` besides."""


def check_options(given: Iterable[str], known: frozenset[str], what: str) -> None:
    """Refuse options that have no effect.

    Args:
        given: Names in any case: Spark makes them lower.
        known: The names that have an effect.
        what: What they are options of, for the error.

    Raises:
        LocalProtocolError: One is unknown; the error names it, and the nearest that is known.
    """
    by_lower = {name.lower(): name for name in known}
    for name in given:
        lower = name.lower()
        if lower in by_lower or lower in _INTERNAL or lower in _OF_SPARK or lower.startswith("option."):
            continue
        near = difflib.get_close_matches(lower, by_lower, 1)
        hint = f"did you mean {by_lower[near[0]]}?" if near else f"expected one of {', '.join(sorted(known))}"
        raise LocalProtocolError(f"unknown option {name} of {what}; {hint}")
