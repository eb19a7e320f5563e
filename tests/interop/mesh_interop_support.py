"""What the tests of libp2p's meshes share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio


async def until(holds: Callable[[], Awaitable[Any]], wait_s: float = 60.0) -> Any:
    """Ask again and again, as the other side is a process, until the answer is true."""
    with trio.fail_after(wait_s):
        while not (found := await holds()):
            await trio.sleep(0.05)
    return found


async def returned(value: Any) -> Any:
    """Return a value, for `until`."""
    return value
