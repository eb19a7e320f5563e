"""Measurements that are run by hand; nothing here is a test."""

__all__: list[str] = []
