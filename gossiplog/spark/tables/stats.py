"""The shape of a history: entries by author, width by clock, forks, and missing parents."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from .staging import materialise

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATS_COLUMNS = ("key", "clock", "author", "topic", "parent_keys", "bytes", "place", "fault", "source")
"""What `stats` reads."""
_BUCKETS = 200


@dataclass(frozen=True, slots=True)
class Stats:
    """The results of `stats`, as tables.

    Attributes:
        totals: Figures: entries, bytes, clock (the highest), heads, roots, forks, orphans, width_max, heads_max.
        authors: For each `author` and `topic`: entries, bytes, first_clock, last_clock.
        clocks: For each of at most 200 even ranges of clocks, from `clock_from` to `clock_to`: entries; width_max, the most entries of one
            clock, all of which are concurrent; heads_mean and heads_max, of the entries without children as of each clock.
        branching: The number of entries for each pair of numbers of `children` and `parents`.
        heads: `key` and `clock` of the entries without children.
        forks: `key`, `children` and `authors` (of the children) of entries with several children.
        doubles: `author`, `clock`, `entries` and `keys` where one author has several entries of the same clock. As these are concurrent,
            the key was used in two places, or its owner says different things to different people.
        orphans: `parent` that is missing, and its number of `children`.
        refused: `place`, `fault` and `source` of rows without an entry.
    """

    totals: dict[str, Any]
    authors: DataFrame
    clocks: DataFrame
    branching: DataFrame
    heads: DataFrame
    forks: DataFrame
    doubles: DataFrame
    orphans: DataFrame
    refused: DataFrame


def stats(entries: DataFrame, *, staging: str | None = None) -> Stats:
    """Compute the shape of a history, which may have orphans. Of several rows with the same key one counts.

    Args:
        entries: Rows with `STATS_COLUMNS`.
        staging: See `verify`.
    """
    read = materialise(entries.select(*STATS_COLUMNS), staging, "read")
    refused = read.where("fault is not null or key is null or clock is null").select("place", "fault", "source")
    good = read.where("fault is null and key is not null and clock is not null").dropDuplicates(["key"])
    good = materialise(
        good.withColumn("parents", F.size(F.array_distinct("parent_keys"))).drop("place", "fault", "source"), staging, "good"
    )
    edges = good.select(
        F.explode(F.array_distinct("parent_keys")).alias("parent"),
        F.col("clock").alias("child_clock"),
        F.col("author").alias("child_author"),
    )
    children = edges.groupBy(F.col("parent").alias("key")).agg(
        F.count("*").alias("children"), F.min("child_clock").alias("child_clock"), F.count_distinct("child_author").alias("authors")
    )
    graph = materialise(
        good.select("key", "clock", "parents").withColumn("is_there", F.lit(True)).join(children, "key", "full_outer"), staging, "graph"
    )
    there = graph.where("is_there")
    heads = there.where("children is null").select("key", "clock")
    forks = there.where("children > 1").select("key", "children", "authors")
    orphans = graph.where("is_there is null").select(F.col("key").alias("parent"), "children")
    clocks = _over_clock(there, staging)
    authors = good.groupBy("author", "topic").agg(
        F.count("*").alias("entries"),
        F.sum("bytes").alias("bytes"),
        F.min("clock").alias("first_clock"),
        F.max("clock").alias("last_clock"),
    )
    branching = there.groupBy(F.coalesce("children", F.lit(0)).alias("children"), "parents").agg(F.count("*").alias("entries"))
    doubles = (
        good.groupBy("author", "clock")
        .agg(F.count("*").alias("entries"), F.slice(F.collect_set("key"), 1, 16).alias("keys"))
        .where("entries > 1")
    )
    return Stats(_totals(graph, good, clocks), authors, clocks, branching, heads, forks, doubles, orphans, refused)


def _over_clock(there: DataFrame, staging: str | None) -> DataFrame:
    """Count heads and width by clock: an entry is a head from its own clock to the one before its first child's."""
    births = there.groupBy("clock").agg(F.count("*").alias("entries"))
    deaths = there.where("child_clock is not null").groupBy(F.col("child_clock").alias("clock")).agg(F.count("*").alias("gone"))
    # An entry stops being a head at the clock of a child, so every clock with deaths has births.
    by_clock = births.join(deaths, "clock", "left").select(
        "clock", "entries", (F.col("entries") - F.coalesce("gone", F.lit(0))).alias("change")
    )
    by_clock = materialise(by_clock, staging, "by-clock")
    highest = by_clock.agg(F.max("clock")).collect()[0][0] or 0
    step = max(1, math.ceil(highest / _BUCKETS))
    ranged = by_clock.withColumn("range", F.floor((F.col("clock") - 1) / step))
    # Heads at the beginning of each range: so few that the driver adds them up.
    changes = sorted((row["range"], row["change"]) for row in ranged.groupBy("range").agg(F.sum("change").alias("change")).collect())
    before, starts = 0, []
    for number, change in changes:
        starts.append((number, before))
        before += change
    started = ranged.join(F.broadcast(there.sparkSession.createDataFrame(starts, "range bigint, before bigint")), "range")
    running = Window.partitionBy("range").orderBy("clock").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    heads = started.withColumn("heads", F.col("before") + F.sum("change").over(running))
    return (
        heads.groupBy("range")
        .agg(
            F.sum("entries").alias("entries"),
            F.max("entries").alias("width_max"),
            F.avg("heads").alias("heads_mean"),
            F.max("heads").alias("heads_max"),
        )
        .select(
            (F.col("range") * step + 1).alias("clock_from"),
            ((F.col("range") + 1) * step).alias("clock_to"),
            "entries",
            "width_max",
            "heads_mean",
            "heads_max",
        )
    )


def _totals(graph: DataFrame, good: DataFrame, clocks: DataFrame) -> dict[str, Any]:
    counted = graph.agg(
        F.count_if(F.expr("is_there")).alias("entries"),
        F.max("clock").alias("clock"),
        F.count_if(F.expr("is_there and children is null")).alias("heads"),
        F.count_if(F.expr("is_there and parents = 0")).alias("roots"),
        F.count_if(F.expr("is_there and children > 1")).alias("forks"),
        F.count_if(F.expr("is_there is null")).alias("missing_parents"),
    ).collect()[0]
    sized = good.agg(F.sum("bytes").alias("bytes"), F.count_distinct("author").alias("authors")).collect()[0]
    widest = clocks.agg(F.max("width_max").alias("width_max"), F.max("heads_max").alias("heads_max")).collect()[0]
    return {**counted.asDict(), **sized.asDict(), **widest.asDict()}
