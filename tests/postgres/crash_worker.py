"""A process that loads a log on a server with everything at once, through crashes of the server, and says on stdout what was acknowledged.

python -m tests.postgres.crash_worker URL NAME SEED
"""

from __future__ import annotations

import itertools
import os
import sys
from random import Random

import trio

import gossiplog
from gossiplog.codec import pcf
from gossiplog.entry import Ed25519Signer, Entry, next_clock, sign_entry
from gossiplog.errors import StoreError

TOPIC = "crash.example.com"


async def apply(entries, tx) -> None:
    """The application's side: a table that must always have exactly the log's entries."""
    await tx.execute_many("INSERT INTO app VALUES ($1)", [(entry.key,) for entry in entries])


def acknowledge(entries: list[Entry]) -> None:
    """Say in one write that these were acknowledged: a pipe takes up to 4,096 bytes whole."""
    for low in range(0, len(entries), 100):
        os.write(1, "".join(f"{entry.id}\n" for entry in entries[low : low + 100]).encode())


async def load(url: str, name: str, random: Random) -> None:
    """Append one by one and in batches, insert somebody else's entries, and follow with a cursor; for ever, whatever the server does."""
    numbers = itertools.count()

    def payload() -> list[object]:
        # No two are alike, so that an entry that was appended twice shows.
        return [name, next(numbers), random.randbytes(random.randint(0, 200))]

    async def append(log) -> None:
        if random.random() < 0.2:
            acknowledge(await log.append_many([payload() for _ in range(random.randint(2, 40))]))
        else:
            acknowledge([await log.append(payload())])

    stranger = Ed25519Signer.generate()
    chain: list[Entry] = []

    async def insert(log) -> None:
        batch = []
        for _ in range(random.randint(1, 40)):
            parents = sorted({entry.key for entry in random.sample(chain[-5:], min(len(chain[-5:]), random.randint(0, 2)))})
            batch.append(sign_entry(stranger, TOPIC, next_clock(parents), parents, pcf.encode(payload())))
            chain.append(batch[-1])
        verdicts = await log.insert_many([entry.value for entry in batch])
        acknowledge([verdict.entry for verdict in verdicts if verdict.accepted])
        if not all(verdict.accepted for verdict in verdicts):
            # What was lost with a connection took its descendants along; begin a new chain.
            chain.clear()

    async def follow(log) -> None:
        async with log.subscribe(cursor=f"follower-{name}") as events:
            for _ in range(50):
                entry = await anext(events)
            await events.ack(entry)

    async def repeat(operation, log) -> None:
        while True:
            try:
                await operation(log)
            except StoreError as error:
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
                chain.clear()
                # The log refuses at once what the server refuses; a loop of nothing else would starve the others.
                await trio.sleep(0.01)

    while True:
        try:
            async with (
                gossiplog.open(url, topic=TOPIC, signer=Ed25519Signer.generate(), apply=apply) as log,
                trio.open_nursery() as nursery,
            ):
                os.write(1, b"open\n")
                for operation in (append, append, append, append, insert, follow):
                    nursery.start_soon(repeat, operation, log)
        except StoreError as error:
            os.write(2, f"opening: {type(error).__name__}: {error}\n".encode())
            await trio.sleep(0.05)


if __name__ == "__main__":
    trio.run(load, sys.argv[1], sys.argv[2], Random(int(sys.argv[3])))
