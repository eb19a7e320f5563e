"""Two `gossiplog serve` processes on one log: each serves clients of its own, and all see what anybody appends."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
from log_support import SIGNERS, assert_whole, opened
from postgres_support import running_server

from gossiplog.net.hub.client import connect


@contextmanager
def serving(url: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `gossiplog serve` for the length of a block; yields the URL of the hub, and its process."""
    command = ["gossiplog", "serve", url, "--listen", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        yield json.loads(line)["urls"][0], process
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said


async def test_two_servers_on_one_log_serve_their_clients_and_see_each_others_appends(postgres, warm_gossiplog) -> None:
    url = postgres.new_log()
    async with opened(url) as log:
        await log.append_many(range(20))
    memory = ":memory:"
    with serving(url) as (one, _), serving(url) as (two, _), trio.fail_after(60):
        async with (
            opened(memory, signer=SIGNERS[1]) as left,
            opened(memory, signer=SIGNERS[2]) as right,
            connect(left, one),
            connect(right, two),
            left.subscribe() as to_left,
            right.subscribe() as to_right,
        ):
            for _ in range(20):
                await anext(to_left)
                await anext(to_right)
            # From a client of one server, through the database, to a client of the other; both ways, and from a third process.
            for number in range(5):
                entry = await (left if number % 2 else right).append(["client", number])
                assert {(await anext(to_left)).key, (await anext(to_right)).key} == {entry.key}
            async with opened(url, signer=SIGNERS[3]) as log:
                entry = await log.append("third")
                assert {(await anext(to_left)).key, (await anext(to_right)).key} == {entry.key}
            assert await left.root() == await right.root()
    async with opened(url) as log:
        assert await log.count() == 26
        await assert_whole(log)


@pytest.mark.slow
async def test_sigterm_ends_a_server_in_time_whose_database_says_nothing_to_a_commit() -> None:
    with running_server() as frail:
        url = frail.new_log()
        async with opened(url) as log:
            await log.append("before")
        async with opened(":memory:", signer=SIGNERS[1]) as client:
            with serving(url) as (hub, process):
                async with connect(client, hub):
                    while not await client.count():
                        await trio.sleep(0.01)
                    with frail.frozen():
                        # Each is a commit of its own, or waits for the one before it.
                        for number in range(3):
                            await client.append(number)
                            await trio.sleep(0.2)
                        began = time.monotonic()
                        process.send_signal(signal.SIGTERM)
                        await trio.to_thread.run_sync(process.wait)
                        took = time.monotonic() - began
        assert took < 5.0
        async with opened(url) as log:
            await assert_whole(log)
