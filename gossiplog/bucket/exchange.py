"""Both directions with a bucket: take what others have published, then publish what is new here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..entry.signing import Signer
from .publish import Published, publish
from .storage import Storage
from .take import Taken, take

if TYPE_CHECKING:
    from ..replica.log import Replica

__all__ = ["Exchanged", "exchange"]


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The result of an exchange with a bucket.

    Attributes:
        taken: What was taken from each publisher.
        published: What was published; None without a signer.
    """

    taken: Taken
    published: Published | None


async def exchange(
    log: Replica, storage: Storage, signer: Signer | None, *, on_progress: Callable[[int, int], None] | None = None
) -> Exchanged:
    """Take, then publish. Raises as `take` and `publish`."""
    taken = await take(log, storage, on_progress=on_progress)
    return Exchanged(taken, None if signer is None else await publish(log, storage, signer))
