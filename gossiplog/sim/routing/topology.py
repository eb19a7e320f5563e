"""Topologies: lists of links, each with the node that dials it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TypeAlias

from ...codec.digits import read_digits
from ...errors import LocalProtocolError
from ..scenario import Scenario, ScenarioError

Links: TypeAlias = list[tuple[int, int]]
"""`(dialler, dialled)` pairs. Each unordered pair occurs at most once."""

LINKS_MAX = 20_000_000
"""A full graph of 6,324 nodes. A run with more links would not fit in memory."""


def links_of(scenario: Scenario, nodes: int, rng: random.Random) -> Links:
    """Return the links that the first nodes of a scenario dial at the start.

    Raises:
        LocalProtocolError: The scenario's file cannot be read, or there are too many links.
    """
    spec = scenario.topology
    match spec.kind:
        case "ring":
            return ring(nodes)
        case "star":
            return star(nodes)
        case "hubs":
            return hub_and_spoke(nodes, spec.hubs, rng)
        case "full":
            return full(nodes)
        case "file":
            try:
                return read_links(scenario.directory / spec.file, nodes)
            except (OSError, UnicodeDecodeError) as error:
                raise ScenarioError(f"topology.file: {error}") from error
        case _:
            return random_connect(nodes, spec.connect, rng)


def random_connect(nodes: int, connect: int, rng: random.Random) -> Links:
    """Let every node dial `connect` distinct others, chosen uniformly. A pair that chose each other gets one link.

    The mean degree is a little below `2 × connect`. Source: simsub, "The simulator constructs a network of N nodes".
    """
    links: Links = []
    known: set[tuple[int, int]] = set()
    for node, picked in enumerate(pick_peers(nodes, connect, rng)):
        for peer in picked:
            pair = (node, peer) if node < peer else (peer, node)
            if pair not in known:
                known.add(pair)
                links.append((node, peer))
    return links


def pick_peers(nodes: int, connect: int, rng: random.Random) -> list[list[int]]:
    """Return, for every node, the `connect` distinct others that it dials, in order of dialling."""
    count = min(connect, nodes - 1)
    picks = []
    for node in range(nodes):
        chosen = rng.sample(range(nodes - 1), count)
        picks.append([peer + 1 if peer >= node else peer for peer in chosen])
    return picks


def ring(nodes: int) -> Links:
    """Each node dials the next; the last dials the first."""
    if nodes < 3:
        return [(0, 1)] if nodes == 2 else []
    return [(node, (node + 1) % nodes) for node in range(nodes)]


def star(nodes: int) -> Links:
    """All other nodes dial node 0."""
    return [(node, 0) for node in range(1, nodes)]


def hub_and_spoke(nodes: int, hubs: int, rng: random.Random) -> Links:
    """All hubs are linked to each other; every other node (a browser) dials one hub."""
    if not 1 <= hubs <= nodes:
        raise LocalProtocolError(f"hubs {hubs}, expected 1 to {nodes}")
    links = [(a, b) for a in range(hubs) for b in range(a)]
    links.extend((node, rng.randrange(hubs)) for node in range(hubs, nodes))
    return links


def full(nodes: int) -> Links:
    """Every node is linked to every other: N(N − 1)/2 links."""
    if nodes * (nodes - 1) // 2 > LINKS_MAX:
        raise LocalProtocolError(f"a full graph of {nodes} nodes has more than {LINKS_MAX} links")
    return [(a, b) for a in range(nodes) for b in range(a)]


def read_links(path: Path, nodes: int) -> Links:
    """Read one link per line: two node numbers separated by white space. `#` starts a comment.

    Raises:
        LocalProtocolError: A line is not a pair of distinct node numbers below `nodes`. The message names file and line.
    """
    links: Links = []
    known: set[tuple[int, int]] = set()
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            if len(words) != 2 or any(read_digits(word, 0, nodes - 1) is None for word in words) or words[0] == words[1]:
                raise LocalProtocolError(f"{path}:{number}: {line.strip()!r}, expected two different node numbers below {nodes}")
            a, b = int(words[0]), int(words[1])
            pair = (min(a, b), max(a, b))
            if pair not in known:
                known.add(pair)
                links.append((a, b))
    return links
