"""Lines of servers and clients: an entry that is appended at any place arrives at every other one, and nothing else has to happen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import product
from math import inf

import pytest
import trio
from mesh_support import a_peer
from network_support import eventually, memory_log, until_has

from gossiplog import GossipLog
from gossiplog.net.service import service

UP, DOWN, MESH = "up", "down", "mesh"
"""How a log is joined to the next one: as a client of its hub, as the hub of that client, or as its peer in a mesh."""

HUBS_ONLY = [line for hops in (1, 2, 3) for line in product((UP, DOWN), repeat=hops)]
WITH_A_MESH = [line for hops in (1, 2) for line in product((UP, DOWN, MESH), repeat=hops) if MESH in line]
LONG_WITH_A_MESH = [line for line in product((UP, DOWN, MESH), repeat=3) if MESH in line]


@asynccontextmanager
async def joined(line: Sequence[str]) -> AsyncIterator[list[GossipLog]]:
    """Logs in memory, each connected to the next one."""
    async with AsyncExitStack() as stack:
        logs = [await stack.enter_async_context(memory_log(number)) for number in range(1, len(line) + 2)]
        addresses, urls = {}, {}
        for at, log in enumerate(logs):
            before, after = line[at - 1] if at else None, line[at] if at < len(line) else None
            if MESH in (before, after):
                bootstrap = addresses[at - 1] if before == MESH else ()
                peer = await stack.enter_async_context(a_peer(*bootstrap, log=log))
                addresses[at] = peer.host.announced[:1]
            if before == UP or after == DOWN:
                urls[at] = (await stack.enter_async_context(log.listen("127.0.0.1:0"))).urls[0]
        for at, kind in enumerate(line):
            if kind == UP:
                await stack.enter_async_context(logs[at].connect(urls[at + 1]))
            elif kind == DOWN:
                await stack.enter_async_context(logs[at + 1].connect(urls[at]))
        for at, log in enumerate(logs):
            neighbours = (at > 0) + (at < len(line))
            await eventually(
                lambda log=log, neighbours=neighbours: sum(link.is_pushing for link in service.service_of(log).links()) == neighbours
            )
        yield logs


async def check(line: Sequence[str]) -> None:
    """Append at each place in turn, one entry and several at once, and wait for all others."""
    async with joined(line) as logs:
        for log in logs:
            for count in (1, 3):
                entries = await log.append_many(range(count))
                for other in logs:
                    await until_has(other, entries)


@pytest.fixture(autouse=True)
def no_other_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is told again just because time has passed."""
    monkeypatch.setattr(service, "Broadcast", partial(service.Broadcast, tell_again_s=inf))


@pytest.mark.parametrize("line", HUBS_ONLY, ids="-".join)
async def test_entry_arrives_along_a_line_of_hubs(line: tuple[str, ...]) -> None:
    await check(line)


async def test_entry_arrives_along_lines_of_hubs_and_meshes() -> None:
    async with trio.open_nursery() as nursery:
        for line in WITH_A_MESH:
            nursery.start_soon(check, line)


@pytest.mark.slow
async def test_entry_arrives_along_longer_lines_of_hubs_and_meshes() -> None:
    async with trio.open_nursery() as nursery:
        for line in LONG_WITH_A_MESH:
            nursery.start_soon(check, line)
