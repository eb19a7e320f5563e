"""What each part of the kit means, on every store."""

from random import Random
from typing import Any

import msgspec
import pytest
from kit_support import FOLDER, LIKES, ORDER, TAGS, TODOS, Todo, together
from log_support import SIGNERS, TOPIC

import gossiplog
from gossiplog import Policy, kit


async def test_map_keeps_the_write_with_the_highest_id(open_log) -> None:
    async with open_log(app=together) as log:
        await log.append(TODOS.put("a", Todo("milk")))
        await log.append(TODOS.put("a", Todo("milk", done=True)))
        await log.append(TODOS.put("b", Todo("bread")))
        await log.append(TODOS.remove("b"))
        assert await TODOS.items(log) == {"a": Todo("milk", done=True)}
        assert await TODOS.get(log, "a") == Todo("milk", done=True)
        assert await TODOS.get(log, "b") is None


async def test_counter_counts_each_entry_once(open_log) -> None:
    async with open_log(app=together) as log:
        await log.append_many([LIKES.add("a"), LIKES.add("a", 5), LIKES.add("b", -2)])
        assert await LIKES.items(log) == {"a": 6, "b": -2}
        assert (await LIKES.get(log, "a"), await LIKES.get(log, "none")) == (6, 0)


async def test_removal_undoes_only_what_it_has_seen(open_log) -> None:
    async with open_log(app=together) as log, gossiplog.open(":memory:", topic=TOPIC, signer=SIGNERS[1], app=together) as other:
        await log.append_many([TAGS.add("a"), TAGS.add("b")])
        await other.sync(log)
        await log.append_many([TAGS.remove("a"), TAGS.remove("b")])
        await other.append(TAGS.add("a"))
        await other.sync(log)
        await log.sync(other)
        for replica in (log, other):
            assert await TAGS.items(replica) == ["a"]
            assert (await TAGS.has(replica, "a"), await TAGS.has(replica, "b")) == (True, False)


async def test_list_keeps_what_each_author_wrote_in_a_row(open_log) -> None:
    async def write(log: Any, words: str, after: str | None) -> None:
        for word in words.split():
            after = (await log.append(ORDER.insert(word, after=after))).id

    async with open_log(app=together) as log, gossiplog.open(":memory:", topic=TOPIC, signer=SIGNERS[1], app=together) as other:
        first = await log.append(ORDER.insert("once"))
        await other.sync(log)
        await write(log, "upon a time", first.id)
        await write(other, "there was one", first.id)
        await other.append(ORDER.remove(first.id))
        await other.sync(log)
        await log.sync(other)
        texts = [[element.value for element in await ORDER.items(replica)] for replica in (log, other)]
        assert texts[0] == texts[1]
        assert " ".join(texts[0]) in ("upon a time there was one", "there was one upon a time")


async def test_file_is_read_when_all_of_it_is_there(open_log, tmp_path) -> None:
    content = Random(1).randbytes(200_000)
    path = tmp_path / "photo"
    path.write_bytes(content)
    async with open_log(app=together) as log:
        assert [chunk async for chunk in FOLDER.read(log, "a/photo")] == []
        await FOLDER.write(log, "a/photo", b"an older one")
        begun = await log.append({"part": "folder", "op": "begin", "path": "a/photo", "size": len(content), "chunks": 5})
        await log.append({"part": "folder", "op": "chunk", "file": begun.id, "index": 2, "data": content[2 * 49_152 : 3 * 49_152]})
        assert await FOLDER.items(log) == {"a/photo": 12}
        # What a stranger adds to it is no part of it.
        await log.append({"part": "folder", "op": "chunk", "file": begun.id, "index": 0, "data": b"evil"}, signer=SIGNERS[1])
        before = await log.count()
        await FOLDER.resume(log, begun.id, path)
        assert await log.count() == before + 4
        assert await FOLDER.items(log) == {"a/photo": 200_000}
        assert b"".join([chunk async for chunk in FOLDER.read(log, "a/photo")]) == content
        await log.append(FOLDER.remove("a/photo"))
        assert await FOLDER.items(log) == {}


