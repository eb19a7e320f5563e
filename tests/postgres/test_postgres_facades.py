"""Programs in trio, in asyncio and in plain Python open one log at the same time, write to it, and follow each other."""

from __future__ import annotations

import subprocess
import sys

import pytest
from postgres_support import PostgresServer

from gossiplog import blocking, kit

EACH = 20
PER_WORLD = 2
PRELUDE = f"""
import sys, gossiplog
from gossiplog import aio, blocking, kit
votes = kit.Counter("votes")
options = {{"topic": "votes.example.com", "app": kit.compose("votes", 1, votes), "signer": gossiplog.Ed25519Signer.generate()}}
url, total = sys.argv[1], {EACH * PER_WORLD * 3}
"""
TRIO = """
import trio
async def main():
    async with gossiplog.open(url, **options) as log, log.subscribe() as entries:
        for _ in range(EACH): await log.append(votes.add("trio"))
        for _ in range(total): await anext(entries)
        print(await log.root(), await votes.items(log))
trio.run(main)
"""
ASYNCIO = """
import asyncio
async def main():
    async with aio.open(url, **options) as log, log.subscribe() as entries:
        for _ in range(EACH): await log.append(votes.add("asyncio"))
        for _ in range(total): await anext(entries)
        print(await log.root(), await votes.items(log))
asyncio.run(main())
"""
PLAIN = """
with blocking.open(url, **options) as log, log.subscribe() as entries:
    for _ in range(EACH): log.append(votes.add("plain"))
    for _ in range(total): next(entries)
    print(log.root(), dict(sorted(log.query("SELECT key, value FROM votes_counter"))))
"""


@pytest.mark.slow
def test_programs_of_all_three_worlds_share_one_log(postgres: PostgresServer) -> None:
    url = postgres.new_log()
    programs = [PRELUDE + world.replace("EACH", str(EACH)) for world in (TRIO, ASYNCIO, PLAIN) for _ in range(PER_WORLD)]
    processes = [
        subprocess.Popen([sys.executable, "-c", program, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for program in programs
    ]
    try:
        ended = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [err for _, err in ended] == [""] * len(programs)
    # All of them saw the same at the end: each entry once, and equal tables.
    assert len({out for out, _ in ended}) == 1
    with blocking.open(url, app=kit.compose("votes", 1, kit.Counter("votes"))) as log:
        assert log.count() == EACH * len(programs)
        assert dict(log.query("SELECT key, value FROM votes_counter")) == dict.fromkeys(("trio", "asyncio", "plain"), EACH * PER_WORLD)
        assert log.fsck().is_clean
