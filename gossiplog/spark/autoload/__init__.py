"""What has to lie at the top level of the installed packages: Spark looks there for modules that begin with `pyspark_`."""

__all__ = ["pyspark_gossiplog"]
