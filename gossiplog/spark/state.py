"""The state that a log amounts to: the last writer of each key wins, and last means the highest id."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as F

from ..codec import dag_json, pcf
from ..codec.link import UnknownLink
from ..errors import DecodeError, LocalProtocolError
from ..log.envelope import VALUE_BYTES_LIMIT, parse_envelope
from ..log.message_id import encode_id, message_key
from .ancestry import ancestors
from .columns import has_floats, value_text
from .entries import with_columns
from .staging import materialise

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["STATE_COLUMNS", "State", "parse_path", "state"]

STATE_COLUMNS = ("key", "value", "place", "fault", "source")
"""What `state` reads; `parent_keys` too if heads are given, and `payload` with all that the expression names if it is no path."""

_PICKED = pa.schema([*[(name, pa.string()) for name in ("name", "id", "author", "payload", "place", "fault")], ("source", pa.binary())])
_PICKED_DDL = "name string, id string, author string, payload string, place string, fault string, source binary"
_NAMES_MAX = 50_000
"""A task remembers the winners of so many keys before it hands them on, 50 MB or so of small payloads."""
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[(\d{1,9})\]|\['([^']*)'\]")
_Step = str | int
_Winners: TypeAlias = dict[str, tuple[bytes, str, Any, bool]]
"""Key, author and payload of the last writer of each name, and whether floats are among it."""


@dataclass(frozen=True, slots=True)
class State:
    """A state that was computed.

    Attributes:
        table: `name`, the key's value as text (dag-json, a string without its quotes); the winner's `id`, `author` and `payload`
        (dag-json). refused: `place`, `fault` and `source` of rows that hold no entry.
        missing: Ids that were wanted as of the heads and are not there; the first 100.
    """

    table: DataFrame
    refused: DataFrame
    missing: list[str]


def state(entries: DataFrame, key: str, *, heads: Sequence[str] | None = None, staging: str | None = None) -> State:
    """Compute the state now.

    Args:
        entries: Rows with `STATE_COLUMNS`, verified if they are a stranger's: nothing is verified here.
        key: What makes a key of an entry: a path into the payload, `$.key`, `$.path[0]['odd name']`; or any SQL expression over the
            columns of `entries`, such as `get_json_object(payload, '$.a') || '/' || author`. Entries that have none change nothing.
        heads: Only these entries and their ancestors count.
        staging: See `verify`.

    Raises:
        LocalProtocolError: The path makes no sense.
    """
    missing: list[str] = []
    if heads is not None:
        found = materialise(ancestors(entries, heads), staging, "ancestors")
        missing = [encode_id(bytes(row["key"])) for row in found.where("is_missing").orderBy("key").limit(100).collect()]
        entries = entries.join(found.where("not is_missing").select("key"), "key", "left_semi")
    if key.startswith("$"):
        picked = with_columns(entries, STATE_COLUMNS).mapInArrow(partial(_pick, parse_path(key)), _PICKED_DDL)
    else:
        named = entries.withColumn("name", F.expr(key).cast("string"))
        there = named.select("name", *[F.col(name) for name in ("id", "author", "payload", "place", "fault", "source")])
        picked = there.where("name is not null or fault is not null")
    picked = materialise(picked, staging, "picked")
    winner = F.max(F.struct("id", "author", "payload")).alias("winner")
    table = picked.where("fault is null").groupBy("name").agg(winner).select("name", "winner.*")
    return State(table, picked.where("fault is not null").select("place", "fault", "source"), missing)


def parse_path(path: str) -> tuple[_Step, ...]:
    """Read a path: `$`, then `.name`, `['any name']` or `[index]`, any number of them.

    Raises:
        LocalProtocolError: It is none.
    """
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


def _pick(path: tuple[_Step, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Keep the winner of each key of a task, and hand it on."""
    winners: _Winners = {}
    for batch in batches:
        refused: list[tuple[Any, ...]] = []
        for key, value, place, fault, source in zip(*[batch.column(name).to_pylist() for name in STATE_COLUMNS], strict=True):
            if value is None:
                refused.append((None, None, None, None, place, fault or "there is no VALUE", source))
                continue
            try:
                envelope = parse_envelope(value, VALUE_BYTES_LIMIT, trusted=True)
                payload = pcf.decode(value, envelope.payload_at, link=UnknownLink)
            except DecodeError as error:
                refused.append((None, None, None, None, place, f"malformed: {error}", value))
                continue
            name = _name(payload, path)
            if name is None:
                continue
            own = key if key is not None else message_key(envelope.clock, value)
            last = winners.get(name)
            if last is None or own > last[0]:
                winners[name] = own, envelope.did, payload, has_floats(value, envelope.payload_at)
        yield from _to_batches(refused)
        if len(winners) >= _NAMES_MAX:
            yield from _to_batches(_rows(winners))
            winners.clear()
    yield from _to_batches(_rows(winners))


def _name(payload: Any, path: tuple[_Step, ...]) -> str | None:
    """Return what a path leads to as text; None where it leads nowhere, or to null."""
    for step in path:
        if type(step) is str and type(payload) is dict:
            payload = payload.get(step)
        elif type(step) is int and type(payload) is list and step < len(payload):
            payload = payload[step]
        else:
            return None
    return payload if type(payload) is str else None if payload is None else dag_json.encode(payload).decode()


def _rows(winners: _Winners) -> Iterator[tuple[Any, ...]]:
    for name, (key, author, payload, may_have_floats) in winners.items():
        yield name, encode_id(key), author, value_text(payload, may_have_floats=may_have_floats), None, None, None


def _to_batches(rows: Iterator[tuple[Any, ...]] | list[tuple[Any, ...]]) -> Iterator[pa.RecordBatch]:
    made = list(rows)
    for low in range(0, len(made), 4_096):
        columns = zip(*made[low : low + 4_096], strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(c, field.type) for c, field in zip(columns, _PICKED, strict=True)], schema=_PICKED)
