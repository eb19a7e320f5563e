"""A server that is killed again and again, and started again as systemd would, while clients write: nothing acknowledged is lost."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import h11
import pytest
import trio
from network_support import TOPIC, fetch, memory_log
from ports import free_port

import gossiplog
from gossiplog import Entry, GossipLog
from gossiplog.archive import entry_to_line
from gossiplog.net.hub import client as hub_client
from gossiplog.net.hub.client import parse_url
from gossiplog.net.hub.exchange import exchange

pytestmark = pytest.mark.slow

KILLS = 15
POSTING = 3
READY_S = 60.0
"""A second or two on a free machine."""
NOT_ANSWERED = (OSError, trio.BrokenResourceError, trio.TooSlowError, h11.RemoteProtocolError)
JSON = {"content-type": "application/json"}


@asynccontextmanager
async def started(config: Path, errors: Path) -> AsyncIterator[trio.Process]:
    """`gossiplog serve --config` for the length of a block, which ends it with SIGTERM if it still runs."""
    command = [sys.executable, "-m", "gossiplog", "serve", "--config", str(config)]
    with errors.open("ab") as stderr:
        async with trio.open_nursery() as nursery:
            process = await nursery.start(partial(trio.run_process, command, stdout=subprocess.DEVNULL, stderr=stderr, check=False))
            yield process
            if process.returncode is None:
                process.terminate()


async def until_ready(hub: Any) -> float:
    """Wait until the server says that it is; return after how long it was."""
    began = trio.current_time()
    with trio.fail_after(READY_S):
        while True:
            with suppress(*NOT_ANSWERED):
                if (await fetch(hub, "/readyz")).status == 200:
                    return trio.current_time() - began
            await trio.sleep(0.05)


async def is_taken(hub: Any, entry: Entry) -> bool:
    """Post an entry; say whether it was acknowledged."""
    with suppress(*NOT_ANSWERED):
        status = (await fetch(hub, "/api/messages", method="POST", headers=JSON, body=entry_to_line(entry))).status
        assert status in (201, 503)
        return status == 201
    return False


async def post_for_ever(hub: Any, number: int, acknowledged: list[str]) -> None:
    """Post entries, each until it is acknowledged."""
    async with memory_log(number) as log:
        while True:
            entry = await log.append(len(acknowledged))
            while not await is_taken(hub, entry):
                await trio.sleep(0.05)
            acknowledged.append(entry.id)


async def append_for_ever(client: GossipLog) -> None:
    while True:
        await client.append("pushed")
        await trio.sleep(0.02)


async def test_nothing_acknowledged_is_lost_by_a_server_that_is_killed_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Clients that were cut off so often would wait for longer each time.
    monkeypatch.setattr(hub_client, "RETRY_MOST_S", hub_client.RETRY_FIRST_S)
    path, config, errors, random = tmp_path / "hub.db", tmp_path / "serve.toml", tmp_path / "errors", Random(15)
    async with gossiplog.open(path, topic=TOPIC):
        pass
    hub = SimpleNamespace(port=free_port())
    url = f"ws://127.0.0.1:{hub.port}"
    config.write_text(f'logs = ["{path}"]\nlisten = ["127.0.0.1:{hub.port}"]\nper-address = 100\n')
    acknowledged: list[str] = []
    took_s: list[float] = []
    async with memory_log(1) as a, memory_log(2) as b:
        async with AsyncExitStack() as stack:
            for client in (a, b):
                await stack.enter_async_context(client.connect(url))
            writing = await stack.enter_async_context(trio.open_nursery())
            for number in range(POSTING):
                writing.start_soon(post_for_ever, hub, 10 + number, acknowledged)
            for client in (a, b):
                writing.start_soon(append_for_ever, client)
            for _ in range(KILLS):
                async with started(config, errors) as process:
                    took_s.append(await until_ready(hub))
                    wanted = len(acknowledged) + random.randint(1, 40)
                    with trio.fail_after(READY_S):
                        while len(acknowledged) < wanted:
                            await trio.sleep(0.005)
                    process.kill()
            writing.cancel_scope.cancel()
        async with started(config, errors) as process:
            took_s.append(await until_ready(hub))
            for client in (a, b):
                assert (await exchange(client, parse_url(url))).is_equal
        assert process.returncode == 0
        async with gossiplog.open(path) as log:
            kept = {entry.id async for entry in log.iterate()}
            assert kept >= set(acknowledged)
            for client in (a, b):
                assert kept >= {entry.id async for entry in client.iterate()}
            assert (await log.fsck()).is_clean
    print(f"{len(acknowledged)} acknowledged; ready after {statistics.median(took_s):.1f} s, {max(took_s):.1f} s at most")
    assert "Traceback" not in errors.read_text()
