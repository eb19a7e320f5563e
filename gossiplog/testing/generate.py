"""Random histories: replicas write, exchange entries, are interrupted and rebuilt, and a stranger writes malformed operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from .history import Delivered, Rebuild
from .poison import name_others, poisoned
from .world import HistoryWorld, Query, signer_of

_STRANGE = 0.12
_POISONED = 0.6
_WRITTEN = 0.5
_DELIVERED = 0.92
_ABORTED = 0.2
_STATEMENTS_MAX = 8
_MEMBERS = 0.15
_BURST_MAX = 4


@dataclass(frozen=True, slots=True)
class Author:
    """The author of the next operation, and what it can read.

    Attributes:
        ids: The ids of the replica's entries, ascending.
        query: `query(sql, *parameters)` reads the replica's tables.
    """

    random: Random
    did: str
    ids: Sequence[str]
    query: Query


Operations: TypeAlias = Callable[[Author], Any] | Sequence[Any]
"""A function that makes a payload, or payloads to choose from."""


def generate(world: HistoryWorld, operations: Operations, random: Random, size: int) -> None:
    """Perform 2 to `size` random steps in a world, and finish it.

    Raises:
        Found: A check failed.
    """
    world.start()
    for _ in range(random.randint(2, size)):
        replica = random.randrange(len(world.replicas))
        draw = random.random()
        if world.has_members and random.random() < _MEMBERS:
            _change_members(world, random)
        elif draw < _STRANGE:
            _write_strangely(world, operations, random, replica)
        elif draw < _WRITTEN:
            _write(world, operations, random, replica)
        elif draw < _DELIVERED:
            _deliver(world, random, replica)
        else:
            world.do(Rebuild(replica, random.choice((1, 2, 1_000)), _aborted(random)))
    world.finish()


def _write(world: HistoryWorld, operations: Operations, random: Random, replica: int) -> None:
    """A replica appends on top of all its heads, now and then several entries in one commit."""
    parents = world.heads(replica)
    numbers = []
    for _ in range(random.randint(2, _BURST_MAX) if random.random() < 0.2 else 1):
        number = world.write(replica, parents, _operation(world, operations, random, replica, replica))
        numbers.append(number)
        parents = [number]
    world.do(Delivered(replica, tuple(numbers), _aborted(random)))


def _change_members(world: HistoryWorld, random: Random) -> None:
    """The founder lets in or removes an author or the stranger, on top of one replica's heads; the other replicas may not know."""
    replica = random.randrange(len(world.replicas))
    author = random.randint(1, len(world.replicas))
    said = random.choice(({"grant": author}, {"revoke": author}, {"revoke": author, "keep": []}))
    number = world.write(0, world.heads(replica), {"gossiplog.access": said})
    world.do(Delivered(replica, (number,), _aborted(random)))


def _write_strangely(world: HistoryWorld, operations: Operations, random: Random, replica: int) -> None:
    """A stranger writes on top of any entries of a replica, mostly malformed operations.

    Ids in its payload need not be those of ancestors, or of any entry.
    """
    stranger = len(world.replicas)
    numbers = world.replicas[replica].numbers
    parents = sorted(random.sample(numbers, min(len(numbers), random.randint(0, 2))))
    payload = name_others(random, _operation(world, operations, random, replica, stranger), [entry.id for entry in world.entries])
    if random.random() < _POISONED:
        payload = poisoned(random, payload)
    world.do(Delivered(replica, (world.write(stranger, parents, payload),), _aborted(random)))


def _deliver(world: HistoryWorld, random: Random, replica: int) -> None:
    """A replica gets some entries that it lacks from another one, in some causal order, in commits of any size."""
    other = random.choice(world.replicas)
    has = set(world.replicas[replica].numbers)
    missing = [number for number in other.numbers if number not in has]
    draw = random.random()
    if draw < 0.3:
        # As a sync brings them.
        missing.sort(key=lambda number: world.entries[number].key)
    elif draw < 0.7:
        # `Delivered` puts ancestors first, so any order is a causal one.
        random.shuffle(missing)
    if random.random() < 0.3:
        del missing[random.randint(0, len(missing)) :]
    while missing:
        size = random.choice((1, 2, len(missing)))
        world.do(Delivered(replica, tuple(missing[:size]), _aborted(random)))
        del missing[:size]


def _operation(world: HistoryWorld, operations: Operations, random: Random, replica: int, author: int) -> Any:
    if not callable(operations):
        return random.choice(operations)
    at = world.replicas[replica]
    return operations(Author(random, signer_of(author).did, sorted(at.known.entries), at.tables.query))


def _aborted(random: Random) -> int | None:
    return random.randint(0, _STATEMENTS_MAX) if random.random() < _ABORTED else None
