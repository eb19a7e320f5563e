"""The browser client and the reference's in one room: a hub of ours brings them together."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from interop_support import Reference, install_reference, root_of, run_reference
from network_support import memory_log

from gossiplog.codec import pcf

pytestmark = pytest.mark.slow
TOPIC = "room.example.com"
WAIT_MS = 60_000


@pytest.fixture
async def reference() -> AsyncIterator[Reference]:
    install_reference()
    async with run_reference("hub.mjs") as running:
        yield running


async def test_our_client_the_references_and_python_are_in_one_room(client: Reference, reference: Reference) -> None:
    async with memory_log(1, TOPIC) as log, log.listen("127.0.0.1:0") as hub:
        await log.append_many({"python": n} for n in range(20))
        await client.ask("open", name="ours", topic=TOPIC, seed="07" * 32)
        await reference.ask("open", log="theirs", topic=TOPIC, seed="08" * 32)
        await client.ask("appendMany", name="ours", payloads=[{"ours": n} for n in range(5)])
        await client.ask("connect", name="ours", url=hub.urls[0])
        await reference.ask("connect", log="theirs", url=hub.urls[0])
        for n in range(5):
            await client.ask("append", name="ours", payload={"live": n, "text": "grüß dich 🌍"})
            await reference.ask("append", log="theirs", payloads=[pcf.encode({"theirs": n, "half": 0.5}).hex()])
            await log.append({"live": n})
        with trio.fail_after(WAIT_MS / 1_000):
            while await log.count() < 40:
                await trio.sleep(0.05)
            await client.ask("settled", name="ours")
        _, digest = await root_of(log)
        assert await reference.ask("until", log="theirs", hash=digest.hex(), ms=WAIT_MS) == digest.hex()
        ids = [entry.id async for entry in log.iterate()]
        assert await client.ask("ids", name="ours") == ids
        assert len(ids) == 40
        assert (await client.ask("link", name="ours"))["refused"] == []
        assert (await reference.ask("state", log="theirs"))["faults"] == []
