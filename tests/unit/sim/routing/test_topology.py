"""Topologies: simple graphs with the degrees they promise."""

import random
from pathlib import Path

import pytest

from gossiplog.errors import LocalProtocolError
from gossiplog.sim.routing.topology import Links, full, hub_and_spoke, random_connect, read_links, ring, star


def neighbours(nodes: int, links: Links) -> list[list[int]]:
    """Return the neighbours of every node, ascending."""
    lists: list[list[int]] = [[] for _ in range(nodes)]
    for a, b in links:
        lists[a].append(b)
        lists[b].append(a)
    for peers in lists:
        peers.sort()
    return lists


def is_simple(links: Links) -> bool:
    pairs = [frozenset(link) for link in links]
    return all(len(pair) == 2 for pair in pairs) and len(set(pairs)) == len(pairs)


@pytest.mark.parametrize(
    "links", [random_connect(50, 10, random.Random(1)), ring(9), ring(2), star(9), full(9), hub_and_spoke(20, 3, random.Random(1))]
)
def test_topology_has_no_loop_and_no_double_link(links: Links) -> None:
    assert links
    assert is_simple(links)


def test_random_connect_dials_the_same_number_from_every_node() -> None:
    links = random_connect(400, 10, random.Random(5))
    degrees = [len(peers) for peers in neighbours(400, links)]
    assert min(degrees) >= 10
    assert 19 < sum(degrees) / 400 < 20


def test_random_connect_of_a_small_network_is_full() -> None:
    assert len(random_connect(4, 10, random.Random(1))) == 6


def test_spokes_know_hubs_only() -> None:
    lists = neighbours(30, hub_and_spoke(30, 3, random.Random(2)))
    assert all(len(lists[node]) == 1 and lists[node][0] < 3 for node in range(3, 30))
    with pytest.raises(LocalProtocolError, match="hubs 31"):
        hub_and_spoke(30, 31, random.Random(2))


def test_ring_of_one_has_no_link() -> None:
    assert ring(1) == []


def test_links_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "links.txt"
    path.write_text("0 1  # first\n\n2 1\n1 0\n")
    assert read_links(path, 3) == [(0, 1), (2, 1)]


@pytest.mark.parametrize("line", ["0 3", "0", "0 1 2", "a b", "1 1", "-1 0", "٣ 1"])
def test_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "links.txt"
    path.write_text(f"0 1\n{line}\n")
    with pytest.raises(LocalProtocolError, match=r"links\.txt:2: "):
        read_links(path, 3)


def test_full_graph_beyond_memory_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="more than"):
        full(100_000)
