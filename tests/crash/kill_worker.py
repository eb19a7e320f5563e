"""A process that loads a log with everything at once, says on stdout what was acknowledged, and waits to be killed.

python -m tests.crash.kill_worker FILE DURABILITY SEED
"""

from __future__ import annotations

import os
import sys
from random import Random

import trio

import gossiplog
from gossiplog.codec import pcf
from gossiplog.entry import Ed25519Signer, Entry, next_clock, sign_entry

TOPIC = "crash.example.com"


async def apply(entries, tx) -> None:
    """The application's side: a table that must always have exactly the log's entries."""
    await tx.execute("CREATE TABLE IF NOT EXISTS app (key BLOB PRIMARY KEY) WITHOUT ROWID")
    await tx.execute_many("INSERT INTO app VALUES (?)", [(entry.key,) for entry in entries])


def acknowledge(entries: list[Entry]) -> None:
    """Say in one write that these were acknowledged: a pipe takes up to 4,096 bytes whole."""
    for low in range(0, len(entries), 100):
        os.write(1, "".join(f"{entry.id}\n" for entry in entries[low : low + 100]).encode())


async def load(path: str, durability: str, random: Random) -> None:
    """Append from six tasks, one by one and in batches, insert somebody else's entries, and follow with a cursor; for ever."""
    async with gossiplog.open(path, topic=TOPIC, signer=Ed25519Signer.generate(), apply=apply, durability=durability) as log:
        os.write(1, b"open\n")

        async def append() -> None:
            while True:
                if random.random() < 0.2:
                    acknowledge(await log.append_many([random.randbytes(random.randint(0, 300)) for _ in range(random.randint(2, 60))]))
                else:
                    acknowledge([await log.append(random.randbytes(random.randint(0, 300)))])

        async def insert() -> None:
            stranger = Ed25519Signer.generate()
            chain: list[Entry] = []
            while True:
                batch = []
                for _ in range(random.randint(1, 80)):
                    parents = sorted({entry.key for entry in random.sample(chain[-5:], min(len(chain[-5:]), random.randint(0, 2)))})
                    batch.append(sign_entry(stranger, TOPIC, next_clock(parents), parents, pcf.encode(random.randbytes(50))))
                    chain.append(batch[-1])
                await log.insert_many([entry.value for entry in batch])
                acknowledge(batch)

        async def follow() -> None:
            async with log.subscribe(cursor="follower") as events:
                count = 0
                async for entry in events:
                    count += 1
                    if count % 50 == 0:
                        await events.ack(entry)

        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(append)
            nursery.start_soon(insert)
            nursery.start_soon(follow)


if __name__ == "__main__":
    trio.run(load, sys.argv[1], sys.argv[2], Random(int(sys.argv[3])))
