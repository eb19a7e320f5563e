"""What is said about addresses that cannot be reached: each reason once, and when it works after all. `doctor` and the page show them."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from ...limits import keep_newest
from ..ground.journal import note

_REASONS_MAX = 8
"""Of one address: an unsteady network has ever new ones, which nobody wants to read."""
_ADDRESSES_MAX = 256


@dataclass(slots=True)
class FailedDial:
    """An address that cannot be reached at the moment.

    Attributes:
        address: A multiaddr, a URL, or the id of a peer whose addresses others told us.
        since: Unix time of the first try.
    """

    address: str
    reason: str
    since: float
    tries: int


class FailedDials:
    """The tries to connect that failed.

    Args:
        on_failure: Told of each, by address and reason.
    """

    def __init__(self, on_failure: Callable[[str, str], None]) -> None:
        self._on_failure = on_failure
        self._reasons: dict[str, set[str]] = {}
        self._failed: OrderedDict[str, FailedDial] = OrderedDict()

    def standing(self) -> list[FailedDial]:
        """Show what cannot be reached, the latest try last."""
        return list(self._failed.values())

    def on_listed_failed(self, address: str, reason: str, what: str = "peer", hint: str | None = None) -> None:
        """An address that we were given could not be reached: that is logged, the first time for some reason at WARNING, else at DEBUG."""
        known = self._reasons.setdefault(address, set())
        is_news = reason not in known and len(known) < _REASONS_MAX
        if is_news:
            known.add(reason)
        note(f"{what} not reached", level=logging.WARNING if is_news else logging.DEBUG, address=address, reason=reason, hint=hint)
        self.on_failed(address, reason)

    def on_failed(self, address: str, reason: str) -> None:
        """An address could not be reached."""
        failed = self._failed.get(address) or FailedDial(address, reason, time.time(), 0)
        failed.reason = reason
        failed.tries += 1
        keep_newest(self._failed, address, failed, _ADDRESSES_MAX)
        self._on_failure(address, reason)

    def on_reached(self, address: str, what: str = "peer") -> None:
        """An address was reached; see `on_listed_failed`."""
        self._failed.pop(address, None)
        if self._reasons.pop(address, None) is not None:
            note(f"{what} reached after all", address=address)
