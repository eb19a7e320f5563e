"""Addresses that cannot be reached, for `doctor` and the page. Each reason is logged once, and so is success after a failure."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from ...limits import keep_newest
from ..ground.journal import note

_REASONS_MAX = 8
"""Reasons that are logged of one address: an unsteady network has ever new ones."""
_ADDRESSES_MAX = 256


@dataclass(slots=True)
class FailedDial:
    """An address that cannot be reached at the moment.

    Attributes:
        address: A multiaddr, a URL, or the id of a peer whose addresses other peers told us.
        reason: Of the last try.
        since: Unix time of the first try.
    """

    address: str
    reason: str
    since: float
    tries: int


class FailedDials:
    """The failed tries to connect.

    Args:
        on_failure: Called for each, with address and reason.
    """

    def __init__(self, on_failure: Callable[[str, str], None]) -> None:
        self._on_failure = on_failure
        self._reasons: dict[str, set[str]] = {}
        self._failed: OrderedDict[str, FailedDial] = OrderedDict()

    def standing(self) -> list[FailedDial]:
        """Return the addresses that cannot be reached, the latest try last."""
        return list(self._failed.values())

    def on_listed_failed(self, address: str, reason: str, what: str = "peer", hint: str | None = None) -> None:
        """Note that an address from the operator was not reached. A new reason is logged at WARNING, a known one at DEBUG."""
        known = self._reasons.setdefault(address, set())
        is_news = reason not in known and len(known) < _REASONS_MAX
        if is_news:
            known.add(reason)
        note(f"{what} not reached", level=logging.WARNING if is_news else logging.DEBUG, address=address, reason=reason, hint=hint)
        self.on_failed(address, reason)

    def on_failed(self, address: str, reason: str) -> None:
        """Note that an address was not reached."""
        failed = self._failed.get(address) or FailedDial(address, reason, time.time(), 0)
        failed.reason = reason
        failed.tries += 1
        keep_newest(self._failed, address, failed, _ADDRESSES_MAX)
        self._on_failure(address, reason)

    def on_reached(self, address: str, what: str = "peer") -> None:
        """Note that an address was reached. That is logged if a failure was."""
        self._failed.pop(address, None)
        if self._reasons.pop(address, None) is not None:
            note(f"{what} reached after all", address=address)
