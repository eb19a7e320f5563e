"""The version of this program, as it was built."""

__all__ = ["VERSION"]

VERSION = "0.1.0"
