"""Members who cheat in small worlds of correct replicas; and bugs planted in the log's membership, which these worlds notice.

More seeds: `python tests/support/members_world.py FIRST COUNT`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from members_world import World

from gossiplog.log.membership import Membership

FINISH: Any = Membership.finish


async def test_cheats_change_no_standing_and_nothing_void_takes_effect() -> None:
    for seed in range(3):
        done = await World(seed).run()
        assert done["entries"] > 1


@pytest.mark.slow
@pytest.mark.parametrize("walked", [4_000, 0, 5])
async def test_forty_worlds_whether_a_removal_walks_or_scans(walked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossiplog.log.membership._WALKED_MAX", walked)
    made = [await World(seed).run() for seed in range(40)]
    assert min(sum(done[name] for done in made) for name in ("entries", "refused", "void")) >= 40


def _keeps_lost(self: Membership, new: Any) -> Any:
    changed = yield from FINISH(self, new)
    changed.lost = []
    return changed


def _never_regains(self: Membership, new: Any) -> Any:
    changed = yield from FINISH(self, new)
    changed.regained = []
    return changed


def _shows_new_void(self: Membership, new: Any) -> Any:
    changed = yield from FINISH(self, new)
    changed.hidden &= set(self._said)
    return changed


def _spares_what_is_here(self: Membership, revocation: Any, new: Any) -> Any:
    yield from ()
    return []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "bug", "seeds"),
    [
        ("finish", _keeps_lost, range(20)),
        ("finish", _never_regains, (204, 653, 704, 871, 893)),
        ("finish", _shows_new_void, range(20)),
        ("_find_outside", _spares_what_is_here, range(20)),
    ],
)
async def test_planted_bug_is_noticed(name: str, bug: Callable[..., Any], seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, name, bug)
    with pytest.raises(AssertionError, match=r"void or lost|standing of"):
        for seed in seeds:
            await World(seed).run()
