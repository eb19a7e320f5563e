"""Errors of ours that come back from Spark's processes as text within errors of Spark's."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from .. import errors

_OURS = re.compile(r"^(?:[\w.]*: )*gossiplog\.errors\.(\w+): (.+)$", re.MULTILINE)
_NO_CLASS = re.compile(r"(?<=Class )[\w.$]+FileSystem(?= not found)|(?<=No FileSystem for scheme )\S+")
_LINE_MAX = 500


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Have the body's errors of Spark's raised as what they are.

    Raises:
        GossipLogError: The error of ours that ended a task or a look at the data source; or Spark failed for a reason of its own.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise _told_by(error) or _of_spark(str(error)) from error


def silence() -> None:
    """Keep PySpark from logging an error of a query as kilobytes of JSON before it raises it."""
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True


def _of_spark(text: str) -> errors.GossipLogError:
    """Say in a line what Spark says in many."""
    missing = _NO_CLASS.search(text)
    if missing is not None:
        hint = (
            "--conf spark.jars.packages=… brings what a file system needs; for s3a: org.apache.hadoop:hadoop-aws, of Spark's Hadoop version"
        )
        return errors.LocalProtocolError(f"Spark lacks {missing[0]}", hint=hint)
    lines = text.splitlines() or [""]
    line = lines[1] if len(lines) > 1 and lines[0].startswith("An error occurred while calling") else lines[0]
    return errors.GossipLogError(f"Spark: {line[:_LINE_MAX]}", hint="GOSSIPLOG_DEBUG=1 shows all that it says")


def _told_by(error: Exception) -> errors.GossipLogError | None:
    for name, message in reversed(_OURS.findall(str(error))):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(
            kind, errors.StoreError | errors.LocalProtocolError | errors.DecodeError | errors.BucketError
        ):
            return kind(message.strip())
    return None
