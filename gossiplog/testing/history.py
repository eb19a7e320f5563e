"""A history: entries with their authors and parents, and the order and the pieces in which they reached each replica.

Payloads may name other entries. Ids are hashes, so they change with everything before them. Therefore a history writes `<entry 3>` for the
id of its entry 3, and stays meaningful when parts of it are left out.
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
        author: Which of the authors signed it, from 0; replica n writes as author n, and the highest is a stranger.
        parents: The numbers of earlier entries of the history.
        payload: With `<entry N>` wherever an id stood. In a log with members `{"gossiplog.access": {"revoke": 2}}` removes author 2, and
            `{"grant": 2}` lets it in again; author 0 founded the log, and all others are in at first.
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
    """A replica drops its tables and applies all its entries anew, in the order of ids, as after a new version of the application."""

    replica: int
    batch: int = 1_000
    aborted_after: int | None = None


Step: TypeAlias = Delivered | Rebuild


@dataclass(frozen=True, slots=True)
class History:
    """What happened, from nothing. After the last step each replica gets what it lacks, in one commit.

    Attributes:
        steps: In the order in which they happened, over all replicas.
    """

    entries: Sequence[Written]
    steps: Sequence[Step]
    replicas: int

    @property
    def size(self) -> tuple[int, int, int, int]:
        """What shrinking makes smaller, the most important first."""
        delivered = sum(len(step.entries) for step in self.steps if isinstance(step, Delivered))
        links = sum(len(entry.parents) + entry.author for entry in self.entries)
        aborted = sum(step.aborted_after is not None for step in self.steps)
        return len(self.entries), len(self.steps) + self.replicas, delivered + links + aborted, len(repr(self.entries))


def map_texts(payload: Any, change: Callable[[str], str]) -> Any:
    """Return a payload with each of its texts, keys included, changed. The depth of a payload is limited by its form."""
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
    """Put the ids back; the name of an entry that is not there stays as it is."""

    def resolve(match: re.Match[str]) -> str:
        number = int(match[1])
        return ids[number] if number < len(ids) else match[0]

    return map_texts(payload, lambda text: _NAME.sub(resolve, text))


def render(history: History, indent: str = "    ") -> str:
    """Return Python that makes the history."""
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
