"""What the server was asked to show."""

from __future__ import annotations

from dataclasses import dataclass

from .gather import Gather

__all__ = ["NO_GLASS", "GlassSettings"]


@dataclass(frozen=True, slots=True)
class GlassSettings:
    """What is to be shown.

    Attributes:
        has_page: The page is served.
        may_append: The page may append.
        gather: Follows other servers, whose facts are shown as well; None for none.
    """

    has_page: bool = False
    may_append: bool = False
    gather: Gather | None = None


NO_GLASS = GlassSettings()
"""Nothing but what can be asked for anyway."""
