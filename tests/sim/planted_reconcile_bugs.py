"""Bugs in reconciliation and in how pulls are made, planted as those of `planted_bugs`.

`python tests/sim/planted_reconcile_bugs.py [SEEDS]` looks for the first seed that catches each, and prints the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from planted_bugs import PlantedBug, around, look, nothing, replaced

from gossiplog.broadcast.spreading import Spreading
from gossiplog.pull.machine import AwaitServed, Pull
from gossiplog.pull.serving import Dealings
from gossiplog.reconcile import server as server_module
from gossiplog.reconcile import steps
from gossiplog.sim.check import syncs
from gossiplog.sketch import Sketch
from gossiplog.sync.result import Ending
from gossiplog.sync.source import Source


def keep_what_is_given(on_finished: Any) -> Any:
    def broken(self: Any, event: Any) -> None:
        if event.token >= 0:
            on_finished(self, event)

    return broken


def overlook_the_last(absent: Any) -> Any:
    def broken(theirs: Any, ours: Any) -> Any:
        lacking, in_quarantine, has_ours = yield from absent(theirs, ours)
        return lacking[:-1] if len(lacking) > 1 else lacking, in_quarantine, has_ours

    return broken


def give_newest_first(give_keys: Any) -> Any:
    return lambda keys: give_keys(list(reversed(keys)))


def sketch_of_the_past(view: Any) -> Any:
    def broken(self: Any) -> Any:
        state = view(self)
        if state.seq < 2:
            return state
        sketch = Sketch()
        sketch.add([key for key, leaf in self._owner.state.leaves.items() if leaf.seq < state.seq])
        return replace(state, sketch=sketch)

    return broken


def drop_the_last_value(take: Any) -> Any:
    def broken(self: Any, most: int, *, is_all: bool) -> Any:
        return (yield from take(self, most if is_all or most < 2 else most - 1, is_all=is_all))

    return broken


def never(*_: Any, **__: Any) -> bool:
    return False


def trust_the_sketch(reconcile: Any) -> Any:
    def broken(self: Any, view: Any) -> Any:
        pulling = reconcile(self, view)
        step = next(pulling)
        while True:
            answer = yield step
            self.outcome.is_doubtful = False
            try:
                step = pulling.send(answer)
            except StopIteration as stop:
                return stop.value

    return broken


def give_up(conclude: Any) -> Any:
    def broken(self: Any, outcome: Any) -> Any:
        is_over = conclude(self, outcome)
        if not outcome.fallback:
            return is_over
        outcome.result.ending = Ending.COMPLETE
        return True

    return broken


def begin_again(handle: Any) -> Any:
    """What has crossed is taken for a failure."""

    def broken(self: Any, answer: Any, now: float) -> Any:
        step = handle(self, answer, now)
        if isinstance(step, AwaitServed):
            self._results[-1].ending = Ending.VIOLATION
        return step

    return broken


@contextmanager
def all_three() -> Iterator[None]:
    """As they were switched off together in the live service once, and no test noticed."""
    with ExitStack() as stack:
        stack.enter_context(replaced(Dealings, "is_crossing", lambda _: never))
        stack.enter_context(replaced(Source, "on_fallback", lambda _: nothing))
        stack.enter_context(replaced(Pull, "_reconcile", trust_the_sketch))
        yield


RECONCILE_BUGS: Sequence[PlantedBug] = (
    PlantedBug(2, "gifts are kept", "what a client gave is told to nobody", around(Spreading, "_on_sync_finished", keep_what_is_given)),
    PlantedBug(2, "the last want is forgotten", "one entry less is asked for", around(steps, "absent", overlook_the_last)),
    PlantedBug(2, "newest first", "values are given against the order of keys", around(steps, "give_keys", give_newest_first)),
    PlantedBug(2, "sketch of the past", "it lacks the latest entry", around(syncs.Syncs, "_view", sketch_of_the_past)),
    PlantedBug(
        2, "the last gift is not taken", "one value less is waited for", around(server_module._Server, "_take", drop_the_last_value)
    ),
    PlantedBug(2, "crossing, fallbacks, sketches", "three decisions of a pull are off", all_three),
    PlantedBug(2, "both go on", "two peers that begin at once reconcile twice", around(Dealings, "is_crossing", lambda _: never)),
    PlantedBug(2, "fallbacks are forgotten", "reconciliations are tried at once again", around(Source, "on_fallback", lambda _: nothing)),
    PlantedBug(2, "wrong sketches are kept", "they mislead for good", around(Pull, "_reconcile", trust_the_sketch)),
    PlantedBug(2, "a fallback is the end", "and counts as complete", around(Pull, "_conclude", give_up)),
    PlantedBug(2, "crossing is a fault", "of the peer that went on", around(Pull, "handle", begin_again)),
)


if __name__ == "__main__":
    look(RECONCILE_BUGS)
