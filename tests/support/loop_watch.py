"""Watch the event loop of a trio run: which step of a task held it for longer than any step may, in CPU time of its thread.

CPU time, not time by the wall: a machine that is busy with other things makes no step longer. In this process:

    with watching_loop() as held:
        …
    assert not held

In another one, `python loop_watch.py REPORT MODULE [ARGUMENT …]` runs a module as `python -m MODULE` would, and adds a line of JSON to
the file REPORT for each step that is too long, as it happens.
"""

from __future__ import annotations

import gc
import json
import runpy
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

__all__ = ["STEP_CPU_S", "Held", "LoopWatch", "read_report", "reporting_to", "watching_loop"]

STEP_CPU_S = 0.05
"""What one step may take. Source: spec/limits.md, "the loop is never held > 50 ms by a peer"."""
_SAMPLED_S = 0.01
_FRAMES = 6

Held = dict[str, Any]
"""One step that was too long: its `task`, `cpu_ms`, `gc_ms` of that for garbage collection, `at` in monotonic seconds,
and the innermost frames of its `stack`."""


class LoopWatch(trio.abc.Instrument):
    """An instrument for `trio.run` or `trio.lowlevel.add_instrument`.

    Args:
        report: Gets each step that took longer than `STEP_CPU_S`, in the loop's thread.
    """

    def __init__(self, report: Callable[[Held], None]) -> None:
        self._report = report
        self._thread = threading.get_ident()
        self._began: float | None = None
        self._stack: list[str] = []
        self._collecting: float | None = None
        self._collected = 0.0
        gc.callbacks.append(self._on_collector)
        self._stopped = threading.Event()
        self._clock = time.pthread_getcpuclockid(self._thread)
        # What a step is doing while it does it; only another thread can see that.
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._stack = []
        self._collected = 0.0
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        began, self._began = self._began, None
        if began is None:
            return
        used = time.thread_time() - began
        if used > STEP_CPU_S:
            step = {"task": task.name, "cpu_ms": round(1000 * used, 1), "gc_ms": round(1000 * self._collected, 1)}
            self._report({**step, "at": time.monotonic(), "stack": self._stack})

    def after_run(self) -> None:
        self.stop()

    def stop(self) -> None:
        """End the thread that looks at what long steps do."""
        gc.callbacks.remove(self._on_collector)
        self._stopped.set()
        self._sampler.join()

    def _on_collector(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collecting = time.thread_time()
        elif self._collecting is not None:
            self._collected += time.thread_time() - self._collecting

    def _sample(self) -> None:
        while not self._stopped.wait(_SAMPLED_S):
            began = self._began
            if began is None or self._stack or time.clock_gettime(self._clock) - began < STEP_CPU_S / 2:
                continue
            frame, stack = sys._current_frames().get(self._thread), list[str]()
            while frame is not None and len(stack) < _FRAMES:
                stack.insert(0, f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}")
                frame = frame.f_back
            if self._began == began:
                self._stack = stack


@contextmanager
def watching_loop() -> Iterator[list[Held]]:
    """Watch the loop of this trio run for the length of a block; the list grows as steps are too long."""
    held: list[Held] = []
    watch = LoopWatch(held.append)
    trio.lowlevel.add_instrument(watch)
    try:
        yield held
    finally:
        trio.lowlevel.remove_instrument(watch)
        watch.stop()


def read_report(path: Path) -> list[Held]:
    """Read what another process has reported so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def reporting_to(path: Path) -> LoopWatch:
    """Return an instrument for `trio.run` that adds to a report."""
    file = path.open("a", buffering=1)  # open until the process ends
    return LoopWatch(lambda held: print(json.dumps(held), file=file))


def main() -> None:
    path, module, *arguments = sys.argv[1:]
    run = trio.run

    def watched_run(*args: Any, **options: Any) -> Any:
        return run(*args, instruments=[reporting_to(Path(path))], **options)

    trio.run = watched_run
    sys.argv = [module, *arguments]
    # The folder of this file, which `python FILE` puts first, is not on the path of `python -m MODULE`.
    del sys.path[0]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
