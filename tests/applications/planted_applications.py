"""Twenty-seven applications, each with one fault of the kind that people make. The checker must find them."""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gossiplog import Application, Entry, Reject

SETS = [{"op": "set", "key": key, "value": value} for key in "ab" for value in (1, 2, 3)]
ADDS = [{"op": "add", "key": key, "value": value} for key in "ab" for value in (1, 2)]
FRACTIONS = [{"op": "add", "key": "a", "value": value} for value in (0.1, 0.2, 0.3, 1e16, 0.7)]
ID = re.compile(r"[0-9a-v]{32}")
ITEMS = "CREATE TABLE items (key TEXT PRIMARY KEY, value, id TEXT)"
LAST = "INSERT INTO items VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value, id = excluded.id WHERE id < excluded.id"
TOTALS = "CREATE TABLE items (key TEXT PRIMARY KEY, value, id TEXT)"
TOTAL = "INSERT INTO items VALUES (?, ?, '') ON CONFLICT (key) DO UPDATE SET value = items.value + excluded.value"


def operation(entry: Entry, op: str) -> dict[str, Any] | None:
    """The payload if it is this operation and well formed."""
    payload = entry.payload
    if not isinstance(payload, dict) or payload.get("op") != op or not isinstance(payload.get("key"), str):
        return None
    value = payload.get("value")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return payload if is_number else None


def tables(*statements: str) -> Callable[[Any], None]:
    def reset(tx: Any) -> None:
        for statement in statements:
            tx.execute(f"DROP TABLE IF EXISTS {statement.split()[2]}")
            tx.execute(statement)

    return reset


@dataclass(frozen=True)
class Fault:
    application: Application
    operations: Any
    invariants: Sequence[Any] = ()


FAULTS: dict[str, Fault] = {}


def planted(operations: Any, *statements: str, reset: Any = None, invariants: Sequence[Any] = ()) -> Callable[[Any], Any]:
    def register(apply: Any) -> Any:
        application = Application(apply.__name__, 1, apply, reset or tables(*(statements or (ITEMS,))))
        # Under a name of its module, as users have it.
        globals()[f"application_{apply.__name__}"] = application
        FAULTS[apply.__name__] = Fault(application, operations, invariants)
        return apply

    return register


@planted(SETS, "CREATE TABLE items (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT)")
def shows_autoincrement(entries, tx) -> None:
    for entry in entries:
        if operation(entry, "set"):
            tx.execute("INSERT INTO items (id) VALUES (?)", [entry.id])


@planted(SETS)
def last_writer_by_arrival(entries, tx) -> None:
    for entry in entries:
        if found := operation(entry, "set"):
            tx.execute("INSERT OR REPLACE INTO items VALUES (?, ?, ?)", [found["key"], found["value"], entry.id])


@planted(SETS)
def first_writer_by_arrival(entries, tx) -> None:
    for entry in entries:
        if found := operation(entry, "set"):
            tx.execute("INSERT OR IGNORE INTO items VALUES (?, ?, ?)", [found["key"], found["value"], entry.id])


