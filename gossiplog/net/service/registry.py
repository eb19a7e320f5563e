"""The one service that a log has: the first user starts it, the last one stops it."""

from __future__ import annotations

import random
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from weakref import WeakKeyDictionary

from ...errors import LocalProtocolError
from ...pubsub.params import GossipsubParams
from ...pubsub.registry import make_router
from ...pubsub.router import Router
from ...pubsub.types import PeerId
from ...pubsub.wire.rpc_codec import WireLimits
from ...replica.log import Replica
from .observer import Observer
from .service import MakeRouter, Service

__all__ = ["observed", "open_service", "service_of"]

_OBSERVED: WeakKeyDictionary[Replica, Path | None] = WeakKeyDictionary()
"""Logs of which facts are wanted, and the file that they are written to."""
_SERVICES: WeakKeyDictionary[Replica, Service] = WeakKeyDictionary()
"""The service of each log that is on the network."""


def service_of(log: Replica) -> Service | None:
    """Return the service of a log, None if it is not on the network."""
    return _SERVICES.get(log)


@contextmanager
def observed(log: Replica, file: Path | None = None) -> Iterator[None]:
    """Have facts made of all that the log's service does, for the length of a block, which begins before that service does.

    Args:
        log: Not on the network yet.
        file: Where facts are written, beside the ring of the service's observer; None for nowhere.
    """
    _OBSERVED[log] = file
    try:
        yield
    finally:
        del _OBSERVED[log]


@asynccontextmanager
async def open_service(
    log: Replica, *, me: PeerId | None = None, make_router: MakeRouter | None = None, wire: WireLimits | None = None
) -> AsyncIterator[Service]:
    """Use the log's service for the length of a block: the one that runs, or one that is started here. It stops with its last user.

    Args:
        log: Which must stay open longer.
        me: Our peer id; None where no peer will ask.
        make_router: How a mesh spreads entries; gossipsub unless given.
        wire: Limits of pubsub's frames.

    Raises:
        LocalProtocolError: It runs already, with another peer id or router than these.
    """
    service = _SERVICES.get(log)
    if service is None:
        service = Service(log, me or PeerId(f"local-{secrets.token_hex(8)}"), make_router or _make_gossipsub, wire or WireLimits())
        if log in _OBSERVED:
            service.observer = Observer(service.me, service.topic, service.state().router.router, _OBSERVED[log])
        _SERVICES[log] = service
        await log.tasks.start(service.run)
    elif (me is not None and me != service.me) or make_router is not None:
        raise LocalProtocolError(f"the log is on the network already, as {service.me}", hint="join the mesh before listening or connecting")
    service.users += 1
    try:
        yield service
    finally:
        service.users -= 1
        if not service.users:
            del _SERVICES[log]
            service.stop()


def _make_gossipsub(rng: random.Random) -> Router:
    return make_router("gossipsub", GossipsubParams(), rng)
