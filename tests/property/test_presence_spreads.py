"""Presence among rooms that are connected at random: everybody shows the newest, nothing goes round in circles, nothing comes back."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from presence_support import NOW_MS, World, author, make

from gossiplog.presence.messages import Statement
from gossiplog.presence.room import FrameReceived

NAMES = ["cursor", "typing", "name"]


def play(seed: int, *, cuts: bool) -> World:
    """Let authors state things in a random graph, some of it cut and mended; at the end all is mended and everybody states something."""
    random = Random(seed)
    names = [f"room {number}" for number in range(random.randint(3, 8))]
    world = World(names, seed)
    pairs = [(names[random.randrange(index)], name) for index, name in enumerate(names) if index]
    pairs += [tuple(sorted(random.sample(names, 2), key=names.index)) for _ in range(random.randint(0, 6))]
    pairs = list(dict.fromkeys(pairs))
    for pair in pairs:
        world.connect(*pair)
    number = 0

    def state(name: str, states: dict[str, Any], ttl_ms: int) -> Statement:
        nonlocal number
        number += 1
        who = names.index(name) // 2  # two rooms have the same author, in sessions of their own
        said = make(author(who), number, states, ttl_ms, session=name.encode().ljust(8))
        world.state(name, said)
        return said

    for _ in range(40):
        world.run(random.uniform(0, 0.5))
        states = {name: random.choice([None, random.random()]) for name in random.sample(NAMES, random.randint(1, 3))}
        if random.random() < 0.1:
            state(random.choice(names), {}, 0)
        else:
            state(random.choice(names), states, random.choice([500, 2_000, 50_000, 60_000]))
        if cuts and random.random() < 0.3:
            one, other = random.choice(pairs)
            if (one, other) in world.links:
                world.cut(one, other)
            else:
                world.connect(one, other)
    for one, other in pairs:
        if (one, other) not in world.links:
            world.connect(one, other)
    world.run(5.0)
    if cuts:
        for name in names:
            for each in NAMES:
                state(name, {each: name}, 60_000)
                world.run(0.5)
    world.run(5.0)
    return world


@pytest.mark.parametrize("cuts", [False, True])
def test_all_show_the_same_and_it_is_the_newest(cuts: bool) -> None:
    for seed in range(30):
        world = play(seed, cuts=cuts)
        shown = [room.states() for room in world.rooms.values()]
        assert all(each == shown[0] for each in shown), seed
        assert all(len(names) == len(NAMES) for names in shown[0].values()) or not cuts


def test_nothing_is_passed_on_twice_on_a_connection() -> None:
    for seed in range(30):
        assert max(play(seed, cuts=False).passed.values()) == 1, seed


def test_nothing_comes_back_however_it_is_replayed() -> None:
    for seed in range(20):
        world = play(seed, cuts=True)
        world.run(61.0)
        recorded = list(world.recorded)
        assert recorded
        Random(seed).shuffle(recorded)
        for name, room in world.rooms.items():
            assert room.states() == {}
            for body in recorded:
                world.now += 0.001
                world.tell(name, FrameReceived(next(iter(pair[1] for pair in world.wires if pair[0] == name)), body, NOW_MS))
            assert room.states() == {}, seed
