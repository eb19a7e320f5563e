"""Registers the data source `gossiplog` with every Spark session that finds this package."""

from gossiplog.spark.source.source import GossipLogSource as DefaultSource

__all__ = ["DefaultSource"]
