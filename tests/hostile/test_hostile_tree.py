"""A log in which somebody ground hashes, so that a node has more children than the reference's frames hold: it is served all the same."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio
from hostile_support import SYNC, TOPIC, Server, muxed_attacker, running_server
from loop_watch import read_report

import gossiplog
from gossiplog import Ed25519Signer
from gossiplog.codec import pcf
from gossiplog.codec.framing import encode_frame
from gossiplog.entry import sign_entry
from gossiplog.errors import StreamReset
from gossiplog.sync.rpc import GetChildren
from gossiplog.sync.wire import encode_request
from gossiplog.tree.node import FANOUT, boundary_limit, leaf_hash

pytestmark = pytest.mark.slow

SIBLINGS = 92_000
"""More than the 91,180 nodes that fit a frame of 4 MiB."""
MEMORY_MIB = 150
WRITES = 15
WRITE_MS = 25
"""Of CPU: 2 to 4 beside the siblings and 7 to 9 at the tail, where each append merges 256 heads, on a machine that is not too busy."""


async def grind(path: Path) -> None:
    """Fill a log with entries none of which is a boundary, by the real rule: about one signature in 32 is in vain."""
    signer = Ed25519Signer.from_seed(b"\x41" * 32)
    limit, number = boundary_limit(FANOUT), 0
    async with gossiplog.open(path.with_name("fresh.db"), topic=TOPIC), gossiplog.open(path, topic=TOPIC, durability="off") as log:
        for size in (SIBLINGS // 2, SIBLINGS - SIBLINGS // 2):
            values: list[bytes] = []
            while len(values) < size:
                entry = sign_entry(signer, TOPIC, 1, [], pcf.encode(number))
                number += 1
                if leaf_hash(entry.key, entry.value) >= limit:
                    values.append(entry.value)
            await log.insert_many(values)


async def measure_writes(path: Path) -> dict[str, float]:
    """The median milliseconds of CPU of an entry that is inserted beside the siblings, and of one that is appended."""
    signer = Ed25519Signer.from_seed(b"\x42" * 32)
    costs: dict[str, list[float]] = {"insert": [], "append": []}
    async with gossiplog.open(path, topic=TOPIC, signer=signer, durability="off") as log:
        for number in range(WRITES):
            value = sign_entry(signer, TOPIC, 1, [], pcf.encode(number)).value
            for name, write in (("insert", lambda value=value: log.insert(value)), ("append", lambda number=number: log.append(number))):
                began = time.process_time()
                await write()
                costs[name].append(1e3 * (time.process_time() - began))
    return {name: statistics.median(each) for name, each in costs.items()}


async def ask_as_the_reference_does(server: Server) -> None:
    async with muxed_attacker(server) as connection:
        stream = await connection.open_stream([SYNC])
        await stream.send_all(encode_frame(encode_request(GetChildren(1, None))))
        with trio.fail_after(30), pytest.raises(StreamReset):
            await stream.receive_some()


def test_fresh_client_pulls_a_log_with_a_node_of_92000_children(tmp_path: Path) -> None:
    trio.run(grind, tmp_path / "served.db")
    shutil.copyfile(tmp_path / "served.db", tmp_path / "written.db")
    medians = trio.run(measure_writes, tmp_path / "written.db")
    assert max(medians.values()) < WRITE_MS, medians
    with running_server(tmp_path, entries=0) as server:
        held, before = len(read_report(server.report)), server.memory_mib()
        command = [sys.executable, "-m", "gossiplog", "sync", str(tmp_path / "fresh.db"), server.url, "--pull", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        record = json.loads(done.stdout)
        assert record["pulled"] == SIBLINGS
        assert record["equal"]
        # Where parts are unknown there is no way to say it, which ends the stream and nothing else.
        trio.run(ask_as_the_reference_does, server)
        assert server.memory_mib("VmHWM") - before < MEMORY_MIB
        assert read_report(server.report)[held:] == [], "its loop was held"