@planted(SETS, "CREATE TABLE items (id TEXT PRIMARY KEY, at)")
def wall_clock(entries, tx) -> None:
    for entry in entries:
        if operation(entry, "set"):
            tx.execute("INSERT INTO items VALUES (?, ?)", [entry.id, int(time.time()) // 86_400])


@planted(SETS, "CREATE TABLE items (id TEXT PRIMARY KEY, day)")
async def calendar_day(entries, tx) -> None:
    for entry in entries:
        if operation(entry, "set"):
            await tx.execute("INSERT INTO items VALUES (?, ?)", [entry.id, f"{datetime.now():%Y-%m-%d}"])


@planted(SETS, "CREATE TABLE items (id TEXT PRIMARY KEY, at DEFAULT CURRENT_DATE)")
def clock_of_the_database(entries, tx) -> None:
    for entry in entries:
        if operation(entry, "set"):
            tx.execute("INSERT INTO items (id) VALUES (?)", [entry.id])


@planted(FRACTIONS, TOTALS)
def sum_of_fractions(entries, tx) -> None:
    for entry in entries:
        if found := operation(entry, "add"):
            tx.execute(TOTAL, [found["key"], found["value"]])


@planted(ADDS, "CREATE TABLE items (clock INTEGER, key TEXT, value, PRIMARY KEY (clock, key))")
def counter_without_author(entries, tx) -> None:
    for entry in entries:
        if found := operation(entry, "add"):
            tx.execute("INSERT OR IGNORE INTO items VALUES (?, ?, ?)", [entry.clock, found["key"], found["value"]])


@planted(lambda author: {"op": "set", "key": "a", "value": 1, "over": author.random.choice([*author.ids, "none"])})
def ids_outside_the_ancestors(entries, tx) -> None:
    """It believes a payload that names an entry, whether that entry is here yet or not."""
    for entry in entries:
        if (found := operation(entry, "set")) and isinstance(found.get("over"), str):
            seen = tx.execute("SELECT 1 FROM items WHERE id = ?", [found["over"]])
            tx.execute("INSERT OR IGNORE INTO items VALUES (?, ?, ?)", [entry.id, len(seen), entry.id])


@planted(SETS)
def choice_by_chance(entries, tx) -> None:
    for entry in entries:
        if (found := operation(entry, "set")) and random.random() < 2:
            tx.execute(LAST, [found["key"], found["value"], entry.id])


@planted(SETS)
async def name_by_chance(entries, tx) -> None:
    for entry in entries:
        if operation(entry, "set"):
            await tx.execute("INSERT INTO items VALUES (?, 1, ?)", [str(uuid.uuid4()), entry.id])


@planted([{"op": "set", "key": key, "value": 1} for key in ("alice", "bob", "carol")])
def bucket_by_hash(entries, tx) -> None:
    for entry in entries:
        if found := operation(entry, "set"):
            tx.execute("INSERT OR REPLACE INTO items VALUES (?, ?, '')", [found["key"], hash(found["key"]) % 7])


@planted([{"op": "set", "key": f"{one} {two}", "value": 1} for one in ("red", "green", "blue") for two in ("cat", "dog", "hen")])
def first_of_a_set(entries, tx) -> None:
    for entry in entries:
        if found := operation(entry, "set"):
            words = list(set(found["key"].split()))
            tx.execute("INSERT OR REPLACE INTO items VALUES (?, ?, '')", [found["key"], words[0]])


SEEN: dict[str, int] = {}


@planted(ADDS)
def global_state(entries, tx) -> None:
    """It keeps totals in Python; a replay counts on from there."""
    for entry in entries:
        if found := operation(entry, "add"):
            SEEN[found["key"]] = SEEN.get(found["key"], 0) + 1
            tx.execute("INSERT OR REPLACE INTO items VALUES (?, ?, '')", [found["key"], SEEN[found["key"]]])


DONE: set[str] = set()


@planted(SETS, "CREATE TABLE items (id TEXT PRIMARY KEY)")
def retry_that_is_no_retry(entries, tx) -> None:
    """It remembers in Python what it has done, and forgets that a commit may be rolled back."""
    for entry in entries:
        if operation(entry, "set") and entry.id not in DONE:
            DONE.add(entry.id)
            tx.execute("INSERT INTO items VALUES (?)", [entry.id])


def no_reset(tx) -> None:
    tx.execute("CREATE TABLE IF NOT EXISTS items (key TEXT PRIMARY KEY, value, id TEXT)")


@planted(ADDS, reset=no_reset)
def missing_reset(entries, tx) -> None:
    for entry in entries:
        if found := operation(entry, "add"):
            tx.execute(TOTAL, [found["key"], found["value"]])


@planted(SETS)
def unguarded_payload(entries, tx) -> None:
    for entry in entries:
        if entry.payload["op"] == "set":
            tx.execute(LAST, [entry.payload["key"], entry.payload["value"], entry.id])


@planted(SETS)
def unguarded_value(entries, tx) -> None:
    """It guards the shape and hands the database whatever the value is."""
    for entry in entries:
        payload = entry.payload
        if isinstance(payload, dict) and payload.get("op") == "set" and isinstance(payload.get("key"), str):
            tx.execute(LAST, [payload["key"], payload.get("value"), entry.id])


@planted(SETS, "CREATE TABLE items (key TEXT, id TEXT)", "CREATE TABLE chosen (one TEXT PRIMARY KEY, id TEXT)")
def limit_without_order(entries, tx) -> None:
    for entry in entries:
        if found := operation(entry, "set"):
            tx.execute("INSERT INTO items VALUES (?, ?)", [found["key"], entry.id])
            ((first,),) = tx.execute("SELECT id FROM items LIMIT 1")
            tx.execute("INSERT OR REPLACE INTO chosen VALUES ('one', ?)", [first])


@planted(SETS)
def only_the_last_of_a_batch(entries, tx) -> None:
    found = operation(entries[-1], "set")
    if found:
        tx.execute(LAST, [found["key"], found["value"], entries[-1].id])


@planted(SETS)
def dict_by_arrival(entries, tx) -> None:
    """A dict has what came first as its first key."""
    found = {entry.payload["key"]: entry for entry in entries if operation(entry, "set")}
    if found and not tx.execute("SELECT 1 FROM items"):
        key, entry = next(iter(found.items()))
        tx.execute("INSERT INTO items VALUES (?, 1, ?)", [key, entry.id])


REFUSED: list[str] = []


@planted(SETS, "CREATE TABLE items (id TEXT PRIMARY KEY, refused INTEGER)")
def side_effect_before_refusal(entries, tx) -> None:
    """What it notes in Python before it refuses stays when the tables are rolled back, as often as the batch is tried."""
    for entry in entries:
        if not operation(entry, "set"):
            REFUSED.append(entry.id)
            raise Reject("no operation", id=entry.id)
        tx.execute("INSERT INTO items VALUES (?, ?)", [entry.id, len(REFUSED)])


def never_negative(query) -> None:
    assert all(value >= 0 for (value,) in query("SELECT value FROM items"))


@planted([{"op": "add", "key": "a", "value": value} for value in (1, 2, -2)], TOTALS, invariants=[never_negative])
def balance_that_two_may_spend(entries, tx) -> None:
    """It converges, and yet does not keep what it promises: nobody can know what others spend meanwhile."""
    for entry in entries:
        if found := operation(entry, "add"):
            tx.execute(TOTAL, [found["key"], found["value"]])


@planted(SETS, "CREATE TABLE items (id TEXT PRIMARY KEY, value)")
def position_in_the_log(entries, tx) -> None:
    for entry in entries:
        ((count,),) = tx.execute("SELECT count(*) FROM items")
        tx.execute("INSERT INTO items VALUES (?, ?)", [entry.id, count + 1])


def answers(author: Any) -> Any:
    """Everybody answers the first entry, which all have early: nobody but a stranger names what is not here yet, or nowhere."""
    return {"op": "answer", "key": author.ids[0], "value": 1} if author.ids else {"op": "set", "key": "a", "value": 1}


@planted(answers)
def entry_that_must_be_somewhere(entries, tx) -> None:
    """It asks for an entry that a payload names, and takes it for granted that there is one."""
    for entry in entries:
        if (found := operation(entry, "answer")) and ID.fullmatch(found["key"]):
            tx.execute("INSERT INTO items VALUES (?, ?, '')", [entry.id, tx.get(found["key"]).clock])


@planted(answers)
def any_entry_will_do(entries, tx) -> None:
    """It asks whether an entry is here, not whether it is an ancestor."""
    for entry in entries:
        if (found := operation(entry, "answer")) and ID.fullmatch(found["key"]):
            if tx.get(found["key"]) is None:
                raise Reject("answers nothing", id=entry.id)
            tx.execute("INSERT INTO items VALUES (?, 1, '')", [entry.id])


@planted(answers)
def ancestors_of_what_is_not_here_yet(entries, tx) -> None:
    """It asks about two entries, of which neither need be an ancestor of the one that it applies."""
    for entry in entries:
        if (found := operation(entry, "answer")) and ID.fullmatch(found["key"]):
            first = tx.execute("SELECT id FROM items ORDER BY id LIMIT 1")
            is_later = bool(first) and tx.is_ancestor(first[0][0], found["key"])
            tx.execute("INSERT INTO items VALUES (?, ?, ?)", [entry.id, is_later, entry.id])
