"""A server whose PostgreSQL goes away under load: what it answers meanwhile, and that all is well by itself afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
from network_support import TOPIC, eventually, fetch, memory_log, until_equal
from postgres_support import PostgresServer, running_server

import gossiplog
from gossiplog.archive import entry_to_line
from gossiplog.entry import Ed25519Signer
from gossiplog.net.hub.server import Hub
from gossiplog.net.service.service import service_of


@pytest.fixture
def frail() -> Iterator[PostgresServer]:
    """A server that the test may stop."""
    with running_server() as server:
        yield server


async def readiness(hub: Hub) -> tuple[int, str]:
    answer = await fetch(hub, "/readyz")
    return answer.status, answer.body.decode().strip()


@pytest.mark.slow
async def test_a_served_log_answers_503_while_the_server_is_stopped_and_recovers(frail: PostgresServer) -> None:
    """Stopped and started under load, twice: every answer is quick, and what was acknowledged is there."""
    acknowledged: set[str] = set()
    refused: list[float] = []
    signers = [Ed25519Signer.from_seed(bytes([number + 40]) * 32) for number in range(4)]
    async with gossiplog.open(frail.new_log(), topic=TOPIC, signer=signers[0]) as log, log.listen("127.0.0.1:0") as hub:
        async with trio.open_nursery() as nursery:

            async def post(signer: Ed25519Signer) -> None:
                async with gossiplog.open(":memory:", topic=TOPIC, signer=signer) as own:
                    number = 0
                    while True:
                        entry = await own.append(number := number + 1)
                        # What was refused is sent again, as one would.
                        while True:
                            began = trio.current_time()
                            answer = await fetch(
                                hub, "/api/messages", method="POST", headers={"content-type": "application/json"}, body=entry_to_line(entry)
                            )
                            if answer.status == 201:
                                acknowledged.add(entry.id)
                                break
                            assert answer.status == 503, answer.body
                            refused.append(trio.current_time() - began)
                            await trio.sleep(0.05)

            for signer in signers[1:]:
                nursery.start_soon(post, signer)
            async with memory_log(9) as client, client.connect(hub.urls[0]):
                for _ in range(2):
                    before = len(acknowledged)
                    await eventually(lambda before=before: len(acknowledged) > before + 30)
                    count = len(refused)
                    await trio.to_thread.run_sync(frail.stop, "immediate")
                    await eventually(lambda count=count: len(refused) > count + 10)
                    began = trio.current_time()
                    assert (await fetch(hub, "/api/clock")).status == 503
                    assert await readiness(hub) == (503, f"{TOPIC}: store away")
                    assert trio.current_time() - began < 10.0
                    await client.append("while the store is away")
                    await trio.to_thread.run_sync(frail.start)
                    await eventually(lambda: service_of(log).health.trouble is None)
                    assert await readiness(hub) == (200, "ready")
                before = len(acknowledged)
                await eventually(lambda: len(acknowledged) > before + 30)
                nursery.cancel_scope.cancel()
        for id in acknowledged:
            assert await log.has(id)
        async with memory_log(9) as last, last.connect(hub.urls[0]):
            await until_equal(log, last)
    refused.sort()
    assert refused[len(refused) // 2] < 1.0
    # And none waits for the 30 s that the store itself would.
    assert refused[-1] < 10.0


@pytest.mark.slow
async def test_a_database_that_says_nothing_any_more_keeps_nobody_waiting(frail: PostgresServer) -> None:
    """Its connections stay open, and a read that is under way would have no answer for 65 s."""
    async with (
        gossiplog.open(frail.new_log(), topic=TOPIC, signer=Ed25519Signer.from_seed(bytes(32))) as log,
        log.listen("127.0.0.1:0") as hub,
    ):
        await log.append("before")
        # With a connection to read on, which hangs; a new one could be given up.
        assert (await fetch(hub, "/api/messages")).status == 200
        with frail.frozen():
            for path, status in (("/api/clock", 503), ("/readyz", 503), ("/metrics", 200), ("/api/messages", 503)):
                began = trio.current_time()
                assert (await fetch(hub, path)).status == status, path
                assert trio.current_time() - began < 5.0, path
        await eventually(lambda: service_of(log).health.trouble is None)
        assert (await fetch(hub, "/api/clock")).status == 200
        assert await log.count() == 1
