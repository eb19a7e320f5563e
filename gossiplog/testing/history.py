"""A history: entries with their authors and parents, and the order and the commits in which they reached each replica.

Payloads may name other entries by id. An id is a hash, so it changes when an ancestor does. Therefore a history writes `<entry 3>` for the
id of its entry 3, and keeps its meaning when parts of it are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

ID = re.compile(r"[0-9a-v]{32}")
_NAME = re.compile(r"<entry (\d+)>")


@dataclass(frozen=True, slots=True)
class Written:
    """One entry.

    Attributes:
        author: The number of its author, from 0. Replica n writes as author n; the highest number is a stranger.
        parents: The numbers of earlier entries of the history.
        payload: Has `<entry N>` in place of each id. In a log with members `{"gossiplog.access": {"revoke": 2}}` removes author 2, and
            `{"grant": 2}` lets it in again; author 0 founded the log, and all others are members at first.
    """

    author: int
    parents: Sequence[int]
    payload: Any


@dataclass(frozen=True, slots=True)
class Delivered:
    """A replica gets entries, in this order, in one commit; known entries are skipped, and missing ancestors come first.

    Attributes:
        aborted_after: The first attempt at the commit ends after this many statements, as when a connection breaks; then it is repeated.
    """

    to: int
    entries: Sequence[int]
    aborted_after: int | None = None


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A replica drops its tables and applies all its entries again in the order of ids, as after a new version of the application."""

    replica: int
    batch: int = 1_000
    aborted_after: int | None = None


Step: TypeAlias = Delivered | Rebuild


@dataclass(frozen=True, slots=True)
class History:
    """Entries and steps. After the last step each replica gets the entries that it lacks, in one commit.

    Attributes:
        steps: The steps of all replicas, in one order.
        replicas: The number of replicas.
    """

    entries: Sequence[Written]
    steps: Sequence[Step]
    replicas: int

    @property
    def size(self) -> tuple[int, int, int, int]:
        """Return the measures that shrinking reduces, the most important one first."""
        delivered = sum(len(step.entries) for step in self.steps if isinstance(step, Delivered))
        links = sum(len(entry.parents) + entry.author for entry in self.entries)
        aborted = sum(step.aborted_after is not None for step in self.steps)
        return len(self.entries), len(self.steps) + self.replicas, delivered + links + aborted, len(repr(self.entries))


def map_texts(payload: Any, change: Callable[[str], str]) -> Any:
    """Return a payload with each of its strings, keys included, changed. Canonical form bounds the depth of a payload."""
    if isinstance(payload, str):
        return change(payload)
    if isinstance(payload, list):
        return [map_texts(item, change) for item in payload]
    if isinstance(payload, dict):
        return {change(key): map_texts(value, change) for key, value in payload.items()}
    return payload


def name_ids(payload: Any, numbers: dict[str, int]) -> Any:
    """Replace the ids of known entries by `<entry N>`."""

    def name(match: re.Match[str]) -> str:
        number = numbers.get(match[0])
        return match[0] if number is None else f"<entry {number}>"

    return map_texts(payload, lambda text: ID.sub(name, text))


def resolve_ids(payload: Any, ids: Sequence[str]) -> Any:
    """Replace `<entry N>` by the id of entry N; the name of an entry that does not exist stays."""

    def resolve(match: re.Match[str]) -> str:
        number = int(match[1])
        return ids[number] if number < len(ids) else match[0]

    return map_texts(payload, lambda text: _NAME.sub(resolve, text))


def render(history: History, indent: str = "    ") -> str:
    """Return the Python source of a history."""
    lines = [f"{indent}    {_render_written(entry)}," for entry in history.entries]
    steps = [f"{indent}    {_render_step(step)}," for step in history.steps]
    return "\n".join(
        ["History(", f"{indent}entries=[", *lines, f"{indent}],"]
        + ([f"{indent}steps=[", *steps, f"{indent}],"] if steps else [f"{indent}steps=[],"])
        + [f"{indent}replicas={history.replicas},", f"{indent[4:]})"]
    )


def _render_written(entry: Written) -> str:
    return f"Written({entry.author}, {list(entry.parents)}, {entry.payload!r})"


def _render_step(step: Step) -> str:
    aborted = "" if step.aborted_after is None else f", aborted_after={step.aborted_after}"
    if isinstance(step, Delivered):
        return f"Delivered({step.to}, {list(step.entries)}{aborted})"
    return f"Rebuild({step.replica}, {step.batch}{aborted})"
