"""The program for spark-submit, alone in its folder, because Python searches that folder for every module that the program imports."""

__all__ = ["spark_submit"]
