"""What is said about the addresses that we were given and cannot reach: each reason once, and when it works after all."""

from __future__ import annotations

import logging

from ..journal import note

__all__ = ["Troubles"]

_REASONS_MAX = 8
"""Of one address: an unsteady network has ever new ones, which nobody wants to read."""


class Troubles:
    """Logs the tries of the bootstrap list: the first time that an address fails for some reason at WARNING, further times at DEBUG."""

    def __init__(self) -> None:
        self._reasons: dict[str, set[str]] = {}

    def on_failed(self, address: str, reason: str) -> None:
        """An address could not be reached."""
        known = self._reasons.setdefault(address, set())
        is_news = reason not in known and len(known) < _REASONS_MAX
        if is_news:
            known.add(reason)
        note("peer not reached", level=logging.WARNING if is_news else logging.DEBUG, address=address, reason=reason)

    def on_reached(self, address: str) -> None:
        """An address was reached."""
        if self._reasons.pop(address, None) is not None:
            note("peer reached after all", address=address)
