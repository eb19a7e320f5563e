"""The figures of a log, of its service and of this machine, taken for whoever examines them. Each takes a bounded time.

Source: docs/glass.md, "Doctor".
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import Counter
from pathlib import Path

import trio

from ...glass.doctor import HEADS_WARN, DiskSpace, LogFigures, NetworkFigures, PeerFigures
from ...log.requests import ReadCount, ReadHeads, ReadQuarantineCount, ReadSetAside
from ...log.spot_check import SpotCheck, spot_check
from ...plan import Plan, ask
from ...pubsub.types import Topic
from ...replica.reader import LogReader
from .push_stream import QUEUE_BYTES_MAX
from .service import Service

__all__ = ["SPOTS", "read_disk", "read_files", "read_log", "read_network", "trouble_of"]

SPOTS = 64
"""Entries whose place in the tree is looked at."""
SPOTS_S = 3.0
_SET_ASIDE_MAX = 10_000
_PAGE = 1_000
_HOUR_S = 3_600.0
RECENT_S = 30.0
"""For how long a commit that failed says something, as nobody may have written since."""


async def read_log(log: LogReader) -> LogFigures:
    """Count what is in a log, and look at the place in the tree of some entries; about 20 ms where the log is small, 3 s and more never.

    Raises:
        StoreError: It cannot be read.
    """
    figures = await log.run(_count(time.time()))
    places = random.SystemRandom().sample(range(figures.entries), min(SPOTS, figures.entries))
    spots = SpotCheck(0, ())
    with trio.move_on_after(SPOTS_S):
        spots = await log.run(spot_check(places))
    aside = await log.run(_count_set_aside())
    return LogFigures(figures.entries, figures.heads, figures.quarantined, figures.quarantined_lately, aside, spots.looked_at, spots.faults)


def _count(now: float) -> Plan[LogFigures]:
    entries, _ = yield from ask(ReadCount())
    heads = yield from ask(ReadHeads(HEADS_WARN + 1))
    quarantined, lately = yield from ask(ReadQuarantineCount(now - _HOUR_S))
    return LogFigures(entries, len(heads), quarantined, lately)


def _count_set_aside() -> Plan[Counter[str]]:
    counts = Counter[str]()
    after: tuple[bytes, str] | None = None
    while counts.total() < _SET_ASIDE_MAX and (page := (yield from ask(ReadSetAside(after, _PAGE)))):
        counts.update(record.application for record in page)
        after = page[-1].key, page[-1].application
    return counts


def read_disk(location: str) -> DiskSpace | None:
    """Look at the disk that a log's file lies on; None for a log that lies elsewhere."""
    path = Path(location)
    if "://" in location or not path.exists() or not hasattr(os, "statvfs"):
        return None
    disk = os.statvfs(path)
    return DiskSpace(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)


def read_misplaced(location: str) -> str | None:
    """Say whether a log that this process has open lies no more where it was opened: moved, removed, or another one put there."""
    path, descriptors = Path(location), Path("/proc/self/fd")
    if "://" in location or location == ":memory:" or not descriptors.is_dir():
        return None
    try:
        there = path.stat()
    except OSError:
        return f"{path} is not there any more"
    for descriptor in descriptors.iterdir():
        with contextlib.suppress(OSError, ValueError):
            if os.path.samestat(os.fstat(int(descriptor.name)), there):
                return None
    return f"{path} is another file now"


def read_files() -> tuple[int, int] | None:
    """Count this process's file descriptors, and say how many it may have; None where the system does not tell."""
    try:
        import resource

        return sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except (ImportError, OSError):
        return None


def read_network(service: Service) -> NetworkFigures:
    """Show a service as its doctor wants to see it."""
    state = service.state()
    known = {peer.peer: peer for peer in state.router.peers}
    peers = []
    for peer in service.peers.values():
        mesh = known.get(peer.id)
        peers.append(
            PeerFigures(
                peer.id,
                peer.kind.value,
                peer.pubsub_protocol,
                () if mesh is None else mesh.topics,
                None if mesh is None or mesh.score is None else mesh.score.total,
                service.is_heeded(peer.id),
                0 if peer.push is None else peer.push.queued_bytes,
                peer.counts.get("dropped", 0) + (0 if mesh is None else mesh.dropped),
                peer.counts.get("messages refused", 0),
                peer.push is not None,
            )
        )
    return NetworkFigures(
        service.topic,
        tuple(peers),
        tuple(service.hubs),
        is_in_mesh=service.dialler is not None,
        degree=sum(len(one.full_message) for one in state.router.topics if one.topic == service.topic),
        is_spread=service.machine.router.is_ready(Topic(service.topic)),
        queue_bytes_max=QUEUE_BYTES_MAX,
        dials={dial.address: dial.reason for dial in service.troubles.dials()},
        banned={peer: reason for peer, _, reason in service.bans.standing(trio.current_time())},
        quiet_s=time.time() - service.figures.changed_at,
        store_trouble=trouble_of(service),
        is_disk_full=service.health.full() is not None,
        waiting=service.waiting,
    )


def trouble_of(service: Service) -> str | None:
    """Say why nothing can be stored at the moment; None while it can, as far as we know."""
    failure = service.log.writer.failure
    failed = str(failure[1]) if failure is not None and time.monotonic() - failure[0] < RECENT_S else None
    return service.health.full() or failed or service.health.trouble
