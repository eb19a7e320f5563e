"""kill -9 of a server for a folder, while 200 of its logs are written to."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

import gossiplog
from gossiplog.archive.jsonl import entry_to_line
from gossiplog.net.hub.client import HubUrl, parse_url

LOGS = 200
READY_S = 10.0
"""Ten times what it takes on two cores that nobody else uses."""


@contextmanager
def serving(folder: Path) -> Iterator[tuple[subprocess.Popen[str], HubUrl]]:
    command = [sys.executable, "-m", "gossiplog", "serve", "--dir", str(folder), "--listen", "127.0.0.1:0", "--json", "--most-open", "150"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            told = json.loads(server.stdout.readline())
            yield server, parse_url(told["urls"][0].replace("ws://", "http://").removesuffix("/TOPIC"), of_server=True)
        finally:
            server.kill()


@pytest.mark.slow
async def test_nothing_acknowledged_is_lost_when_a_hub_of_200_logs_is_killed(tmp_path: Path) -> None:
    acknowledged: list[tuple[str, str]] = []
    signer = gossiplog.Ed25519Signer.generate()
    async with gossiplog.shelf(tmp_path) as shelf:
        for number in range(LOGS):
            async with shelf.open(f"room-{number}", create=True):
                pass
    with serving(tmp_path) as (server, url):

        async def write(topics: list[str]) -> None:
            for turn in range(1_000):
                for topic in topics:
                    async with gossiplog.open(":memory:", topic=topic, signer=signer) as log:
                        entry = await log.append({"turn": turn})
                    try:
                        answer = await url.ask(f"/{topic}/api/messages", entry_to_line(entry), answer_bytes_max=10_000)
                    except (OSError, gossiplog.GossipLogError):
                        return
                    assert answer.status in (201, 503), answer.body
                    if answer.status == 201:
                        acknowledged.append((topic, entry.id))

        async with trio.open_nursery() as nursery:
            for worker in range(8):
                nursery.start_soon(write, [f"room-{number}" for number in range(worker, LOGS, 8)])
            with trio.fail_after(200):
                while len({topic for topic, _ in acknowledged}) < LOGS:
                    await trio.sleep(0.05)
            server.kill()
    began = time.monotonic()
    with serving(tmp_path) as (server, url):
        assert time.monotonic() - began < READY_S
        for topic, id in acknowledged:
            assert (await url.ask(f"/{topic}/api/messages/{id}", answer_bytes_max=10_000)).status == 200, topic
    async with gossiplog.shelf(tmp_path) as shelf:
        for number in range(0, LOGS, 10):
            async with shelf.open(f"room-{number}") as log:
                assert (await log.fsck()).is_clean