async def test_unknown_is_left_alone_and_malformed_is_refused(open_log) -> None:
    async with open_log(app=together) as log:
        await log.append({"part": "todos", "op": "paint", "key": 1})
        await log.append({"part": "nobody's", "op": "put"})
        await log.append({**TODOS.put("a", Todo("milk")), "colour": "red"})
        for payload in ({"part": "todos", "op": "put", "key": "a"}, {**LIKES.add("a"), "by": 1.5}, {**LIKES.add("a"), "by": 2**31}):
            with pytest.raises(gossiplog.GossipLogError):
                await log.append(payload)
        assert await TODOS.items(log) == {"a": Todo("milk")}
        assert await log.count() == 3


async def test_new_version_gives_meaning_to_what_had_none(open_durable) -> None:
    class Coloured(msgspec.Struct):
        text: str
        done: bool = False
        colour: str = "none"

    strict = kit.compose("todo", 1, kit.Map("todos", dict[str, int]))
    later = kit.Map("todos", Coloured)
    async with open_durable(app=strict) as log:
        entry = await foreign(later.put("a", Coloured("milk", colour="red")))
        await log.insert(entry.value)
        assert await log.query("SELECT * FROM todos_map") == []
        assert await log.has(entry.id)
    async with open_durable(app=kit.compose("todo", 2, later)) as log:
        assert await later.items(log) == {"a": Coloured("milk", colour="red")}


async def foreign(payload: Any) -> gossiplog.Entry:
    async with gossiplog.open(":memory:", topic=TOPIC, signer=SIGNERS[1]) as log:
        return await log.append(payload)


async def test_what_becomes_void_is_gone_from_every_part_as_if_it_had_never_been_written(open_durable) -> None:
    """A removed member had written in each part, others upon it; later it counts again. All replicas show what a new one shows."""
    anna, ben, carl = SIGNERS[:3]

    async def parts(replica: Any) -> list[Any]:
        order = [(element.id, element.value) for element in await ORDER.items(replica)]
        return [await TODOS.items(replica), await LIKES.items(replica), await TAGS.items(replica), order]

    async with (
        open_durable(topic="kit.example.com", policy=Policy((anna.did,)), signer=anna, app=together) as log,
        gossiplog.open(":memory:", topic=log.topic, signer=ben, app=together) as bens,
        gossiplog.open(":memory:", topic=log.topic, signer=carl, app=together) as carls,
    ):
        place = await log.grant(ben.did)
        await log.grant(carl.did)
        await log.append_many([TODOS.put("a", Todo("milk")), TAGS.add("x"), LIKES.add("a"), ORDER.insert("first")])
        first = (await log.heads())[0]
        for other in (bens, carls):
            await other.sync(log)
        removal = await log.revoke(place.id)
        said = [TODOS.put("a", Todo("poison")), TAGS.remove("x"), TAGS.add("y"), LIKES.add("a", 5), ORDER.insert("void", after=first)]
        void = [await bens.append(payload) for payload in said]
        await carls.sync(bens)
        await carls.append_many([TODOS.put("b", Todo("bread")), LIKES.add("a"), ORDER.insert("upon it", after=void[-1].id)])
        await log.sync(carls)
        await carls.sync(log)

        async def check(expected: list[Any]) -> None:
            async with gossiplog.open(":memory:", topic=log.topic, app=together) as anew:
                for entry in [entry async for entry in log.iterate()]:
                    await anew.insert(entry.value)
                assert await parts(anew) == await parts(log) == await parts(carls)
                assert (await parts(log))[:3] == expected
            before = await parts(log)
            await log.rebuild()
            assert await parts(log) == before

        await check([{"a": Todo("milk"), "b": Todo("bread")}, {"a": 2}, ["x"]])
        assert {(await carls.standing(entry.id)).revoked_by for entry in void} == {(removal.id,)}
        await log.admit([entry.id for entry in void])
        await carls.sync(log)
        await check([{"a": Todo("poison"), "b": Todo("bread")}, {"a": 7}, ["y"]])
        assert [element.value for element in await ORDER.items(log)] == ["first", "void", "upon it"]
