"""Bugs in what clients may bring, and in what is done about syncs that were cut short, planted as those of `planted_bugs`.

`python tests/sim/planted_quota_bugs.py [SEEDS]` looks for the first seed that catches each, and prints the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planted_bugs import PlantedBug, around, instead, look, nothing

from gossiplog.broadcast import allowance as allowance_module
from gossiplog.broadcast.allowance import Allowance, Bringer
from gossiplog.broadcast.spreading import Spreading
from gossiplog.entry.validation import Rule
from gossiplog.sim.check import syncs as syncs_module


def give_back_all(settle: Any) -> Any:
    def broken(self: Any, verdict: Any, now: float) -> None:
        settle(self, verdict, now)
        if self.allowance is not None and verdict.accepted and verdict.is_new:
            self.allowance.refund(verdict.entry, self.address, now)

    return broken


def remind_nobody(after_merkle: Any) -> Any:
    def broken(server: Any, *, has_moved: bool) -> Any:
        return type(after_merkle(server, has_moved=has_moved))()

    return broken


def count_twice(on_commit: Any) -> Any:
    def broken(self: Any, entries: Any) -> None:
        self._reserved.clear()
        on_commit(self, entries)

    return broken


QUOTA_BUGS: Sequence[PlantedBug] = (
    PlantedBug(15, "quotas are free", "nothing is charged", instead(Allowance, "charge", nothing)),
    PlantedBug(15, "what is stored costs nothing", "it is given back", around(Bringer, "settle", give_back_all)),
    PlantedBug(5, "what came twice is paid twice", "nothing is given back", instead(Allowance, "refund", nothing)),
    PlantedBug(
        5, "what clients bring is counted twice", "when it comes and when it is stored", around(Allowance, "on_commit", count_twice)
    ),
    PlantedBug(
        15,
        "orphans are paid for",
        "each time they come",
        instead(allowance_module, "_CHARGED", allowance_module._CHARGED - {Rule.PARENTS}),
    ),
    PlantedBug(35, "who is cut short is not reminded", "nor is anybody else", around(syncs_module, "after_merkle", remind_nobody)),
    PlantedBug(35, "reminders are not said", "by the machine", instead(Spreading, "_on_sync_served", nothing)),
    PlantedBug(35, "the silent are not reminded", "who do not close their side", instead(syncs_module, "HEARD_S", 1e6)),
)


if __name__ == "__main__":
    look(QUOTA_BUGS)
