"""Checks on random histories that replicas with the same entries have the same tables, and shows the smallest one in which they differ."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Sequence
from random import Random
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..errors import GossipLogError, Reject
from .generate import Operations, generate
from .history import History, render
from .other_process import Elsewhere, elsewhere, find_name
from .shrink import shrink
from .world import Found, HistoryWorld, Invariant, WorldRules

if TYPE_CHECKING:
    from ..log.application import Application

_ELSEWHERE_MAX = 50
"""The most histories that are replayed in other processes, too."""
_KIND_ELSEWHERE = "another process"


class NotConvergent(GossipLogError, AssertionError):
    """An application's tables do not follow from the log alone.

    Attributes:
        kind: The kind of failure: `tables`, `the clock`, `apply raised TypeError`, …
    """

    def __init__(self, message: str, *, kind: str, history: History) -> None:
        super().__init__(message)
        self.kind = kind
        self.history = history


def check_convergence(
    application: Application,
    operations: Operations,
    *,
    invariants: Sequence[Invariant] = (),
    shown: Sequence[str] = (),
    refusals: tuple[type[Exception], ...] = (Reject,),
    seeds: Iterable[int | Random] = range(50),
    size: int = 24,
    replicas: int = 3,
    other_processes: bool = True,
    policy: bool = False,
) -> None:
    """Check that equal logs mean equal tables, whatever the order of arrival, on several replicas in SQLite in memory.

    Each seed is a history. Replicas write, exchange entries in any causal order and in commits of any size, are interrupted in the middle
    of a commit and repeat it, and are rebuilt; a stranger writes malformed operations. At the end all replicas have all entries, and their
    tables must equal those of a replica built from nothing. No network, event loop or file is used. The same seed gives the same history.

    Args:
        application: The application to check. If it can be imported or pickled, it is also replayed in two other processes with different
            hash seeds.
        operations: A function from an `Author` to a payload, or payloads to choose from.
        invariants: Functions that get `query(sql, *parameters)` after each step and raise if something does not hold.
        shown: Queries whose rows must agree; by default all rows of all tables.
        refusals: Exceptions that `apply` raises on purpose for entries without effect. Any other exception is a failure.
        seeds: One history for each; they may also be `random.Random`s, such as hypothesis gives.
        size: The approximate number of steps in a history.
        other_processes: Whether to start the other processes, which takes half a second.
        policy: Whether the log has members, who are let in and removed meanwhile. Void entries must leave no trace in the tables.

    Raises:
        NotConvergent: A check failed. The message has the smallest history found, as a test to paste.
    """
    rules = WorldRules(application, invariants, shown, refusals, policy)
    caller = _globals_of(inspect.currentframe())
    histories: list[History] = []
    for seed in seeds:
        with HistoryWorld(rules, replicas) as world:
            try:
                generate(world, operations, seed if isinstance(seed, Random) else Random(seed), size)
            except Found as found:
                _report(rules, world.history, found, seed, caller)
            histories.append(world.history)
    if other_processes:
        _check_elsewhere(rules, histories[:_ELSEWHERE_MAX], caller)


def check_history(
    application: Application,
    history: History,
    *,
    invariants: Sequence[Invariant] = (),
    shown: Sequence[str] = (),
    refusals: tuple[type[Exception], ...] = (Reject,),
    policy: bool = False,
) -> None:
    """Check one history that `check_convergence` has printed.

    Raises:
        NotConvergent: The history still fails.
    """
    rules = WorldRules(application, invariants, shown, refusals, policy)
    failure = _run(rules, history)
    if failure is None:
        _check_elsewhere(rules, [history], _globals_of(inspect.currentframe()), is_shrunk=True)
    else:
        raise NotConvergent(f"{failure}\n\n{_describe(history)}", kind=failure.kind, history=history)


def _globals_of(frame: FrameType | None) -> dict[str, Any]:
    """Return the global names of the file that called a function."""
    return frame.f_back.f_globals if frame is not None and frame.f_back is not None else {}


def _run(rules: WorldRules, history: History) -> Found | None:
    with HistoryWorld(rules, history.replicas) as world:
        try:
            world.start()
            for entry in history.entries:
                world.write(entry.author, entry.parents, entry.payload)
            for step in history.steps:
                world.do(step)
            world.finish()
        except Found as found:
            return found
    return None


def _report(rules: WorldRules, history: History, failure: Found, seed: int | Random, caller: dict[str, Any]) -> None:
    again = _run(rules, history)
    if again is None or again.kind != failure.kind:
        why = "The same history did not fail again: the tables depend on more than the log, such as chance or a global variable."
        raise NotConvergent(f"{failure}\n\n{why}", kind=failure.kind, history=history)

    def is_failing(candidate: History) -> bool:
        found = _run(rules, candidate)
        return found is not None and found.kind == failure.kind

    smallest = shrink(history, is_failing)
    shown = _run(rules, smallest) or failure
    where = "" if isinstance(seed, Random) else f" (seed {seed})"
    raise NotConvergent(
        f"{shown}\n\nThe smallest history that shows it{where}, as a test:\n\n{_as_test(rules, smallest, caller)}",
        kind=failure.kind,
        history=smallest,
    )


def _check_elsewhere(rules: WorldRules, histories: Sequence[History], caller: dict[str, Any], *, is_shrunk: bool = False) -> None:
    module = sys.modules.get(getattr(rules.application.apply, "__module__", None) or "")
    name = find_name(rules.application, caller, vars(module) if module else {})
    with elsewhere(rules, name) as others:
        if others is None:
            return
        for history in histories:
            if others.differ(history):
                _report_elsewhere(rules, history, others, caller, is_shrunk=is_shrunk)


def _report_elsewhere(rules: WorldRules, history: History, others: Elsewhere, caller: dict[str, Any], *, is_shrunk: bool) -> None:
    text = "two processes come to different tables: something depends on hash(), such as the order of a set of texts"
    if is_shrunk:
        raise NotConvergent(f"{text}\n\n{_describe(history)}", kind=_KIND_ELSEWHERE, history=history)
    smallest = shrink(history, others.differ)
    raise NotConvergent(
        f"{text}\n\nThe smallest history that shows it, as a test:\n\n{_as_test(rules, smallest, caller)}",
        kind=_KIND_ELSEWHERE,
        history=smallest,
    )


def _as_test(rules: WorldRules, history: History, caller: dict[str, Any]) -> str:
    """Return a history as the source of a test to paste."""
    found = find_name(rules.application, caller)
    name = found[1] if found else "application"
    options = ""
    if rules.invariants:
        options += f", invariants=[{', '.join(getattr(invariant, '__name__', '…') for invariant in rules.invariants)}]"
    if rules.shown:
        options += f", shown={list(rules.shown)!r}"
    if rules.refusals != (Reject,):
        options += f", refusals=({''.join(f'{refusal.__name__}, ' for refusal in rules.refusals)})"
    if rules.has_members:
        options += ", policy=True"
    used = {type(part).__name__ for part in (history, *history.entries, *history.steps)}
    return "\n".join(
        [
            f"from gossiplog.testing import {', '.join(sorted(used))}, check_history",
            "",
            "",
            "def test_application_on_the_history_that_failed() -> None:",
            f"    history = {render(history, '        ')}",
            f"    check_history({name}, history{options})",
        ]
    )


def _describe(history: History) -> str:
    return f"{len(history.entries)} entries, {len(history.steps)} steps, {history.replicas} replicas"
