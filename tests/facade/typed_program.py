"""A user's program, with everything that the guides show. It is not run: type checkers read it as they would from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

import gossiplog
from gossiplog import Application, Entry, Policy, Reject, SyncResult, Verdict, aio, blocking, kit
from gossiplog.access import encode_code, invitation_signer
from gossiplog.log.past import Past
from gossiplog.net import HubLimits
from gossiplog.replica.tx import SyncTx, Tx


@dataclass
class Todo:
    text: str
    done: bool = False


todos = kit.Map("todos", Todo)
likes = kit.Counter("likes")
tags = kit.Set("tags")
items = kit.List("items", str)
folder = kit.Files("folder")
documents = kit.Documents("documents")
parts = kit.compose("todo", 1, todos, likes, tags, items, folder, documents)


def reset(tx: SyncTx) -> None:
    tx.execute("DROP TABLE IF EXISTS notes")


def apply(entries: Sequence[Entry], tx: SyncTx) -> None:
    for entry in entries:
        match entry.payload:
            case {"op": "note", "text": str(text)}:
                for (id,) in tx.execute("INSERT INTO notes VALUES ($1, $2) RETURNING id", [text, entry.id]):
                    tx.is_ancestor(id, entry.id)
            case _:
                raise Reject("unknown", id=entry.id)


async def apply_later(entries: Sequence[Entry], tx: Tx) -> None:
    await tx.execute("INSERT INTO notes VALUES ($1, $2)", (entries[0].author, entries[0].id))


def authorize(message: gossiplog.Message, did: str, past: Past) -> bool:
    return any(entry.author == did for entry in past.ancestors()) or past.get(message.parents[0]) is None


async def in_trio(signer: gossiplog.Signer) -> None:
    applications = [parts, Application("notes", 1, apply, reset), Application("later", 1, apply_later)]
    async with gossiplog.open(Path("a.db"), topic="a", signer=signer, app=applications, authorize=authorize) as log:
        await log.append(todos.put("a", Todo("b")))
        all_todos: dict[str, Todo] = await todos.items(log)
        count: int = await likes.get(log, "a")
        for item in await items.items(log):
            print(item.value.upper(), item.id.upper(), all_todos, count)
        entries = await log.append_many([likes.add("x", 3), tags.add("a"), items.insert("b", after=None)])
        verdicts: list[Verdict] = await log.insert_many([each.value for each in entries])
        async for each in log.iterate(reverse=True, limit=3):
            print(each.payload, verdicts[0].outcome is gossiplog.Outcome.ACCEPT)
        async with log.subscribe("worker") as events:
            async for each in events:
                await events.ack(each)
            await events.flush()
        async with log.listen(":0", limits=HubLimits()) as hub, log.connect(hub.urls[0], token="x") as link:
            await link.wait_connected()
        result: SyncResult = await log.sync(log)
        published = await log.publish("bucket")
        exchanged = await log.sync("bucket")
        print(result.entries, published.size, exchanged.taken.entries, (await log.fsck(repair=True)).problems)
        async for change in log.presence:
            print(change.author.upper(), change.name.upper(), change.value)
        async for aside in log.set_aside():
            print(aside.reason.upper())
        async with log.keep_synced("bucket", every_s=1) as peer:
            print(peer.error, peer.published)
    async with gossiplog.open("team.db", topic="team", policy=Policy([signer.did]), signer=signer) as team:
        place = await team.grant(invitation_signer(encode_code(bytes(10)), team.topic).did, "admin", device=True)
        print([member.role for member in await team.members() if member.is_held], (await team.standing(place.id)).counts)
        await team.revoke(place.id, adopt=[place.id])
    async with gossiplog.shelf("folder", signer=signer) as shelf, shelf.open("x", create=True) as one:
        await one.append({"n": 1})


async def in_asyncio(signer: gossiplog.Signer) -> None:
    async with (
        aio.open(":memory:", topic="a", signer=signer, app=parts) as log,
        log.listen("127.0.0.1:0") as hub,
        log.connect(hub.urls[0]),
        log.subscribe() as events,
    ):
        appended: list[Entry] = await asyncio.gather(*(log.append({"n": n}) for n in range(3)))
        async for entry in events:
            print(entry.message.payload, appended)
        all_todos: dict[str, Todo] = await todos.items(log)
        await folder.write(log, "a.txt", Path("a.txt"))
        chunks: list[bytes] = [chunk async for chunk in folder.read(log, "a.txt")]
        await documents.write(log, "plan", b"")
        await log.presence.set({"name": "Ann"}, ttl_s=10)
        print(all_todos, chunks, gossiplog.asgi(log))


def in_plain_python(signer: gossiplog.Signer) -> None:
    with blocking.open("app.db", topic="x", signer=signer, app=parts) as log, log.subscribe("worker") as events:
        entry: Entry = log.append({"n": 1})
        for each in events:
            events.ack(each)
        all_todos: dict[str, Todo] = kit.ask(todos.items, log)
        print(b"".join(kit.ask(folder.read, log, "a.txt")), all_todos, entry)
    opened = blocking.open(":memory:", topic="x")
    opened.start().append(1)
    opened.close()


signer = gossiplog.Ed25519Signer.generate()
trio.run(in_trio, signer)
asyncio.run(in_asyncio(signer))
in_plain_python(signer)
