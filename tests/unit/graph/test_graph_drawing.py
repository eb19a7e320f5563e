import random
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.graph import GraphNode, TextStyle, draw_dot, draw_html, draw_svg, draw_text, lay_out
from gossiplog.graph.palette import DARK, LIGHT, author_colour

HOSTILE = '<script>alert(1)</script>"\'&\x1b[31m\u202e\x00\\"; digraph {'


def node(name: str, *parents: str, payload: str = "", is_head: bool = False) -> GraphNode:
    return GraphNode(name, parents, len(name), "did:key:z6Mkabc", payload, is_head)


def drawn(*nodes: GraphNode, **style: object) -> list[str]:
    return [line.rstrip() for line in draw_text(nodes, lambda each, used: each.id, TextStyle(**style))]  # type: ignore[arg-type]


def history(seed: int, count: int) -> list[GraphNode]:
    """Any history: `count` entries, each with up to three parents among the eight before it, newest first."""
    rng = random.Random(seed)
    names: list[str] = []
    nodes = []
    for number in range(count):
        recent = names[-8:]
        parents = rng.sample(recent, min(len(recent), rng.choice([0, 1, 1, 2, 3])))
        names.append(f"{number:04}")
        nodes.append(node(names[-1], *parents))
    return nodes[::-1]


def test_line_of_entries_takes_no_extra_lines() -> None:
    assert drawn(node("c", "b", is_head=True), node("b", "a"), node("a")) == ["◉  c", "●  b", "●  a"]


def test_fork_and_merge_are_drawn_as_a_diamond() -> None:
    assert drawn(node("d", "b", "c"), node("c", "a"), node("b", "a"), node("a")) == [
        "●  d",
        "├─╮",
        "│ ●  c",
        "● │  b",
        "├─╯",
        "●  a",
    ]


def test_two_heads_run_into_their_common_parent() -> None:
    assert drawn(node("c", "a"), node("b", "a"), node("a")) == ["●  c", "│ ●  b", "├─╯", "●  a"]


def test_line_that_crosses_a_lane_is_drawn_as_a_crossing() -> None:
    lines = drawn(node("e", "b"), node("d", "c"), node("x", "b"), node("c", "a"), node("b", "a"), node("a"))
    assert "├─┼─╯" in lines


def test_ascii_needs_no_other_characters() -> None:
    lines = drawn(*history(3, 40), ascii_only=True)
    assert all(line.isascii() for line in lines)


def test_lanes_beyond_the_limit_are_cut_off() -> None:
    nodes = [node("merge", *[f"p{n:02}" for n in range(40)]), *[node(f"p{n:02}", "root") for n in range(40)], node("root")]
    lines = drawn(*nodes, lanes_max=5)
    assert max(len(line) for line in lines) <= 2 * 5 + 2 + len("merge")
    assert lines[-1].endswith("root")


def test_parents_beyond_the_end_leave_their_lanes_open() -> None:
    assert drawn(node("c", "b", "a"))[-1] == "⋮ ⋮"


def test_nothing_is_drawn_of_nothing() -> None:
    assert drawn() == []


@given(st.integers(0, 10_000), st.integers(1, 60))
def test_every_edge_can_be_followed_to_its_parent(seed: int, count: int) -> None:
    nodes = history(seed, count)
    rows = list(lay_out(nodes))
    waiting: dict[int, set[str]] = {}
    for row in rows:
        assert set(row.passing) == set(waiting) - {row.column}
        arrived = waiting.pop(row.column, set())
        assert arrived <= {row.node.id}
        lanes: dict[int, set[str]] = {}
        edges = [link for link in row.links if link.is_edge]
        assert len(edges) == len(row.node.parents)
        for link in row.links:
            if not link.is_edge:
                lanes.setdefault(link.end, set()).update(waiting[link.start])
                assert link.end <= link.start
        for link, parent in zip(edges, row.node.parents, strict=True):
            lanes.setdefault(link.end, set()).add(parent)
        waiting = lanes
        assert all(len(parents) == 1 for parents in waiting.values())
    assert waiting == {}


def test_svg_is_well_formed_and_escapes_what_comes_from_the_log() -> None:
    text = "".join(draw_svg([node(HOSTILE, "a", payload=HOSTILE), node("a")], title=HOSTILE))
    tree = ElementTree.fromstring(text)
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert not [each for each in tree.iter() if each.tag.endswith("script")]


def test_svg_has_a_square_for_every_entry_and_a_ring_for_every_head() -> None:
    tree = ElementTree.fromstring("".join(draw_svg([node("b", "a", is_head=True), node("a")], title="t")))
    assert len([each for each in tree.iter() if each.get("rx")]) == 3


def test_authors_have_colours_and_themes_a_readable_contrast() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(one), luminance(other)))
        return (high + 0.05) / (low + 0.05)

    dids = [f"did:key:z6Mk{n:044}" for n in range(60)]
    for is_dark, theme in ((False, LIGHT), (True, DARK)):
        grounds = [theme[name] for name in ("ground", "surface", "raised")]
        inks = [theme[name] for name in ("ink", "muted", "accent", "good", "warn", "bad")]
        assert min(contrast(ink, ground) for ink in inks for ground in grounds) >= 4.5
        colours = {author_colour(did, is_dark=is_dark) for did in dids}
        assert len(colours) >= 15
        assert min(contrast(colour, ground) for colour in colours for ground in grounds) >= 2


@pytest.mark.parametrize("count", [0, 1, 200])
def test_svg_of_any_size_is_well_formed(count: int) -> None:
    ElementTree.fromstring("".join(draw_svg(history(5, count), title="t")))


def test_html_loads_nothing_and_runs_its_own_script_only() -> None:
    import base64
    import hashlib
    import re

    page = "".join(draw_html([node("b", "a", payload=HOSTILE), node("a")], title=HOSTILE))
    assert "default-src 'none'" in page
    scripts = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    assert len(scripts) == 1
    assert not re.search(r"^(import|export)\b", scripts[0], re.MULTILINE)
    assert base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode() in page
    assert not re.search(r"<[^>]*(src|href)=", page)
    assert "alert(1)</script>" not in page


def test_dot_quotes_what_comes_from_the_log() -> None:
    text = "\n".join(draw_dot([node('x"; evil [label="', "a", payload=HOSTILE), node("a")]))
    for line in text.splitlines()[3:-1]:
        unescaped = line.replace("\\\\", "").replace('\\"', "")
        assert unescaped.count('"') % 2 == 0
    assert "\x1b" not in text


def test_dot_draws_parents_that_were_left_out_as_points() -> None:
    assert sum('shape="point"' in line for line in draw_dot([node("b", "a", "z"), node("a", "z")])) == 1
