"""The same replay in processes whose hashes differ: `hash`, and with it the order of a set of texts, is another in each process of
Python.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from .history import History
from .world import Found, HistoryWorld, WorldRules

_HASH_SEEDS = ("1", "2")


def rebuilt(rules: WorldRules, history: History) -> dict[str, list[str]]:
    """Return the tables that the entries of a history make when they are applied in the order of ids."""
    with HistoryWorld(rules, history.replicas) as world:
        for entry in history.entries:
            world.write(entry.author, entry.parents, entry.payload)
        return world.rebuilt()


def find_name(application: object, *namespaces: dict[str, Any]) -> tuple[str, str] | None:
    """Return the module and the name under which an application can be imported; None if it cannot be."""
    for namespace in namespaces:
        module = namespace.get("__name__")
        if module is None or module == "__main__" or sys.modules.get(module) is None:
            continue
        for name, value in vars(sys.modules[module]).items():
            if value is application:
                return module, name
    return None


class Elsewhere:
    """Two processes that replay histories. Neither has what the other, or this process, computed."""

    def __init__(self, processes: list[subprocess.Popen[bytes]]) -> None:
        self._processes = processes

    def differ(self, history: History) -> bool:
        """Say whether the two come to different tables."""
        first, second = self.ask(history)
        return bool(first != second)

    def ask(self, message: Any) -> list[Any]:
        """Ask both, and return both answers."""
        for process in self._processes:
            assert process.stdin is not None
            pickle.dump(message, process.stdin)
            process.stdin.flush()
        return [pickle.load(process.stdout) for process in self._processes if process.stdout is not None]


@contextmanager
def elsewhere(rules: WorldRules, name: tuple[str, str] | None) -> Iterator[Elsewhere | None]:
    """Start the processes for the length of a block; None if the application cannot be had in another process.

    Args:
        rules: Their application is found by its name, or pickled.
    """
    described: tuple[str, str] | bytes
    try:
        described = name or pickle.dumps(rules.application)
    except (pickle.PicklingError, AttributeError, TypeError):
        yield None
        return
    program = [sys.executable, "-c", "from gossiplog.testing.other_process import serve; serve()"]
    with ExitStack() as stack:
        processes = []
        for seed in _HASH_SEEDS:
            environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
            stack.callback(_end, process)
            processes.append(process)
        found = Elsewhere(processes)
        answers = found.ask((described, rules.shown, rules.refusals, rules.has_members))
        yield found if all(answers) else None


def serve() -> None:
    """Answer on the standard streams: first what to replay, then a history at a time. What the application prints goes elsewhere."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    described, shown, refusals, has_members = pickle.load(source)
    try:
        if isinstance(described, bytes):
            application = pickle.loads(described)
        else:
            application = getattr(import_module(described[0]), described[1])
    except Exception:
        application = None
    rules = WorldRules(application, shown=shown, refusals=refusals, has_members=has_members)
    _answer(sink, application is not None)
    while True:
        try:
            history = pickle.load(source)
        except EOFError:
            return
        try:
            answer: Any = rebuilt(rules, history)
        except Found as found:
            answer = found.failure.kind
        _answer(sink, answer)


def _answer(sink: Any, message: Any) -> None:
    pickle.dump(message, sink)
    sink.flush()


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.wait()
    process.stdout.close()
