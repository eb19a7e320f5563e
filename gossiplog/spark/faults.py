"""Errors of ours that come back from Spark's processes as text within errors of Spark's."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from pyspark.errors import PySparkException

from .. import errors

__all__ = ["translated"]

_OURS = re.compile(r"^(?:[\w.]*: )*gossiplog\.errors\.(\w+): (.+)$", re.MULTILINE)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Have the body's errors of Spark's raised as what they are.

    Raises:
        GossipLogError: The error of ours that ended a task or a look at the data source; or Spark failed for a reason of its own.
    """
    try:
        yield
    except PySparkException as error:
        hint = "GOSSIPLOG_DEBUG=1 shows all that it says"
        raise _told_by(error) or errors.GossipLogError(f"Spark: {str(error).splitlines()[0]}", hint=hint) from error


def _told_by(error: PySparkException) -> errors.GossipLogError | None:
    for name, message in reversed(_OURS.findall(str(error))):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, errors.StoreError | errors.LocalProtocolError | errors.DecodeError):
            return kind(message.strip())
    return None
