"""Bugs in reconciliation, planted as those of `planted_bugs`.

`python tests/sim/planted_reconcile_bugs.py [SEEDS]` looks for the first seed that catches each, and prints the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planted_bugs import PlantedBug, around, look

from gossiplog.broadcast import Broadcast
from gossiplog.reconcile import server as server_module
from gossiplog.reconcile import steps
from gossiplog.sim.check import syncs
from gossiplog.sketch import Sketch


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


RECONCILE_BUGS: Sequence[PlantedBug] = (
    PlantedBug(2, "gifts are kept", "what a client gave is told to nobody", around(Broadcast, "_on_sync_finished", keep_what_is_given)),
    PlantedBug(2, "the last want is forgotten", "one entry less is asked for", around(steps, "absent", overlook_the_last)),
    PlantedBug(2, "newest first", "values are given against the order of keys", around(steps, "give_keys", give_newest_first)),
    PlantedBug(2, "sketch of the past", "it lacks the latest entry", around(syncs.Syncs, "_view", sketch_of_the_past)),
    PlantedBug(
        2, "the last gift is not taken", "one value less is waited for", around(server_module._Server, "_take", drop_the_last_value)
    ),
)


if __name__ == "__main__":
    look(RECONCILE_BUGS)
