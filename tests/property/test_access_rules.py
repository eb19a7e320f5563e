"""Membership: the room equals the model, on any order of arrival, and what a node signs never helps it."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from access_support import Driven, story

import gossiplog.access.members as room
from gossiplog.access import Members, Revoke

SEEDS = (*range(80), 94, 391)
"""The last two have admissions that matter, by who admits and whether they become void; few have."""
SOURCE = Path(room.__file__).read_text("utf-8")

PLANTED = {
    "a leaving touches leavings of its node": ("path[-1] if is_leaving else None", "None"),
    "votes can be void": ("if control.is_vote:", "if control.index < 0:"),
    "revocations decide that do not count": ("elif not self._bars_of_control(each, among):", "else:"),
    "nothing is adopted": ("or path[below] not in said.adopt", "or below > 0"),
    "whatever was adopted lives": ("or path[below] not in said.adopt", "or not said.adopt"),
    "data is void under any of its nodes": ("if not bars:\n                return ()", "if bars:\n                return bars"),
    "admissions lift what was revoked from above": ("and admit.under.name in revocation.under.path", ""),
    "admissions lift what they have not seen": ("revocation.index in admit.view.controls and", ""),
    "void admissions lift": ("if not self._bars_of_control(admit, now)]", "]"),
    "one founder votes k times": ("votes[each.under.name] = each", "votes[each.id] = each"),
    "nothing is kept of control entries": ("and index not in each.kept.controls", ""),
    "who is no founder votes": ("and len(under.path) == 1", ""),
    "the removed lose their vote": ("if not is_vote and (bars", "if (bars"),
    "readers write": ('if node.role == "read":', "if False:"),
    "children are adopted that were granted too late": (" or self._granted[child.name] not in kept.controls", ""),
    "who leaves adopts": ("if under is node and said.adopt:", "if False:"),
    "a view holds what is not before it": ("self._granted[name] in view.controls)", "view)"),
    "what is known of a set is kept for another": ("known = self._known.get(among)", "known = self._known.get(IndexSet(among.top, 0))"),
}


def compare(seed: int, members: type[Members] = Members, steps: int = 40) -> None:
    """Give a history to the room in two orders, and compare all that it says with the model."""
    told = story(seed, steps)
    for order in (told.steps, told.shuffled(random.Random(seed))):
        driven = Driven(told.policy, members)
        for step in order:
            reason = driven.add(step.key, step.author, step.parents, step.said)
            assert (reason is None) == step.belongs, (seed, step.id, reason)
        assert driven.standings() == told.standings(), seed


def test_room_equals_the_model_on_any_order_of_arrival() -> None:
    for seed in SEEDS:
        compare(seed)


@pytest.mark.slow
def test_room_equals_the_model_on_many_histories() -> None:
    for seed in range(80, 2_500):
        compare(seed, steps=60)
        story.cache_clear()


def walk(seed: int) -> Any:
    """Yield what a step of a history changes: the room, the step, and what was held and what counted before."""
    told = story(seed)
    driven = Driven(told.policy)
    for step in told.shuffled(random.Random(seed)):
        before = driven.held(), driven.standings()
        if driven.add(step.key, step.author, step.parents, step.said) is None and step.said is not None:
            yield driven, step, *before


def test_nothing_that_is_signed_under_a_node_helps_it() -> None:
    helped = 0
    for seed in SEEDS:
        for driven, step, held, counted in walk(seed):
            members, now = driven.members, driven.standings()
            for name in members.nodes[step.said.under].path:
                node = members.nodes[name]
                assert held[name] or members.bars_of_node(node), (seed, step.id, name)
                own = [each.id for each in members.controls if each.under is node and each.key != step.key]
                own += [id for id, nodes in driven.data.items() if nodes == (node,)]
                assert not [id for id in own if now[id] and not counted[id]], (seed, step.id)
            helped += any(now[id] and not counted[id] for id in counted)
    # Others it does help: what they had been denied, by somebody below, counts again.
    assert helped


def test_what_is_void_changes_nothing_else() -> None:
    void = revoking = 0
    for seed in SEEDS:
        for driven, step, held, counted in walk(seed):
            now = driven.standings()
            if not now[step.id]:
                void += 1
                revoking += isinstance(step.said, Revoke)
                assert {name: driven.held()[name] for name in held} == held, (seed, step.id)
                assert {id: now[id] for id in counted} == counted, (seed, step.id)
    assert void > 20 < revoking


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bug_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = PLANTED[bug]
    assert SOURCE.count(old) == 1
    module = ModuleType("gossiplog.access.planted")
    module.__package__ = "gossiplog.access"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(SOURCE.replace(old, new), "planted", "exec", dont_inherit=True), module.__dict__)
    with pytest.raises((AssertionError, KeyError, RecursionError)):
        for seed in SEEDS:
            compare(seed, module.Members)
