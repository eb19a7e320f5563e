"""The program that spark-submit is given, alone in its folder: Python looks there for every module that it imports."""

__all__ = ["spark_submit"]
