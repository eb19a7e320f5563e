"""A Spark session with our data source: a local one on this machine, or that of spark-submit or a Connect server."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from ..errors import CannotConnect, LocalProtocolError
from .java import use_java
from .source.source import register

LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    # Small batches between the JVM and Python: a VALUE may have 4 MiB.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.parquet.compression.codec": "zstd",
    # For tables kept between two steps of a job.
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
}
"""The settings of our own sessions, unless `config` has others. Source: docs/spec/spark.md."""

_CONNECT_PORT, _CONNECT_S = 15002, 10.0
_MEMORY_MIN_MIB = 512
"""Spark refuses to start with a heap of less than 450 MiB, and a garbage collector may reserve some of it."""


def session(
    master: str | None = None,
    *,
    remote: str | None = None,
    app: str = "gossiplog",
    memory: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a Spark session with the data source `gossiplog` registered; an active session is used as it is.

    Args:
        master: `local[2]`, `spark://…` and so on; None for that of spark-submit, or else for all cores of this machine.
        remote: A Spark Connect server, `sc://host:15002`, instead of a master; by default SPARK_REMOTE of the environment.
        memory: That of the driver, which in local mode runs everything; by default `2g`.

    Raises:
        LocalProtocolError: There is no Java to start Spark with, `remote` is malformed, or `memory` is malformed or too small.
        CannotConnect: Nothing listens at `remote`.
    """
    remote = remote or os.environ.get("SPARK_REMOTE")
    builder: SparkSession.Builder = SparkSession.builder
    if remote:
        if re.fullmatch(r"local(\[.*\])?", remote):
            # A server of its own, on this machine.
            _use_this_machine()
        else:
            _check_remote(remote)
        builder = builder.remote(remote)
    else:
        builder = builder.appName(app)
        if is_submitted():
            # spark-submit has started the JVM, with its own settings.
            builder = builder if master is None else builder.master(master)
        else:
            builder = _local(builder, master, memory)
    for name, value in (config or {}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def is_active() -> bool:
    """Return whether this process has a session that `session` would use."""
    return SparkSession.getActiveSession() is not None


def is_submitted() -> bool:
    """Return whether spark-submit started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _check_remote(remote: str) -> None:
    """Check a Connect server's URL, and that something listens there: PySpark would try for minutes."""
    try:
        url = urlsplit(remote)
        host, port = url.hostname, url.port or _CONNECT_PORT
    except ValueError:
        host = None
    if host is None or url.scheme != "sc":
        raise LocalProtocolError(f"remote {remote!r}, expected sc://HOST:PORT")
    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except OSError as error:
        raise CannotConnect(f"no Spark Connect server at {remote}: {error.strerror or error}") from None


def _check_memory(memory: str) -> None:
    found = re.fullmatch(r"(\d{1,9})([kmgt]?)b?", memory.lower())
    mebibytes = int(found[1]) * {"k": 1 / 1024, "m": 1, "": 1, "g": 1024, "t": 1024 * 1024}[found[2]] if found else 0
    if mebibytes < _MEMORY_MIN_MIB:
        raise LocalProtocolError(f"memory {memory!r}, expected a size like 2g, of {_MEMORY_MIN_MIB}m or more")


def _local(builder: SparkSession.Builder, master: str | None, memory: str | None) -> SparkSession.Builder:
    _use_this_machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    builder = builder.master(master or f"local[{cores}]")
    is_local = master is None or master.startswith("local")
    for name, value in LOCAL_SETTINGS.items():
        if is_local or not name.startswith("spark.driver."):
            builder = builder.config(name, value)
    if is_local:
        builder = builder.config("spark.sql.shuffle.partitions", str(max(4, 2 * cores)))
    if memory is not None:
        _check_memory(memory)
        builder = builder.config("spark.driver.memory", memory)
    return builder


def _use_this_machine() -> None:
    use_java()
    # Workers must be this interpreter, in which the package is installed.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
