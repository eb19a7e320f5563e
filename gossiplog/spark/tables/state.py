"""The state of a log by a key: for each value of the key the last writer wins, which is the entry with the highest id."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Observation
from pyspark.sql import functions as F

from ...arrow.columns import BATCH_ROWS, ids_of
from ...arrow.payload import flat_items, joined, value_text
from ...codec import dag_json, pcf
from ...codec.cid import UnknownLink
from ...entry.envelope import parse_envelope, skim
from ...entry.message_id import decode_id, encode_id, message_key
from ...entry.rules import VALUE_BYTES_LIMIT
from ...errors import DecodeError, EncodeError, LocalProtocolError
from .staging import materialise, observed
from .task_function import TaskWork, row_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATE_COLUMNS = ("key", "value", "place", "fault", "source")
"""What `state` reads; with heads also `parent_keys`, and for an expression also `id`, `author`, `payload` and the columns it names."""

_PICKED = pa.schema([*[(name, pa.string()) for name in ("name", "id", "author", "payload", "place", "fault")], ("source", pa.binary())])
_ANCESTRY = pa.schema([("key", pa.binary()), ("is_missing", pa.bool_())])
_NAMES_MAX = 50_000
"""A task holds the winners of this many keys before it sends them on, about 50 MB of small payloads."""
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[(\d{1,9})\]|\['([^']*)'\]")
_Step = str | int
_FAULTS = "faults"


@dataclass(frozen=True, slots=True)
class State:
    """A state, computed when one of its tables is read. Each reading reads all entries again, also those that are new in the log.

    Attributes:
        table: `name`, the key's value as text (dag-json, a string without its quotes); the winner's `id`, `author` and `payload`
            (dag-json).
        refused: `place`, `fault` and `source` of rows without an entry; after `table` was read, `faults` says whether there are any.
        missing: Ids of the heads' ancestors that are not there; the first 100.
        observation: The counts that `faults` reads.
    """

    table: DataFrame
    refused: DataFrame
    missing: list[str]
    observation: Observation

    def faults(self) -> int | None:
        """Return how many rows were refused in the first reading of `table`, without reading the entries again.

        Waits for that reading, so read `table` before. None if Spark has no count, which happens if no row was left; only 0 means that
        `refused` is empty.
        """
        found = observed(self.observation)
        return None if found is None else int(found[_FAULTS])


def state(entries: DataFrame, key: str, *, heads: Sequence[str] | None = None, staging: str | None = None) -> State:
    """Compute the state now.

    Args:
        entries: Rows with `STATE_COLUMNS`. Nothing is verified here: verify entries from strangers before.
        key: A path into the payload, `$.key`, `$.path[0]['odd name']`; or any SQL expression over the columns of `entries`, such as
            `get_json_object(payload, '$.a') || '/' || author`. Entries where it is null change nothing.
        heads: Only these entries and their ancestors count. Rows without an entry are refused in any case.
        staging: See `verify`; for the ancestors.

    Raises:
        LocalProtocolError: The path is malformed.
    """
    missing: list[str] = []
    if heads is not None:
        found = materialise(ancestors(entries, heads), staging, "ancestors")
        missing = [encode_id(bytes(row["key"])) for row in found.where("is_missing").orderBy("key").limit(100).collect()]
        known = found.where("not is_missing").select("key", F.lit(True).alias("is_known"))
        # A row with a fault may have no key, so it cannot be told whose ancestor it was.
        entries = entries.join(known, "key", "left").where("is_known or fault is not null").drop("is_known")
    if key.startswith("$"):
        # Refuse a malformed path here, not in a task.
        parse_path(key)
        return last_writers(PICK.on(entries, key), missing=missing)
    named = entries.withColumn("name", F.expr(key).cast("string"))
    source = F.coalesce("source", "value") if "value" in entries.columns else F.col("source")
    there = named.select("name", "id", "author", "payload", "place", "fault", source.alias("source"))
    return _state_of(there.where("name is not null or fault is not null"), missing, is_reduced=False)


def last_writers(picked: DataFrame, *, missing: Sequence[str] = ()) -> State:
    """Finish `state` from the rows that `PICK` returned; it may have run in the processes that read the entries."""
    return _state_of(picked, missing, is_reduced=True)


def ancestors(entries: DataFrame, heads: Sequence[str]) -> DataFrame:
    """Find some entries and their ancestors.

    One task walks over all keys and parents from the highest key down, about 60 bytes and 3 µs per entry. As parents have lower keys than
    their children, it remembers only the wanted keys still to come, as many as the history is wide.

    Args:
        entries: Rows with `key` and `parent_keys`.
        heads: Ids.

    Returns:
        `key`, and `is_missing` if there is no such entry: an unknown head, or the missing parent of an orphan.

    Raises:
        DecodeError: A head is not an id.
    """
    wanted = frozenset(decode_id(head) for head in heads)
    graph = entries.select("key", "parent_keys").where("key is not null")
    ordered = graph.repartition(1).sortWithinPartitions(graph["key"].desc())
    return ordered.mapInArrow(partial(_walk_down, wanted), "key binary, is_missing boolean")


def _walk_down(heads: frozenset[bytes], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    wanted = set(heads)
    for batch in batches:
        found: list[bytes] = []
        for key, parents in zip(batch.column("key").to_pylist(), batch.column("parent_keys").to_pylist(), strict=True):
            if key in wanted:
                wanted.discard(key)
                wanted.update(parents or ())
                found.append(key)
        yield _ancestry_batch(found, False)
    yield _ancestry_batch(sorted(wanted), True)


def _ancestry_batch(keys: list[bytes], is_missing: bool) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), pa.array([is_missing] * len(keys), pa.bool_())], schema=_ANCESTRY)


def parse_path(path: str) -> tuple[_Step, ...]:
    """Parse a path: `$`, then any number of `.name`, `['any name']` or `[index]`; raise LocalProtocolError if it is malformed."""
    steps: list[_Step] = []
    at = 1
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None or not path.startswith("$"):
            raise LocalProtocolError(f"{path!r} is no path at character {at}", hint="write it like $.name[0]['another name']")
        name, index, quoted = match.groups()
        steps.append(int(index) if index is not None else name if name is not None else quoted)
        at = match.end()
    return tuple(steps)


def _state_of(picked: DataFrame, missing: Sequence[str], *, is_reduced: bool) -> State:
    """Make the tables; `is_reduced` says that a task has each name only once, or a few times."""
    observation = Observation()
    counted = picked.observe(observation, F.count("fault").alias(_FAULTS))
    rows = counted.where("fault is null").select("name", "id", "author", "payload")
    if is_reduced:
        # Spark aggregates texts by sorting. It would sort on both sides of the shuffle, although a task's part cannot become smaller.
        rows = rows.repartition("name")
    table = rows.groupBy("name").agg(F.max(F.struct("id", "author", "payload")).alias("winner")).select("name", "winner.*")
    return State(table, picked.where("fault is not null").select("place", "fault", "source"), list(missing), observation)


class _Winners(NamedTuple):
    """The last writer of each name, by column, as the garbage collector would traverse so many tuples again and again.

    Attributes:
        numbers: The index in the lists, by name.
        keys: 20 bytes each.
        payloads: dag-json.
    """

    numbers: dict[str, int]
    keys: list[bytes]
    authors: list[str]
    payloads: list[str]


def _pick(key: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    path = parse_path(key)
    numbers, keys, authors, payloads = winners = _Winners({}, [], [], [])
    for batch in batches:
        refused: list[tuple[Any, ...]] = []
        has_faults = batch.column("fault").null_count < len(batch)
        for at, (own, value) in enumerate(zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)):
            if value is None or (has_faults and batch.column("fault")[at].is_valid):
                place, fault, source = [batch.column(name)[at].as_py() for name in ("place", "fault", "source")]
                refused.append((None, None, None, None, place, fault or "there is no VALUE", value if source is None else source))
                continue
            try:
                if own is None:
                    own = message_key(parse_envelope(value, VALUE_BYTES_LIMIT, trusted=True).clock, value)
                author, payload_at = skim(value)
                name, payload = _name_and_payload(value, payload_at, path)
            except (DecodeError, EncodeError) as error:
                refused.append((None, None, None, None, batch.column("place")[at].as_py(), f"malformed: {error}", value))
                continue
            if name is None:
                continue
            number = numbers.get(name)
            if number is None:
                numbers[name] = len(keys)
                keys.append(own)
                authors.append(author)
                payloads.append(payload)
            elif own > keys[number]:
                keys[number], authors[number], payloads[number] = own, author, payload
        yield from row_batches(refused, _PICKED)
        if len(keys) >= _NAMES_MAX:
            yield from _handed_on(winners)
            for column in winners:
                column.clear()
    yield from _handed_on(winners)


def _name_and_payload(value: bytes, payload_at: int, path: tuple[_Step, ...]) -> tuple[str | None, str]:
    """Return the value at a path as text, None if there is none or null; and the payload as dag-json."""
    items = flat_items(value, payload_at)
    if items is not None and len(path) == 1:
        text = items.get(path[0], "null") if type(path[0]) is str else "null"
        if text[0] == '"':
            text = json.loads(text) if "\\" in text else text[1:-1]
            return text, joined(items)
        return None if text == "null" else text, joined(items)
    payload = pcf.decode(value, payload_at, link=UnknownLink)
    found = payload
    for step in path:
        if type(step) is str and type(found) is dict:
            found = found.get(step)
        elif type(step) is int and type(found) is list and step < len(found):
            found = found[step]
        else:
            found = None
    name = found if type(found) is str else None if found is None else dag_json.encode(found).decode()
    return name, value_text(payload, value, payload_at) if items is None else joined(items)


def _handed_on(winners: _Winners) -> Iterator[pa.RecordBatch]:
    names = list(winners.numbers)
    for low in range(0, len(names), BATCH_ROWS):
        some = slice(low, low + BATCH_ROWS)
        full = [pa.array(names[some]), ids_of(winners.keys[some]), pa.array(winners.authors[some]), pa.array(winners.payloads[some])]
        empty = [pa.nulls(len(full[0]), field.type) for field in _PICKED][4:]
        yield pa.RecordBatch.from_arrays(full + empty, schema=_PICKED)


PICK = TaskWork("pick", STATE_COLUMNS, _PICKED, _pick)
"""Picks the winners of each task, given a path; `last_writers` finishes the state."""
