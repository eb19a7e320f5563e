"""Documents of Yjs in a log: what rooms, stores and providers of the real pycrdt do with them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
import trio
from log_support import SIGNERS
from postgres_support import PostgresServer
from pycrdt import Array, Awareness, Channel, Doc, Map, Provider, Text, YMessageType, create_awareness_message, read_message
from pycrdt.store import YDocNotFound
from pycrdt.websocket import YRoom

import gossiplog
from gossiplog import Application, Policy
from gossiplog.errors import ClosedError, LocalProtocolError
from gossiplog.pycrdt import APPLICATION, DOCUMENTS, LogYStore, provide, read_only, shared
from gossiplog.pycrdt.cursors import share_awareness

TOPIC = "rooms.example.com"


def open_log(location: str | Path = ":memory:", author: int = 0, app: Application | None = APPLICATION) -> Any:
    return gossiplog.open(location, topic=TOPIC, signer=SIGNERS[author], app=app, durability="off")


def store_on(log: Any) -> type[LogYStore]:
    return type("Store", (LogYStore,), {"replica": log})


def text_of(doc: Doc[Any]) -> Text:
    return doc.get("text", type=Text)


async def until_says(doc: Doc[Any], *words: str) -> None:
    with trio.fail_after(60):
        while not all(word in str(text_of(doc)) for word in words):
            await trio.sleep(0.01)


class Pipe(Channel):
    """One end of a client's connection to a room."""

    path = "plan"

    def __init__(self, sender: Any, receiver: Any) -> None:
        self._sender = sender
        self._receiver = receiver

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None:
        self._sender.close()
        self._receiver.close()

    async def send(self, message: bytes) -> None:
        await self._sender.send(message)

    async def recv(self) -> bytes:
        try:
            message: bytes = await self._receiver.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None
        return message


def pipes() -> tuple[Pipe, Pipe]:
    there, back = (anyio.create_memory_object_stream[bytes](100) for _ in range(2))
    return Pipe(there[0], back[1]), Pipe(back[0], there[1])


@asynccontextmanager
async def room_on(log: Any) -> AsyncIterator[YRoom]:
    async with YRoom(provider_factory=provide(log, "plan")) as room:
        yield room
        # Rooms leave that to the garbage collector, which warns of it.
        room._update_send_stream.close()


@asynccontextmanager
async def client_of(room: YRoom, *, may_write: bool = True) -> AsyncIterator[Doc[Any]]:
    """A document whose provider is connected to a room, as a browser's would be."""
    ours, theirs = pipes()
    doc: Doc[Any] = Doc()
    async with ours, theirs, anyio.create_task_group() as tasks:
        tasks.start_soon(room.serve, theirs if may_write else read_only(theirs))
        async with Provider(doc, ours) as provider:
            await provider.synced.wait()
            yield doc
        tasks.cancel_scope.cancel()


@pytest.mark.slow
async def test_rooms_on_two_replicas_are_one_room() -> None:
    async with AsyncExitStack() as stack:
        one, other = [await stack.enter_async_context(open_log(author=number)) for number in range(2)]
        hub = await stack.enter_async_context(one.listen("127.0.0.1:0"))
        await stack.enter_async_context(other.connect(hub.urls[0]))
        rooms = [await stack.enter_async_context(room_on(log)) for log in (one, one, other)]
        docs = [await stack.enter_async_context(client_of(room)) for room in rooms]
        for number, doc in enumerate(docs):
            text_of(doc).insert(0, f"client {number}. ")
            doc.get("cells", type=Array).append(Map({"source": Text("print()"), "number": float(number)}))
        for doc in docs:
            await until_says(doc, "client 0", "client 1", "client 2")
        del text_of(docs[0])[:]
        with trio.fail_after(60):
            while any(str(text_of(doc)) or len(doc.get("cells", type=Array)) < 3 for doc in docs):
                await trio.sleep(0.01)
        cells = [[cell.to_py() for cell in doc.get("cells", type=Array)] for doc in docs]
        assert cells[0] == cells[1] == cells[2]
        authors = {entry.author for log in (one, other) async for entry in log.iterate()}
        assert authors == {SIGNERS[0].did, SIGNERS[1].did}


