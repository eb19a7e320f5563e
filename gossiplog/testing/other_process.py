"""Replays histories in two processes with different hash seeds, in which `hash` and the order of a set of strings differ."""

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
    """Return the tables that result from the entries of a history, applied in the order of ids."""
    with HistoryWorld(rules, history.replicas) as world:
        for entry in history.entries:
            world.write(entry.author, entry.parents, entry.payload)
        return world.rebuilt()


def find_name(application: object, *namespaces: dict[str, Any]) -> tuple[str, str] | None:
    """Return the module and the name under which an application can be imported from one of these namespaces; None if it cannot be."""
    for namespace in namespaces:
        module = namespace.get("__name__")
        if module is None or module == "__main__" or sys.modules.get(module) is None:
            continue
        for name, value in vars(sys.modules[module]).items():
            if value is application:
                return module, name
    return None


class Elsewhere:
    """Two processes that replay histories. They share no state with each other or with this process."""

    def __init__(self, processes: list[subprocess.Popen[bytes]]) -> None:
        self._processes = processes

    def differ(self, history: History) -> bool:
        """Return whether the two processes come to different tables."""
        first, second = self.ask(history)
        return bool(first != second)

    def ask(self, message: Any) -> list[Any]:
        """Send a message to both processes, and return both answers."""
        for process in self._processes:
            assert process.stdin is not None
            pickle.dump(message, process.stdin)
            process.stdin.flush()
        return [pickle.load(process.stdout) for process in self._processes if process.stdout is not None]


@contextmanager
def elsewhere(rules: WorldRules, name: tuple[str, str] | None) -> Iterator[Elsewhere | None]:
    """Start the processes for the length of a block; None if the application cannot be imported or pickled.

    Args:
        name: The module and the name of the application; None if it has to be pickled.
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
    """Serve requests on the standard streams: the rules, then one history at a time. The application's prints go to standard error."""
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
            answer = found.kind
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
