"""Figures of traces, of simulations or live nodes: latency, redundancy and reach; by message, by run, by router and parameter."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType

from ...glass.fact import TRACE_SCHEMA
from ...sim.measure.plots import pyplot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

RUN = ("scenario", "router", "seed")
"""The columns that identify a run in a trace."""
QUANTILES = {"p50_s": 0.50, "p90_s": 0.90, "p99_s": 0.99}
_TYPES = {"string": StringType(), "int64": LongType(), "int32": IntegerType(), "double": DoubleType()}
_NAMES = ("node", "peer", "message")
"""Read as text: they are numbers in the simulator, and ids in live traces."""
_SCHEMA = StructType([StructField(name, _TYPES["string" if name in _NAMES else kind]) for name, kind in TRACE_SCHEMA])
_BEGINS = "(kind = 'publish' or (kind = 'deliver' and way in ('http', 'import')))"
"""The events with which an entry's way through the network begins: it was appended, posted or imported."""


def read_traces(spark: SparkSession, location: str) -> DataFrame:
    """Read traces: `.jsonl` or `.parquet`, one file, a folder or a pattern, or a URL of one; columns that a trace lacks are null.

    The column `damaged` has the text of a line that is not a record; null otherwise.
    """
    if "://" not in location:
        location = os.path.abspath(location)  # noqa: PTH100  (it may be a pattern)
    schema = StructType([*_SCHEMA.fields, StructField("damaged", StringType())])
    lines = spark.read.schema(schema).option("columnNameOfCorruptRecord", "damaged").option("pathGlobFilter", "*.jsonl")
    table = lines.json(location)
    if not table.inputFiles():
        table = spark.read.parquet(location).withColumn("damaged", F.lit(None).cast("string"))
    there = set(table.columns)
    fields = [F.col(f.name).cast(f.dataType) if f.name in there else F.lit(None).cast(f.dataType).alias(f.name) for f in _SCHEMA.fields]
    return table.select(*fields, "damaged")


def quarantined(traces: DataFrame) -> DataFrame:
    """Return the rows that are not records, with the reason and their text."""
    is_odd = F.col("damaged").isNotNull() | F.col("kind").isNull() | F.col("time_s").isNull() | F.col("node").isNull()
    reason = F.when(F.col("damaged").isNotNull(), "not a record").otherwise("kind, time_s or node is missing")
    return traces.where(is_odd).select(reason.alias("reason"), F.coalesce("damaged", F.to_json(F.struct(*_SCHEMA.names))).alias("source"))


def latencies(traces: DataFrame) -> DataFrame:
    """Return a row for each first receipt: the run, `message`, `node`, `latency_s` since the publish, and `hops`.

    In the simulator's own figures, receipts by dishonest nodes count for redundancy only. A trace does not tell them apart, so leave out
    their rows beforehand if there are any.
    """
    published = traces.where(f"{_BEGINS} and message is not null").groupBy(*RUN, "message").agg(F.min("time_s").alias("published_s"))
    received = (
        traces.where(f"kind = 'deliver' and not coalesce({_BEGINS}, false)")
        .groupBy(*RUN, "message", "node")
        .agg(F.min("time_s").alias("time_s"), F.min_by("hops", "time_s").alias("hops"))
    )
    return received.join(published, _same(received, published, (*RUN, "message"))).select(
        *[received[name] for name in (*RUN, "message", "node")], (F.col("time_s") - F.col("published_s")).alias("latency_s"), "hops"
    )


def by_message(traces: DataFrame) -> DataFrame:
    """Sum up each message: `published_s`, `delivered`, `copies` (payloads sent), `rmr`, `reach`, `last_hop`, quantiles, `max_s`.

    Redundancy is Plumtree's RMR: copies / receipts − 1. Reach is the share of the run's nodes that have the message, its publisher
    included; a node counts if it ever started, or did anything in a trace without starts.
    """
    nodes = (
        traces.where("node <> '-1'")
        .groupBy(*RUN)
        .agg(F.count_distinct(F.when(F.col("kind") == "start", F.col("node"))).alias("started"), F.count_distinct("node").alias("seen"))
    )
    nodes = nodes.select(*RUN, F.when(F.col("started") > 0, F.col("started")).otherwise(F.col("seen")).alias("nodes"))
    published = traces.where(_BEGINS).groupBy(*RUN, "message").agg(F.min("time_s").alias("published_s"))
    # A payload sent to many peers at once names no peer, but their number.
    number = F.when(F.col("peer").isNull(), F.coalesce("count", F.lit(1))).otherwise(1)
    copies = traces.where("kind = 'send' and type in ('message', 'push')").groupBy(*RUN, "message").agg(F.sum(number).alias("copies"))
    received = _quantiles(latencies(traces), (*RUN, "message"))
    whole = _left(_left(_left(published, received, (*RUN, "message")), copies, (*RUN, "message")), nodes, RUN)
    delivered, sent = F.coalesce("delivered", F.lit(0)), F.coalesce("copies", F.lit(0))
    return whole.select(
        *RUN,
        "message",
        "published_s",
        delivered.alias("delivered"),
        sent.alias("copies"),
        F.when(delivered > 0, sent / delivered - 1).otherwise(0.0).alias("rmr"),
        ((delivered + 1) / F.col("nodes")).alias("reach"),
        "last_hop",
        *QUANTILES,
        "max_s",
    )


