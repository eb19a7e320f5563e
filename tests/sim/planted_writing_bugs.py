"""Bugs of the writing machine, planted as those of `planted_bugs`: each switches one of its decisions off.

`python tests/sim/planted_writing_bugs.py [SEEDS]` looks for the first seed that catches each, and prints the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planted_bugs import PlantedBug, around, instead, look

from gossiplog.log import writing as writing_module
from gossiplog.log.writing import Answer, Gather, Report, Tell, Write, Writing


def blame_the_first(on_unwritten: Any) -> Any:
    def broken(self: Any, error: Any) -> Any:
        group = self._group
        actions = on_unwritten(self, error)
        if len(group) > 1 and self._suspects:
            self._suspects.clear()
            self._group = ()
            return [Report(error), Answer(group[0].ticket, error), *self._write(group[1:])]
        return actions

    return broken


def drop_good_neighbours(on_unwritten: Any) -> Any:
    def broken(self: Any, error: Any) -> Any:
        group = self._group
        actions = on_unwritten(self, error)
        if len(group) > 1 and self._suspects:
            self._suspects.clear()
            self._group = ()
            return [Report(error), *(Answer(piece.ticket, error) for piece in group), *self._go_on()]
        return actions

    return broken


def swap_the_halves(on_unwritten: Any) -> Any:
    def broken(self: Any, error: Any) -> Any:
        actions = on_unwritten(self, error)
        if self._suspects and self._group and isinstance(actions[-1], Write):
            other, self._suspects[0] = self._suspects[0], self._group
            return [*actions[:-1], *self._write(other)]
        return actions

    return broken


def forget_a_half(on_unwritten: Any) -> Any:
    def broken(self: Any, error: Any) -> Any:
        actions = on_unwritten(self, error)
        self._suspects.clear()
        return actions

    return broken


def answer_before_the_commit(write: Any) -> Any:
    def broken(self: Any, group: Any) -> Any:
        return [*(Answer(piece.ticket, []) for piece in group), *write(self, group)]

    return broken


def tell_last(on_written: Any) -> Any:
    def broken(self: Any, committed: Any) -> Any:
        actions = on_written(self, committed)
        return [*(action for action in actions if not isinstance(action, Tell)), Tell(committed)]

    return broken


def take_the_last_first(take: Any) -> Any:
    return lambda self: take(self)[::-1]


def take_one(self: Any) -> Any:
    return [self._waiting.popleft()]


def do_not_go_on(self: Any) -> Any:
    return []


def write_beside_another(on_submitted: Any) -> Any:
    def broken(self: Any, piece: Any) -> Any:
        return self._write([piece]) if self._is_alone else on_submitted(self, piece)

    return broken


def gather_again(on_submitted: Any) -> Any:
    def broken(self: Any, piece: Any) -> Any:
        actions = on_submitted(self, piece)
        return actions or [Gather()]

    return broken


def leave_out_what_is_before(on_unwritten: Any) -> Any:
    def broken(self: Any, error: Any) -> Any:
        actions = on_unwritten(self, error)
        for action in actions:
            if isinstance(action, Write) and action.failed and 0 not in action.failed:
                action.failed = self._failed = {index - 1: reason for index, reason in action.failed.items()}
        return actions

    return broken


def fail_only_those_that_were_tried(on_unwritten: Any) -> Any:
    def broken(self: Any, error: Any) -> Any:
        suspects = list(self._suspects)
        actions = on_unwritten(self, error)
        if suspects and not self._suspects:
            self._suspects.extend(suspects)
        return actions

    return broken


WRITING_BUGS: Sequence[PlantedBug] = (
    PlantedBug(8, "the first is blamed", "for what another brought", around(Writing, "_on_unwritten", blame_the_first)),
    PlantedBug(8, "good neighbours are dropped", "with the one to blame", around(Writing, "_on_unwritten", drop_good_neighbours)),
    PlantedBug(8, "halves are swapped", "what came later is written first", around(Writing, "_on_unwritten", swap_the_halves)),
    PlantedBug(8, "a half is forgotten", "nobody answers its callers", around(Writing, "_on_unwritten", forget_a_half)),
    PlantedBug(8, "patience has no end", "a commit is tried for ever", instead(writing_module, "ATTEMPTS", 10**9)),
    PlantedBug(8, "no patience", "the first break is told to callers", instead(writing_module, "ConnectionLost", ZeroDivisionError)),
    PlantedBug(18, "a full disk is one piece's fault", "it is looked for", instead(writing_module, "CommitError", Exception)),
    PlantedBug(0, "answers come before commits", "and are empty", around(Writing, "_write", answer_before_the_commit)),
    PlantedBug(0, "callers before watchers", "they hear of a commit first", around(Writing, "_on_written", tell_last)),
    PlantedBug(0, "groups are reversed", "the last that came is the first", around(Writing, "_take", take_the_last_first)),
    PlantedBug(0, "groups are of one", "nobody shares a commit", instead(Writing, "_take", take_one)),
    PlantedBug(0, "what waits is forgotten", "after a commit", instead(Writing, "_go_on", do_not_go_on)),
    PlantedBug(0, "two commits at once", "the first is not waited for", around(Writing, "_on_submitted", write_beside_another)),
    PlantedBug(0, "others are asked twice", "during a commit", around(Writing, "_on_submitted", gather_again)),
    PlantedBug(
        8, "another append is left out", "not the one that apply raised about", around(Writing, "_on_unwritten", leave_out_what_is_before)
    ),
    PlantedBug(
        8,
        "what was split off is tried in vain",
        "though the disk is full",
        around(Writing, "_on_unwritten", fail_only_those_that_were_tried),
    ),
)
"""Each is caught by its seed."""


if __name__ == "__main__":
    look(WRITING_BUGS)