@pytest.mark.slow
async def test_workers_on_one_postgres_log_are_one_room(postgres: PostgresServer) -> None:
    async with AsyncExitStack() as stack:
        url = postgres.new_log()
        workers = [await stack.enter_async_context(open_log(url, author=number)) for number in range(2)]
        rooms = [await stack.enter_async_context(room_on(log)) for log in workers]
        docs = [await stack.enter_async_context(client_of(room)) for room in rooms]
        for number, doc in enumerate(docs):
            text_of(doc).insert(0, f"worker {number}. ")
        for doc in docs:
            await until_says(doc, "worker 0", "worker 1")
        store = await stack.enter_async_context(store_on(workers[0])("plan"))
        loaded: Doc[Any] = Doc()
        await store.apply_updates(loaded)
        await until_says(loaded, "worker 0", "worker 1")
        text_of(docs[1]).insert(0, "more. ")
        await until_says(loaded, "more")
        assert len(str(text_of(loaded))) == len("worker 0. worker 1. more. ")


async def test_what_a_store_has_been_given_is_there_again(tmp_path: Path) -> None:
    async with open_log(tmp_path / "log.db") as log, store_on(log)("plan") as store:
        doc: Doc[Any] = Doc()
        with pytest.raises(YDocNotFound):
            await store.apply_updates(doc)
        doc.observe(lambda event: updates.append(event.update))
        updates: list[bytes] = []
        for word in ("once ", "upon ", "a ", "time"):
            text_of(doc).insert(len(str(text_of(doc))), word)
        async with trio.open_nursery() as nursery:
            for update in updates:
                nursery.start_soon(store.write, update)
        await store.encode_state_as_update(doc)
        assert await log.count() <= 4, "and nothing of what was there already"
    async with open_log(tmp_path / "log.db") as log, store_on(log)("plan") as store, store_on(log)("other") as empty:
        again: Doc[Any] = Doc()
        await store.apply_updates(again)
        assert str(text_of(again)) == "once upon a time"
        history: Doc[Any] = Doc()
        async for update, _, time in store.read():
            history.apply_update(update)
            assert time > 1.7e9
        assert str(text_of(history)) == "once upon a time"
        with pytest.raises(YDocNotFound):
            await empty.apply_updates(Doc())
        assert await DOCUMENTS.names(log) == ["plan"]


