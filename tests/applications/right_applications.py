"""Ten applications that are right, each with something that a checker might take for a fault. It must pass all of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from planted_applications import ADDS, ITEMS, LAST, SETS, TOTAL, operation, tables

from gossiplog import Application, Reject
from gossiplog.testing import Author


@dataclass(frozen=True)
class Right:
    application: Application
    operations: Any
    shown: Sequence[str] = ()


RIGHT: dict[str, Right] = {}


def right(operations: Any, *statements: str, shown: Sequence[str] = ()) -> Callable[[Any], Any]:
    def register(apply: Any) -> Any:
        application = Application(apply.__name__, 1, apply, tables(*(statements or (ITEMS,))))
        globals()[f"application_{apply.__name__}"] = application
        RIGHT[apply.__name__] = Right(application, operations, shown)
        return apply

    return register


@right(SETS)
def last_writer_by_id(entries, tx) -> None:
    for entry in entries:
        if found := operation(entry, "set"):
            tx.execute(LAST, [found["key"], found["value"], entry.id])


@right(SETS)
async def last_writer_that_awaits(entries, tx) -> None:
    for entry in entries:
        if found := operation(entry, "set"):
            await tx.execute(LAST, [found["key"], found["value"], entry.id])
            assert (await tx.get(entry.id)).key == entry.key


@right(ADDS)
def whole_numbers_summed(entries, tx) -> None:
    for entry in entries:
        found = operation(entry, "add")
        if found and isinstance(found["value"], int) and abs(found["value"]) < 2**31:
            tx.execute(TOTAL, [found["key"], found["value"]])


@right(SETS)
def refuses_and_logs_with_the_clock(entries, tx) -> None:
    """A log record has the time; no table has."""
    started = time.perf_counter()
    for entry in entries:
        found = operation(entry, "set")
        if not found:
            logging.getLogger("right").info("refused %s", entry.id)
            raise Reject("no operation", id=entry.id)
        tx.execute(LAST, [found["key"], found["value"], entry.id])
    logging.getLogger("right").info("%d entries in %.1f s", len(entries), time.perf_counter() - started)


@right(SETS, "CREATE TABLE items (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT)", shown=["SELECT id FROM items"])
def numbers_that_are_not_shown(entries, tx) -> None:
    for entry in entries:
        if operation(entry, "set"):
            tx.execute("INSERT INTO items (id) VALUES (?)", [entry.id])


@right(SETS)
def lots_drawn_from_the_id(entries, tx) -> None:
    """Chance that everybody draws alike is none."""
    for entry in entries:
        if found := operation(entry, "set"):
            tx.execute(LAST, [f"{found['key']}{Random(entry.id).randrange(3)}", found["value"], entry.id])


@right([{"op": "set", "key": f"{one} {two}", "value": 1} for one in ("red", "green") for two in ("cat", "dog")])
def set_in_order(entries, tx) -> None:
    for entry in entries:
        if found := operation(entry, "set"):
            words = sorted(set(found["key"].split()))
            tx.execute(LAST, [found["key"], " ".join(words), entry.id])


def votes(author: Author) -> Any:
    if author.ids and author.random.random() < 0.4:
        return {"op": "withdraw", "of": author.random.choice(author.ids)}
    return {"op": "vote", "for": author.random.choice("xy")}


@right(votes, "CREATE TABLE votes (id TEXT PRIMARY KEY, candidate TEXT)")
def withdrawals_of_what_was_seen(entries, tx) -> None:
    """A withdrawal counts only for a vote that is its ancestor, of the same author."""
    for entry in entries:
        match entry.payload:
            case {"op": "vote", "for": str(candidate)} if "\0" not in candidate:
                tx.execute("INSERT INTO votes VALUES (?, ?)", [entry.id, candidate])
            case {"op": "withdraw", "of": str(id)}:
                is_there = bool(tx.execute("SELECT 1 FROM votes WHERE id = ?", [id]))
                if is_there and tx.is_ancestor(id, entry.id) and tx.get(id).author == entry.author:
                    tx.execute("DELETE FROM votes WHERE id = ?", [id])


@right(SETS, "CREATE TABLE items (id TEXT PRIMARY KEY)", "CREATE TABLE least (one TEXT PRIMARY KEY, id TEXT)")
def limit_with_order(entries, tx) -> None:
    tx.execute_many("INSERT INTO items VALUES (?)", [[entry.id] for entry in entries if operation(entry, "set")])
    for (least,) in tx.fetch("SELECT id FROM items ORDER BY id LIMIT 1"):
        tx.execute("INSERT OR REPLACE INTO least VALUES ('one', ?)", [least])


KNOWN: dict[str, str] = {}


@right(SETS)
def cache_that_only_remembers(entries, tx) -> None:
    """State in Python that follows from its key alone."""
    for entry in entries:
        if found := operation(entry, "set"):
            label = KNOWN.setdefault(entry.id, f"{found['key']} by {entry.author[-4:]}")
            tx.execute(LAST, [label, found["value"], entry.id])
