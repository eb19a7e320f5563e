"""Routers under test: the exact engine, its nodes and links, what goes wrong, and who attacks."""

__all__: list[str] = []