@pytest.mark.slow
async def test_what_is_loaded_stays_small_and_a_large_document_is_cut() -> None:
    async with open_log() as log, open_log(author=1) as other:
        doc: Doc[Any] = Doc()
        async with provide(log, "plan")(doc) as provider:
            await provider.synced.wait()
            for number in range(700):
                text_of(doc).insert(0, f"{number} ")
                if number % 4 == 0:
                    await trio.testing.wait_all_tasks_blocked()
            text_of(doc).insert(0, "x" * 300_000)
        assert await log.count() > 100
        await other.sync(log)
        for replica in (log, other):
            assert len(await DOCUMENTS.ids(replica, "plan")) < 600
            again: Doc[Any] = Doc()
            async with provide(replica, "plan")(again) as provider:
                await provider.synced.wait()
            assert str(text_of(again)) == str(text_of(doc))
        with pytest.raises(LocalProtocolError, match="at most"):
            await DOCUMENTS.write(log, "plan", bytes(25 << 20))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_who_follows_and_who_loads_have_the_same_whatever_snapshots_were_made(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_STANDING_MAX", 4)
    random = Random(seed)
    async with AsyncExitStack() as stack:
        logs = [await stack.enter_async_context(open_log(author=number)) for number in range(3)]
        docs: list[Doc[Any]] = []
        for log in (*logs, *logs):
            docs.append(Doc())
            await stack.enter_async_context(provide(log, "plan")(docs[-1]))
        for _ in range(120):
            text = text_of(random.choice(docs))
            if random.random() < 0.3 and len(text) > 2:
                at = random.randrange(len(text) - 1)
                del text[at : at + random.randrange(1, 3)]
            else:
                text.insert(random.randrange(len(text) + 1), random.choice("abcde") * random.randrange(1, 4))
            if random.random() < 0.4:
                await trio.testing.wait_all_tasks_blocked()
            if random.random() < 0.3:
                one, other = random.sample(logs, 2)
                await one.sync(other)
        with trio.fail_after(60):
            while len({str(text_of(doc)) for doc in docs}) > 1:
                for one in logs:
                    for other in logs:
                        if one is not other:
                            await one.sync(other)
                await trio.sleep(0.02)
        standing = [await DOCUMENTS.ids(log, "plan") for log in logs]
        assert standing[0] == standing[1] == standing[2]
        assert len(standing[0]) < 40, "snapshots were made"
        for log in logs:
            doc: Doc[Any] = Doc()
            async with provide(log, "plan")(doc) as provider:
                await provider.synced.wait()
            assert str(text_of(doc)) == str(text_of(docs[0]))


async def until_knows(room: YRoom, id: int, state: Any) -> None:
    with trio.fail_after(60):
        while room.awareness.states.get(id) != state:
            await trio.sleep(0.01)


async def test_cursors_are_seen_in_the_rooms_of_other_servers() -> None:
    async with AsyncExitStack() as stack:
        one, other = [await stack.enter_async_context(open_log(author=number)) for number in range(2)]
        hub = await stack.enter_async_context(one.listen("127.0.0.1:0"))
        await stack.enter_async_context(other.connect(hub.urls[0]))
        rooms = [await stack.enter_async_context(room_on(log)) for log in (one, other)]
        for room, log in zip(rooms, (one, other), strict=True):
            await stack.enter_async_context(share_awareness(room, log, "plan"))
        apart = await stack.enter_async_context(room_on(other))
        await stack.enter_async_context(share_awareness(apart, other, "another plan"))
        pages = [(Awareness(Doc()), pipes()) for _ in rooms]
        for _, ends in pages:
            for end in ends:
                await stack.enter_async_context(end)
        heard: list[Awareness] = []
        async with anyio.create_task_group() as tasks:
            for room, (page, (ours, theirs)) in zip(rooms, pages, strict=True):
                tasks.start_soon(room.serve, theirs)
                tasks.start_soon(hear_awareness, page, ours)
                heard.append(page)
            for (page, (ours, _)), word in zip(pages, ("here", "there"), strict=True):
                page.set_local_state({"user": {"name": word}, "cursor": 1})
                await ours.send(create_awareness_message(page.encode_awareness_update([page.client_id])))
            for room in rooms:
                for page in heard:
                    await until_knows(room, page.client_id, page.get_local_state())
            # The clients of either room are told.
            with trio.fail_after(60):
                while not all(page.states.get(mate.client_id) == mate.get_local_state() for page in heard for mate in heard):
                    await trio.sleep(0.01)
            page, (ours, _) = pages[0]
            page.set_local_state({"user": {"name": "here"}, "cursor": 2})
            await ours.send(create_awareness_message(page.encode_awareness_update([page.client_id])))
            await until_knows(rooms[1], page.client_id, {"user": {"name": "here"}, "cursor": 2})
            # It leaves.
            page.set_local_state(None)
            await ours.send(create_awareness_message(page.encode_awareness_update([page.client_id])))
            await until_knows(rooms[1], page.client_id, None)
            await until_knows(rooms[1], heard[1].client_id, {"user": {"name": "there"}, "cursor": 1})
            # What no room tells is passed over.
            prefix = next(name for states in other.presence.states.values() for name in states).rpartition(" ")[0]
            deep = b"\x01\x08\x01\x7f" + b"[" * 127
            for name, value in (("7", b"\x01\x08\x01\x02{}"), ("7", b"\xff" * 9), ("x", 1), ("8", deep), ("8", b"\x01\x08\x01\x02{")):
                await other.presence.set({f"{prefix} {name}": value})
            await anyio.sleep(0.2)
            assert set(rooms[0].awareness.states) == {rooms[0].awareness.client_id, heard[1].client_id}
            assert set(apart.awareness.states) == {apart.awareness.client_id}
            tasks.cancel_scope.cancel()
        assert await one.count() == 0


async def hear_awareness(page: Awareness, channel: Channel) -> None:
    async for message in channel:
        if message[0] == YMessageType.AWARENESS:
            page.apply_awareness_update(read_message(message[1:]), "server")


async def test_members_who_read_change_nothing() -> None:
    anna, ben = SIGNERS[:2]
    options: dict[str, Any] = {"topic": TOPIC, "signer": anna, "policy": Policy([anna.did])}
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(gossiplog.open(":memory:", app=APPLICATION, **options))
        await log.grant(ben.did, "read")
        reader = await stack.enter_async_context(gossiplog.open(":memory:", topic=log.topic, signer=ben, app=APPLICATION))
        room = await stack.enter_async_context(room_on(log))
        writer = await stack.enter_async_context(client_of(room))
        guest = await stack.enter_async_context(client_of(room, may_write=False))
        text_of(guest).insert(0, "by a guest ")
        text_of(writer).insert(0, "by a writer ")
        await until_says(guest, "by a writer")
        await reader.sync(log)
        store = await stack.enter_async_context(store_on(reader)("plan"))
        theirs: Doc[Any] = Doc()
        await store.apply_updates(theirs)
        assert str(text_of(theirs)) == "by a writer "
        text_of(theirs).insert(0, "by a member who reads ")
        count, said = await reader.count(), logging.getLogger("gossiplog.pycrdt.store")
        with said_by(said) as lines:
            await store.write(theirs.get_update())
        assert len(lines) == 1 and "not in the log" in lines[0]
        assert await reader.count() == count
        text_of(writer).insert(0, "again ")
        await until_says(guest, "again")
        await reader.sync(log)
        await until_says(theirs, "again")
        assert str(text_of(room.ydoc)) == "again by a writer "


async def test_a_snapshot_after_a_removal_brings_back_nothing_void_and_loses_nothing_that_builds_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Yjs cannot take back what a room shows. So what a snapshot says comes from the log, and not from the room."""
    monkeypatch.setattr(shared, "_STANDING_MAX", 4)
    anna, ben, carl = SIGNERS[:3]
    async with (
        gossiplog.open(":memory:", topic=TOPIC, signer=anna, policy=Policy([anna.did]), app=APPLICATION) as log,
        gossiplog.open(":memory:", topic=log.topic, signer=ben, app=APPLICATION) as bens,
        gossiplog.open(":memory:", topic=log.topic, signer=carl, app=APPLICATION) as carls,
        gossiplog.open(":memory:", topic=log.topic, app=APPLICATION) as reads,
    ):
        place = (await log.grant(ben.did)).id
        await log.grant(carl.did)
        begun: Doc[Any] = Doc()
        async with provide(log, "plan")(begun) as provider:
            await provider.synced.wait()
            text_of(begun).insert(0, "start")
            await until_edits(log, 1)
        for other in (bens, carls):
            await other.sync(log)
        await log.revoke(place)
        shown, written, open_room = Doc[Any](), Doc[Any](), AsyncExitStack()
        async with provide(bens, "plan")(written) as provider:
            await provider.synced.wait()
            text_of(written).insert(5, "[void]")
            await until_edits(bens, 2)
        void = (await DOCUMENTS.ids(bens, "plan"))[1]
        async with open_room:
            provider = await open_room.enter_async_context(provide(carls, "plan")(shown))
            await provider.synced.wait()
            await carls.sync(bens)
            await until_says(shown, "[void]")
            text_of(shown).insert(len(text_of(shown)), " upon it")
            await until_edits(carls, 3)
            await carls.sync(log)
            assert not (await carls.standing(void)).counts
            # Others write elsewhere in the text, and what this room writes next makes a snapshot.
            begun = Doc()
            async with provide(log, "plan")(begun) as provider:
                await provider.synced.wait()
                for number in range(3):
                    text_of(begun).insert(0, f"{number} ")
                    await until_edits(log, 2 + number)
            await carls.sync(log)
            await until_says(shown, "2 1 0 start[void] upon it")
            text_of(shown).insert(len(text_of(shown)), "!")
            await until_edits(carls, 1, most=3)
        edits = [edit for edit in [DOCUMENTS.edit_of(entry) async for entry in carls.iterate()] if edit is not None]
        assert any(edit.replaces for edit in edits), "a snapshot was made"
        assert void not in [id for edit in edits for id in edit.replaces]
        await log.sync(carls)
        await reads.sync(log)
        for replica in (log, carls, reads):
            assert await text_in(replica) == "2 1 0 start"
        # What was written upon the void one is shown where that counts again, and rooms that are open show both.
        anew = Doc[Any]()
        async with provide(reads, "plan")(anew) as provider:
            await provider.synced.wait()
            await log.admit([void])
            await reads.sync(log)
            await until_says(anew, "2 1 0 start[void] upon it!")
        await carls.sync(log)
        for replica in (log, carls, reads):
            assert await text_in(replica) == "2 1 0 start[void] upon it!"


async def until_edits(log: Any, count: int, *, most: int = 100) -> None:
    with trio.fail_after(60):
        while not count <= len(await DOCUMENTS.ids(log, "plan")) <= most:
            await trio.sleep(0.01)


async def text_in(log: Any) -> str:
    """What somebody sees who opens the document now."""
    doc: Doc[Any] = Doc()
    async with provide(log, "plan")(doc) as provider:
        await provider.synced.wait()
    return str(text_of(doc))


async def test_edits_without_an_effect_are_followed_by_nobody() -> None:
    async with open_log() as log, open_log(author=1, app=None) as other:
        doc: Doc[Any] = Doc()
        async with provide(log, "plan")(doc) as provider:
            await provider.synced.wait()
            text_of(doc).insert(0, "kept")
            with trio.fail_after(60):
                while not (ids := await DOCUMENTS.ids(log, "plan")):
                    await trio.sleep(0.01)
            await other.sync(log)
            edit = {"part": "documents", "op": "edit", "document": "plan"}
            author: Doc[Any] = Doc()
            hidden: Doc[Any] = Doc()
            text_of(hidden).insert(0, "not applied")
            shares = await other.append({"op": "piece", "data": hidden.get_update()})
            for payload in (
                {"update": b"\xff\xff\xff"},
                {"update": b"\0\0", "replaces": ["0" * 32]},
                {"update": hidden.get_update(), "document": "another"},
                {"update": hidden.get_update(), "time": -1},
                {"update": b"", "pieces": [shares.id, shares.id]},
                {"update": b"", "pieces": [ids[0]]},
            ):
                await other.append(edit | payload)
            text_of(author).insert(0, "good. ")
            await DOCUMENTS.write(other, "plan", author.get_update())
            await log.sync(other)
            await until_says(doc, "kept", "good. ")
            assert "not applied" not in str(text_of(doc))
        again: Doc[Any] = Doc()
        async with provide(log, "plan")(again) as provider:
            await provider.synced.wait()
        assert str(text_of(again)) == str(text_of(doc))


async def test_a_store_without_its_log_says_so_and_keeps_nobody_waiting() -> None:
    class Broken(LogYStore):
        def opened(self) -> Any:
            raise ClosedError("no such log")

    store = Broken("plan")
    with pytest.RaisesGroup(ClosedError):
        await store.start()
    with pytest.raises(ClosedError, match="no such log"), trio.fail_after(60):
        await store.apply_updates(Doc())


@contextmanager
def said_by(logger: logging.Logger) -> Iterator[list[str]]:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