def by_run(traces: DataFrame, messages: DataFrame | None = None) -> DataFrame:
    """Sum up each run, over all receipts of all its messages; the columns are those of `by_message`, and `published`.

    Args:
        messages: `by_message` of them, if it was computed already.
    """
    messages = by_message(traces) if messages is None else messages
    summed = messages.groupBy(*RUN).agg(
        F.count("*").alias("published"),
        F.sum("copies").alias("copies"),
        F.avg("reach").alias("reach"),
        F.min("reach").alias("reach_min"),
    )
    whole = _left(summed, _quantiles(latencies(traces), RUN), RUN)
    delivered = F.coalesce("delivered", F.lit(0))
    rmr = F.when(delivered > 0, F.col("copies") / delivered - 1).otherwise(0.0).alias("rmr")
    return whole.select(
        *RUN, "published", delivered.alias("delivered"), "copies", rmr, "reach", "reach_min", "last_hop", *QUANTILES, "max_s"
    )


def summed_up(runs: DataFrame, by: tuple[str, ...] = ("scenario", "router")) -> DataFrame:
    """Average the figures of runs over seeds, or over all columns not in `by`."""
    figures = ("rmr", "reach", *QUANTILES, "max_s")
    return (
        runs.groupBy(*by)
        .agg(F.count("*").alias("runs"), *[F.avg(name).alias(name) for name in figures], F.max("last_hop").alias("last_hop"))
        .orderBy(*by)
    )


def plot_latencies(traces: DataFrame, path: str) -> None:
    """Draw the share of receipts over the time since publishing, a curve for each scenario and router; 200 points each leave the executors.

    Raises:
        LocalProtocolError: matplotlib is missing.
    """
    plt = pyplot()
    shares = [step / 200 for step in range(201)]
    curves = latencies(traces).groupBy("scenario", "router").agg(F.percentile_approx("latency_s", shares, 10_000).alias("times"))
    figure, axes = plt.subplots(figsize=(8, 4.8), dpi=120, layout="constrained")
    for row in curves.orderBy("scenario", "router").collect():
        axes.plot([1e3 * time for time in row["times"]], [100 * share for share in shares], label=f"{row['scenario']} · {row['router']}")
    axes.set_xlabel("time since publish (ms)")
    axes.set_ylabel("receipts made (%)")
    axes.set_ylim(0, 102)
    if axes.lines:
        axes.legend(frameon=False)
    figure.savefig(path)
    plt.close(figure)


def _quantiles(receipts: DataFrame, by: tuple[str, ...]) -> DataFrame:
    """Return for each group `delivered`, `last_hop`, `max_s` and the quantiles, by nearest rank as in the simulator."""
    ordered = Window.partitionBy(*by).orderBy("latency_s")
    ranked = receipts.withColumn("rank", F.row_number().over(ordered) - 1).withColumn("size", F.count("*").over(Window.partitionBy(*by)))
    picks: list[Column] = [
        F.max(F.when(F.col("rank") == _rank(share), F.col("latency_s"))).alias(name) for name, share in QUANTILES.items()
    ]
    return ranked.groupBy(*by).agg(
        F.count("*").alias("delivered"), F.max("hops").alias("last_hop"), *picks, F.max("latency_s").alias("max_s")
    )


def _rank(share: float) -> Column:
    return F.least(F.col("size") - 1, F.floor(F.lit(share) * F.col("size")))


def _same(a: DataFrame, b: DataFrame, names: tuple[str, ...]) -> Column:
    """Return whether two rows agree in these columns, nulls included, as a live trace may have no seed."""
    condition = a[names[0]].eqNullSafe(b[names[0]])
    for name in names[1:]:
        condition = condition & a[name].eqNullSafe(b[name])
    return condition


def _left(a: DataFrame, b: DataFrame, names: tuple[str, ...]) -> DataFrame:
    """Return a left join on columns that may be null, without repeating them."""
    kept = [b[name] for name in b.columns if name not in names]
    return a.join(b, _same(a, b, names), "left").select(*[a[name] for name in a.columns], *kept)
