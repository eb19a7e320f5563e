"""Our errors, which come back from Spark's processes as text within Spark's errors."""

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
_JAVA_CLASS = re.compile(r"^: [\w.$]+: ")
_LINE_MAX = 500


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Replace Spark's errors raised in the block by the errors that caused them.

    Raises:
        GossipLogError: Our error that ended a task or a call of the data source, or an error of Spark's own.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise _ours_in(str(error)) or _of_spark(str(error)) from error


def silence() -> None:
    """Keep PySpark from logging a query's error as kilobytes of JSON before it raises the error."""
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True


def _of_spark(text: str) -> errors.GossipLogError:
    """Return the essential line of an error of Spark's."""
    missing = _NO_CLASS.search(text)
    if missing is not None:
        hint = (
            "--conf spark.jars.packages=… brings what a file system needs; for s3a: org.apache.hadoop:hadoop-aws, of Spark's Hadoop version"
        )
        return errors.LocalProtocolError(f"Spark lacks {missing[0]}", hint=hint)
    if "JAVA_GATEWAY_EXITED" in text:
        return errors.LocalProtocolError("Spark did not start; its own message stands above", hint="check --master, --memory and --conf")
    lines = text.splitlines() or [""]
    line = lines[1] if len(lines) > 1 and lines[0].startswith("An error occurred while calling") else lines[0]
    line = _JAVA_CLASS.sub("", line)
    return errors.GossipLogError(f"Spark: {line[:_LINE_MAX]}", hint="GOSSIPLOG_DEBUG=1 shows all that it says")


def _ours_in(text: str) -> errors.GossipLogError | None:
    for name, message in reversed(_OURS.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(
            kind, errors.StoreError | errors.LocalProtocolError | errors.DecodeError | errors.BucketError
        ):
            return kind(message.strip())
    return None
