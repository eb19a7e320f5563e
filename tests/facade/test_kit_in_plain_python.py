"""Every method of the kit's parts that takes a log, on logs of the façades."""

from __future__ import annotations

import asyncio
from pathlib import Path

from facade_support import open_async, open_blocking
from kit_support import FOLDER, LIKES, ORDER, TAGS, TODOS, Todo, together

from gossiplog import kit


def test_parts_are_read_and_written_without_an_await(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(120_000))
    with open_blocking(app=together) as log:
        first = log.append(ORDER.insert("x"))
        log.append_many([TODOS.put("1", Todo("bread")), LIKES.add("a", 3), TAGS.add("new"), ORDER.insert("y", after=first.id)])
        assert kit.ask(TODOS.get, log, "1") == Todo("bread")
        assert kit.ask(TODOS.items, log) == {"1": Todo("bread")}
        assert kit.ask(LIKES.get, log, "a") == 3
        assert kit.ask(LIKES.items, log) == {"a": 3}
        assert kit.ask(TAGS.has, log, "new")
        assert kit.ask(TAGS.items, log) == ["new"]
        assert [element.value for element in kit.ask(ORDER.items, log)] == ["x", "y"]

        id = kit.ask(FOLDER.write, log, "a.bin", source)
        assert kit.ask(FOLDER.items, log) == {"a.bin": 120_000}
        assert kit.ask(FOLDER.versions, log) == {"a.bin": id}
        assert b"".join(kit.ask(FOLDER.read, log, "a.bin")) == bytes(120_000)
        assert list(kit.ask(FOLDER.read, log, "b.bin")) == []
        begun = log.append({"part": "folder", "op": "begin", "path": "b.bin", "size": 120_000, "chunks": 3})
        assert kit.ask(FOLDER.unfinished, log, begun.author) == {"b.bin": begun.id}
        kit.ask(FOLDER.resume, log, begun.id, source)
        assert kit.ask(FOLDER.unfinished, log, begun.author) == {}
        assert kit.ask(FOLDER.items, log) == {"a.bin": 120_000, "b.bin": 120_000}


def test_parts_are_read_in_asyncio_as_in_trio() -> None:
    async def main() -> None:
        async with open_async(app=together) as log:
            await FOLDER.write(log, "a.bin", b"abc")
            assert await FOLDER.items(log) == {"a.bin": 3}
            assert [chunk async for chunk in FOLDER.read(log, "a.bin")] == [b"abc"]

    asyncio.run(main())
