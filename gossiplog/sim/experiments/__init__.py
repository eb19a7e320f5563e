"""Routers that follow drafts which no peer speaks yet: they run in the simulator alone, and their messages have no bytes."""

__all__: list[str] = []
