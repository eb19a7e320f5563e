"""Makes a failing history smaller, as long as it fails in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from .history import Delivered, History, Step, Written, map_texts

_RUNS_MAX = 1_500


def shrink(history: History, is_failing: Callable[[History], bool]) -> History:
    """Return the smallest failing history found by removing and simplifying parts, in at most 1,500 runs."""
    runs = 0
    smallest = history
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for candidate in _candidates(smallest):
            if candidate.size >= smallest.size:
                continue
            runs += 1
            if runs > _RUNS_MAX:
                return smallest
            if is_failing(candidate):
                smallest = candidate
                is_smaller = True
                break
    return smallest


def _candidates(history: History) -> Iterator[History]:
    return chain(
        _without_halves(history),
        _without_entries(history),
        _without_steps(history),
        _without_replicas(history),
        _with_plainer_steps(history),
        _with_plainer_entries(history),
    )


def _without_halves(history: History) -> Iterator[History]:
    """Leave out many entries, or half of the steps, at once."""
    count = len(history.entries)
    for size in (count // 2, count // 4):
        if size > 1:
            for start in range(0, count, size):
                yield _leave_out(history, range(start, min(start + size, count)))
    if len(history.steps) > 3:
        middle = len(history.steps) // 2
        yield replace(history, steps=history.steps[middle:])
        yield replace(history, steps=history.steps[:middle])


def _without_entries(history: History) -> Iterator[History]:
    for number in reversed(range(len(history.entries))):
        yield _leave_out(history, [number])


def _without_steps(history: History) -> Iterator[History]:
    for index in reversed(range(len(history.steps))):
        yield replace(history, steps=_spliced(history.steps, index))


def _without_replicas(history: History) -> Iterator[History]:
    """Leave out one replica and its steps; later replicas get smaller numbers."""
    if history.replicas == 1:
        return
    for gone in range(history.replicas):
        steps = [_for(step, _replica_of(step) - (_replica_of(step) > gone)) for step in history.steps if _replica_of(step) != gone]
        yield replace(history, steps=tuple(steps), replicas=history.replicas - 1)


def _with_plainer_steps(history: History) -> Iterator[History]:
    for index, step in enumerate(history.steps):
        plainer: list[Step] = []
        if step.aborted_after is not None:
            plainer.append(replace(step, aborted_after=None))
        if isinstance(step, Delivered):
            plainer += [replace(step, entries=tuple(_without_item(step.entries, at))) for at in range(len(step.entries))]
        for candidate in plainer:
            yield replace(history, steps=_spliced(history.steps, index, candidate))


def _with_plainer_entries(history: History) -> Iterator[History]:
    for number, entry in enumerate(history.entries):
        plainer = [replace(entry, parents=tuple(_without_item(entry.parents, at))) for at in range(len(entry.parents))]
        plainer += [replace(entry, author=author) for author in range(entry.author)]
        plainer += [replace(entry, payload=payload) for payload in _plainer_payloads(entry.payload)]
        for candidate in plainer:
            yield replace(history, entries=_spliced(history.entries, number, candidate))


def _leave_out(history: History, gone: Sequence[int]) -> History:
    """Leave out entries. Their parents become those of their children, and later entries get new numbers."""
    numbers: dict[int, int] = {}
    stand_ins: dict[int, list[int]] = {}
    entries: list[Written] = []
    for number, entry in enumerate(history.entries):
        parents = list(dict.fromkeys(chain.from_iterable(stand_ins[parent] for parent in entry.parents)))
        if number in gone:
            stand_ins[number] = parents
            continue
        numbers[number] = len(entries)
        stand_ins[number] = [len(entries)]
        entries.append(Written(entry.author, tuple(parents), _renumbered(entry.payload, numbers)))
    steps: list[Step] = []
    for step in history.steps:
        if isinstance(step, Delivered):
            left = tuple(numbers[number] for number in step.entries if number in numbers)
            if left:
                steps.append(replace(step, entries=left))
        else:
            steps.append(step)
    return History(tuple(entries), tuple(steps), history.replicas)


def _renumbered(payload: Any, numbers: dict[int, int]) -> Any:
    def renumber(match: re.Match[str]) -> str:
        number = numbers.get(int(match[1]))
        return "<no entry>" if number is None else f"<entry {number}>"

    return map_texts(payload, lambda text: re.sub(r"<entry (\d+)>", renumber, text))


def _plainer_payloads(payload: Any) -> Iterator[Any]:
    """Yield payloads with one part left out, or with one part simplified."""
    if isinstance(payload, dict):
        for key, value in payload.items():
            yield {other: payload[other] for other in payload if other != key}
            for plainer in _plainer_payloads(value):
                yield {**payload, key: plainer}
    elif isinstance(payload, list):
        for index, item in enumerate(payload):
            yield _without_item(payload, index)
            for plainer in _plainer_payloads(item):
                yield [*payload[:index], plainer, *payload[index + 1 :]]
    elif isinstance(payload, str) and len(payload) > 1 and not payload.startswith("<"):
        yield payload[:1]
    elif isinstance(payload, int | float) and not isinstance(payload, bool) and payload not in (0, 1):
        yield from (0, 1)


def _replica_of(step: Step) -> int:
    return step.to if isinstance(step, Delivered) else step.replica


def _for(step: Step, replica: int) -> Step:
    return replace(step, to=replica) if isinstance(step, Delivered) else replace(step, replica=replica)


def _without_item(items: Sequence[Any], index: int) -> list[Any]:
    return [*items[:index], *items[index + 1 :]]


def _spliced(items: Sequence[Any], index: int, *instead: Any) -> tuple[Any, ...]:
    return (*items[:index], *instead, *items[index + 1 :])
