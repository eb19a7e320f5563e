"""A list of things to do, shared by devices that are often offline.

`python todo.py phone.db` is one of them, to be typed into; `help` says what.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

import gossiplog
from gossiplog import kit

TOPIC = "todo.example.com"
HELP = "add TEXT, done N, undo N, remove N, list, online URL, offline, quit"

items = kit.List("items", str)
done = kit.Set("done")
application = kit.compose("todo", 1, items, done)


async def show(log: gossiplog.GossipLog) -> None:
    """Print the list as this device knows it."""
    ticked = await done.items(log)
    lines = [f"{n} [{'x' if item.id in ticked else ' '}] {item.value}" for n, item in enumerate(await items.items(log), 1)]
    print(*(lines or ["nothing to do"]), ".", sep="\n", flush=True)


async def do(log: gossiplog.GossipLog, verb: str, rest: str) -> None:
    """Append what a line says."""
    listed = await items.items(log)
    if verb == "add":
        await log.append(items.insert(rest, after=listed[-1].id if listed else None))
        return
    id = listed[int(rest) - 1].id
    await log.append({"done": done.add, "undo": done.remove, "remove": items.remove}[verb](id))


async def show_changes(log: gossiplog.GossipLog) -> None:
    """Print the list whenever it has changed, by whoever it was."""
    async with log.subscribe(from_now=True) as entries:
        async for _ in entries:
            await show(log)


async def stay_online(log: gossiplog.GossipLog, url: str, scope: trio.CancelScope) -> None:
    """Exchange entries with a hub until the device goes offline."""
    with scope:
        async with log.connect(url) as link:
            await link.wait_connected()
            print("online", flush=True)
            await trio.sleep_forever()
    print("offline", flush=True)


async def device(path: str) -> None:
    """Do what is typed, until the end of it."""
    key = Path(path).with_suffix(".key")
    if not key.exists():
        gossiplog.Ed25519Signer.generate().save(key)
    signer = gossiplog.Ed25519Signer.load(key)
    async with gossiplog.open(path, topic=TOPIC, signer=signer, app=application) as log, trio.open_nursery() as nursery:
        nursery.start_soon(show_changes, log)
        connection = trio.CancelScope()
        await show(log)
        async for line in trio.wrap_file(sys.stdin):
            verb, _, rest = line.strip().partition(" ")
            if verb == "quit":
                break
            if verb == "online":
                connection = trio.CancelScope()
                nursery.start_soon(stay_online, log, rest, connection)
            elif verb == "offline":
                connection.cancel()
            elif verb == "list":
                await show(log)
            elif verb in ("add", "done", "undo", "remove"):
                try:
                    await do(log, verb, rest)
                except (ValueError, IndexError):
                    print(f"there is no item {rest!r}", flush=True)
            else:
                print(HELP, flush=True)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(device, sys.argv[1])
