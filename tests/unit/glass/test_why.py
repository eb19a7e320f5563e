"""Why an entry is not there: each cause is told from the others, by what a server knows alone, and by what two know."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gossiplog.glass.fact import Fact
from gossiplog.glass.scene import PeerLink, Scene
from gossiplog.glass.why import Holding, WhyAnswer, explain, with_view_of_peer
from gossiplog.log.requests import SetAside

TOPIC, ME, PEER, OTHER, ENTRY = "glass.example.com", "me", "12D3KooWpeer", "12D3KooWother", "0" * 32
MESH = PeerLink(PEER, "mesh", "/meshsub/1.1.0", (TOPIC,), "full", is_pushing=True, score=1.0)
CLIENT, HUB = PeerLink(PEER, "client", is_pushing=True), PeerLink(PEER, "hub", is_pushing=True)
HERE, ABSENT = Holding(is_stored=True), Holding()


def scene(*links: PeerLink, **known: Any) -> Scene:
    return Scene(ME, TOPIC, {link.peer: link for link in links}, **known)


def fact(kind: str, **columns: Any) -> Fact:
    return Fact(TOPIC, "gossipsub", 0, 5.0, kind, ME, message=ENTRY, **columns)


def verdict(rule: str | None, type: str = "ignore") -> Fact:
    return fact("verdict", peer=PEER, type=type, rule=rule, reason="so it is")


ALONE = [
    ("here", HERE, [], scene()),
    ("here", HERE, [fact("deliver", peer=PEER, way="gossip")], scene(MESH)),
    ("void", Holding(is_stored=True, void="void: the node n was removed by r, which it has not seen"), [], scene(MESH)),
    ("set-aside", Holding(is_stored=True, set_aside=[SetAside(b"", "app", "KeyError", "no such thing", 3.0)]), [], scene(MESH)),
    ("void", Holding(void="access: alice alone may"), [], scene(MESH)),
    ("void", ABSENT, [verdict("access")], scene(MESH)),
    ("rejected", Holding(quarantined=("damaged", "no entry")), [], scene(MESH)),
    ("rejected", ABSENT, [verdict("signature", "reject")], scene(MESH)),
    ("rejected", ABSENT, [verdict("scheme")], scene(MESH)),
    ("rejected", Holding(is_rejected=True), [], scene(MESH)),
    ("waiting-for-parent", Holding(missing=["1" * 32, "2" * 32]), [], scene(MESH)),
    ("waiting-for-parent", ABSENT, [fact("waiting", peer=PEER)], scene(MESH)),
    ("refused-by-policy", ABSENT, [verdict("unwelcome")], scene(CLIENT)),
    ("refused-by-policy", ABSENT, [verdict("quota")], scene(CLIENT)),
    ("disk-full", ABSENT, [verdict("storage")], scene(MESH)),
    ("disk-full", ABSENT, [], scene(MESH, trouble="the disk is full")),
    ("partition", ABSENT, [], scene()),
    ("partition", ABSENT, [], scene(dials={"/ip4/127.0.0.1/tcp/1": "refused"})),
    ("banned-sender", ABSENT, [], scene(banned={PEER: "signature"})),
    ("never-heard", ABSENT, [], scene(MESH, banned={OTHER: "signature"})),
    ("heard-not-asked", ABSENT, [fact("ihave", peer=PEER)], scene(MESH)),
    ("syncing", ABSENT, [fact("ihave", peer=PEER)], scene(replace(MESH, is_syncing=True))),
    ("syncing", ABSENT, [], scene(MESH, replace(MESH, peer=OTHER, is_syncing=True))),
    ("not-grafted", ABSENT, [], scene(replace(MESH, peering="metadata"), replace(MESH, peer=OTHER, peering="none"))),
]
OF_PEER = [
    ("banned-sender", scene(banned={PEER: "signature"})),
    ("banned-sender", scene(MESH, banned={PEER: "signature"})),
    ("partition", scene(replace(MESH, peer=OTHER))),
    ("other-topic", scene(replace(MESH, topics=("other.example.com",), is_pushing=False))),
    ("other-topic", scene(replace(MESH, topics=(), is_pushing=False))),
    ("other-topic", scene(replace(HUB, is_pushing=False))),
    ("other-version", scene(replace(MESH, protocol=None, topics=()))),
    ("other-version", scene(replace(MESH, protocol=None, topics=(), is_pushing=False))),
    ("score-below-threshold", scene(replace(MESH, score=-90.0, is_heeded=False))),
    ("score-below-threshold", scene(replace(MESH, score=-3.0, peering="metadata"))),
    ("not-grafted", scene(replace(MESH, peering="metadata"))),
]


@pytest.mark.parametrize(("cause", "holding", "facts", "there"), ALONE)
def test_what_a_server_knows_of_an_entry_names_the_cause(cause: str, holding: Holding, facts: list[Fact], there: Scene) -> None:
    answer = explain(ENTRY, holding, facts, there)
    assert (answer.cause, answer.state) == (cause, "present" if holding.is_stored else "absent")
    assert answer.text
    assert answer.record()["way"] == [{"seq": 0, "time_s": 5.0, **step(one)} for one in facts]


def step(one: Fact) -> dict[str, Any]:
    names = ("kind", "peer", "type", "way", "rule", "reason")
    return {name: getattr(one, name) for name in names if getattr(one, name) is not None}


@pytest.mark.parametrize(("cause", "there"), OF_PEER)
def test_what_keeps_a_peer_from_bringing_an_entry_is_named_and_the_same_keeps_it_from_getting_one(cause: str, there: Scene) -> None:
    assert explain(ENTRY, ABSENT, [], there, PEER).cause == cause
    towards = explain(ENTRY, HERE, [], there, PEER)
    assert (towards.cause, towards.state) == (cause, "present")
    assert PEER in towards.text


@pytest.mark.parametrize(
    ("cause", "facts", "there"),
    [
        ("never-heard", [], scene(MESH)),
        ("never-heard", [], scene(CLIENT)),
        ("refused-by-policy", [], scene(MESH, refused={PEER: "signed, and logs take none that are (StrictNoSign)"})),
        ("refused-by-policy", [], scene(replace(CLIENT, rights=frozenset({"pull"})))),
        ("score-below-threshold", [], scene(replace(MESH, is_heeded=False), refused={PEER: "malformed"})),
        ("heard-not-asked", [fact("ihave", peer=PEER)], scene(replace(MESH, peering="metadata"))),
        ("not-grafted", [fact("ihave", peer=OTHER)], scene(replace(MESH, peering="metadata"))),
    ],
)
def test_what_a_connected_peer_did_is_told_apart(cause: str, facts: list[Fact], there: Scene) -> None:
    assert explain(ENTRY, ABSENT, facts, there, PEER).cause == cause


@pytest.mark.parametrize(
    ("cause", "facts", "there"),
    [
        ("here", [fact("send", peer=PEER, type="push")], scene(CLIENT)),
        ("here", [fact("ihave", peer=PEER)], scene(replace(CLIENT, dropped=1))),
        ("slow-reader", [fact("send", peer=PEER, type="push")], scene(replace(CLIENT, queued_bytes=3 * 2**20))),
        ("slow-reader", [], scene(replace(MESH, peering="metadata", dropped=1))),
        ("refused-by-policy", [], scene(replace(CLIENT, rights=frozenset({"push"})))),
    ],
)
def test_why_a_peer_may_lack_what_is_here_is_told_apart(cause: str, facts: list[Fact], there: Scene) -> None:
    assert explain(ENTRY, HERE, facts, there, PEER).cause == cause


def test_every_cause_is_tried() -> None:
    tried = {cause for cause, *_ in ALONE} | {cause for cause, _ in OF_PEER} | {"refused-by-policy", "slow-reader"}
    table = (Path(__file__).parents[3] / "docs" / "glass.md").read_text().partition("| cause | |")[2].partition("\n\n")[0]
    assert tried == {cause for row in table.splitlines() if row for cause in re.findall("`([a-z-]+)`", row.split("|")[1])}


def answer(cause: str, state: str = "absent") -> WhyAnswer:
    return WhyAnswer(ENTRY, ME, state, cause, f"{cause} it is")


@pytest.mark.parametrize(
    ("here", "there", "towards", "cause"),
    [
        (answer("never-heard"), answer("here", "present"), answer("slow-reader", "present"), "slow-reader"),
        (answer("not-grafted"), answer("here", "present"), answer("score-below-threshold", "present"), "score-below-threshold"),
        (answer("partition"), answer("here", "present"), answer("banned-sender", "present"), "banned-sender"),
        (answer("disk-full"), answer("here", "present"), answer("slow-reader", "present"), "disk-full"),
        (answer("never-heard"), answer("here", "present"), answer("here", "present"), "never-heard"),
        (answer("never-heard"), answer("here", "present"), None, "never-heard"),
        (answer("never-heard"), answer("rejected"), None, "never-heard"),
        (answer("never-heard"), None, None, "never-heard"),
        (answer("here", "present"), answer("never-heard"), None, "here"),
        (answer("here", "present"), answer("rejected"), answer("not-grafted"), "rejected"),
        (answer("here", "present"), answer("never-heard"), answer("banned-sender"), "banned-sender"),
        (answer("slow-reader", "present"), answer("never-heard"), answer("not-grafted"), "slow-reader"),
        (answer("partition", "present"), answer("here", "present"), answer("partition", "present"), "here"),
        (answer("here", "present"), answer("set-aside", "present"), None, "set-aside"),
        (answer("set-aside", "present"), answer("here", "present"), None, "set-aside"),
    ],
)
def test_what_the_peer_knows_completes_what_is_vague_alone(here: WhyAnswer, there: WhyAnswer, towards: WhyAnswer, cause: str) -> None:
    there, towards = (None if one is None else replace(one, node=OTHER) for one in (there, towards))
    assert with_view_of_peer(here, there, towards, (TOPIC, TOPIC)).cause == cause
    assert with_view_of_peer(here, there, towards, (TOPIC, "other.example.com")).cause == "other-topic"


def test_two_servers_with_one_key_are_named() -> None:
    answered = with_view_of_peer(answer("here", "present"), answer("never-heard"), answer("partition"), (TOPIC, TOPIC))
    assert (answered.cause, "the same key" in answered.text) == ("partition", True)
