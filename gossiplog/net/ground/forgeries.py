"""How many entries that nobody could have signed, or large bodies that are no entry, an address may post before it has to wait."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

import trio

from ...limits import address_group

__all__ = ["Forgeries"]

_MOST = 5
_DECAY_S = 60.0
"""After which one is forgotten."""
_ADDRESSES_MAX = 4_096


class Forgeries:
    """Counts them by address. Loopback and proxies are let be: behind them there are others.

    Only posts wait, as nothing but the address is known of who posts, and honest ones may share it.

    Args:
        is_exempt: Whether an address is let be.
    """

    def __init__(self, is_exempt: Callable[[str], bool]) -> None:
        self._is_exempt = is_exempt
        # When all that came from an address will be forgotten.
        self._until: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, address: str) -> int:
        """How many seconds an address has to wait before it may post again."""
        if self._is_exempt(address):
            return 0
        over = self._until.get(address_group(address), 0.0) - trio.current_time() - (_MOST - 1) * _DECAY_S
        return max(0, math.ceil(over))

    def count(self, address: str) -> None:
        """Note a forgery."""
        name = address_group(address)
        self._until[name] = max(self._until.get(name, 0.0), trio.current_time()) + _DECAY_S
        self._until.move_to_end(name)
        if len(self._until) > _ADDRESSES_MAX:
            self._until.popitem(last=False)
