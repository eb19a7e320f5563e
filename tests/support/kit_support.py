"""Each part of the kit as an application of its own, all of them as one, and what people do with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gossiplog import kit
from gossiplog.testing import Author


class Todo(msgspec.Struct):
    text: str
    done: bool = False


TODOS = kit.Map("todos", Todo)
LIKES = kit.Counter("likes")
TAGS = kit.Set("tags")
ORDER = kit.List("words", str)
FOLDER = kit.Files("folder")
PAGES = kit.Documents("pages")


def todos(author: Author) -> Any:
    key = author.random.choice("ab")
    if author.random.random() < 0.3:
        return TODOS.remove(key)
    return TODOS.put(key, Todo(author.random.choice(["milk", "bread"]), author.random.random() < 0.5))


def likes(author: Author) -> Any:
    return LIKES.add(author.random.choice("ab"), author.random.choice([1, -1, 2**31 - 1]))


def tags(author: Author) -> Any:
    return author.random.choice([TAGS.add, TAGS.remove])(author.random.choice("ab"))


def words(author: Author) -> Any:
    elements = [id for (id,) in author.query("SELECT id FROM words_list ORDER BY id")]
    if elements and author.random.random() < 0.3:
        return ORDER.remove(author.random.choice(elements))
    return ORDER.insert(author.random.choice("xyz"), after=author.random.choice([None, *elements]))


def folder(author: Author) -> Any:
    begun = [id for (id,) in author.query("SELECT id FROM folder_files ORDER BY id")]
    draw = author.random.random()
    if begun and draw < 0.6:
        file = author.random.choice(begun)
        return {"part": "folder", "op": "chunk", "file": file, "index": author.random.randrange(2), "data": author.random.randbytes(3)}
    if draw < 0.7:
        return FOLDER.remove(author.random.choice("ab"))
    return {"part": "folder", "op": "begin", "path": author.random.choice("ab"), "size": 6, "chunks": 2}


def pages(author: Author) -> Any:
    document = author.random.choice("ab")
    if author.random.random() < 0.2:
        return {"part": "pages", "op": "piece", "data": b"x"}
    standing = [id for (id,) in author.query("SELECT id FROM pages_edits ORDER BY id")]
    some = [id for id in standing if author.random.random() < 0.6]
    replaces, pieces = (some, []) if author.random.random() < 0.6 else ([], some)
    return {"part": "pages", "op": "edit", "document": document, "update": b"y", "replaces": replaces, "pieces": pieces}


def everything(author: Author) -> Any:
    return author.random.choice([todos, likes, tags, words, folder, pages])(author)


OPERATIONS: dict[str, Callable[[Author], Any]] = {
    "map": todos,
    "counter": likes,
    "set": tags,
    "list": words,
    "files": folder,
    "documents": pages,
    "all": everything,
}
map_alone = kit.compose("map", 1, TODOS)
counter_alone = kit.compose("counter", 1, LIKES)
set_alone = kit.compose("set", 1, TAGS)
list_alone = kit.compose("list", 1, ORDER)
files_alone = kit.compose("files", 1, FOLDER)
documents_alone = kit.compose("documents", 1, PAGES)
together = kit.compose("all", 1, TODOS, LIKES, TAGS, ORDER, FOLDER, PAGES)
ALONE = (map_alone, counter_alone, set_alone, list_alone, files_alone, documents_alone)
APPLICATIONS = {application.name: application for application in (*ALONE, together)}
