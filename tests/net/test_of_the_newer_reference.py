"""What 0.16.1 of the reference keeps and serves, and we do not take: nobody is blamed for it, and it is told once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pytest
from hostile_client import muxed, push
from mesh_support import TCP, a_peer, eventually
from network_support import fetch, memory_log, signer, until_count, until_equal, until_has
from snapshot_support import SCHEMES, SNAPSHOT, SNAPSHOT_TOPIC

from gossiplog import GossipLog
from gossiplog.codec import pcf
from gossiplog.entry import Entry, Outcome, Verdict, decode_id, sign_entry, validate
from gossiplog.net.hub.server import listen
from gossiplog.web import make_http

VECTORS = Path(__file__).parents[1] / "vectors"
FORMS_TOPIC = "interop.test"


def unserved_forms() -> list[Entry]:
    """Entries that 0.16.1 serves and 0.13.14 cannot."""
    cases = [case for name in ("envelope", "forms") for case in json.loads((VECTORS / f"ref-0.16.1-{name}.json").read_text())["cases"]]
    values = [
        (case["js0161"]["id"], bytes.fromhex(case["value"]))
        for case in cases
        if (case["js0161"] or {}).get("served") == "same" and (case["js01314"] or {}).get("served") != "same"
    ]
    portable = [(id, value) for id, value in values if validate(value, topic=FORMS_TOPIC).rule == "portable"]
    return [Entry(decode_id(id), value) for id, value in portable]


def reasons(caplog: pytest.LogCaptureFixture, rule: str) -> list[str]:
    said = [vars(record)["fields"] for record in caplog.records if vars(record).get("event") == "entry not taken"]
    return [fields["reason"] for fields in said if fields["rule"] == rule]


async def test_who_passes_on_forms_of_the_newer_reference_is_not_banned() -> None:
    forms = unserved_forms()
    assert len(forms) > 5
    async with memory_log(1, FORMS_TOPIC) as log, log.listen("127.0.0.1:0") as hub, muxed(hub) as connection:
        stream = await connection.open_stream([f"/canvas/v1/{FORMS_TOPIC}/push"])
        await push(stream, [*forms, *forms])
        good = sign_entry(signer(2), FORMS_TOPIC, 1, [], pcf.encode("good"))
        await push(stream, [good])
        await until_has(log, [good])
        assert await log.count() == 1
        assert (await fetch(hub, "/api/peers")).json["bans"] == []


async def test_a_snapshot_is_left_alone_and_told_once_with_what_to_switch_on(caplog: pytest.LogCaptureFixture) -> None:
    children = [sign_entry(signer(2), SNAPSHOT_TOPIC, 1, [SNAPSHOT.key], pcf.encode(number)) for number in range(8)]
    async with memory_log(1, SNAPSHOT_TOPIC) as log, log.listen("127.0.0.1:0") as hub, muxed(hub) as connection:
        stream = await connection.open_stream([f"/canvas/v1/{SNAPSHOT_TOPIC}/push"])
        caplog.set_level("INFO", "gossiplog")
        for _ in range(4):
            await push(stream, [SNAPSHOT, *children])
        good = sign_entry(signer(2), SNAPSHOT_TOPIC, 1, [], pcf.encode("good"))
        await push(stream, [good])
        await until_has(log, [good])
        assert await log.count() == 1
        (reason,) = reasons(caplog, "scheme")
        assert "GOSSIPLOG_SCHEMES=canvas-snapshot" in reason


async def test_logs_with_a_snapshot_meet_at_a_hub_and_by_http() -> None:
    async with (
        memory_log(1, SNAPSHOT_TOPIC, schemes=SCHEMES) as one,
        memory_log(2, SNAPSHOT_TOPIC, schemes=SCHEMES) as two,
        memory_log(3, SNAPSHOT_TOPIC, schemes=SCHEMES) as three,
        one.listen("127.0.0.1:0") as hub,
    ):
        await two.insert(SNAPSHOT.value)
        child = await two.append("child")
        async with two.connect(hub.urls[0]), three.connect(hub.urls[0]):
            await until_count(three, 2)
            assert (await fetch(hub, f"/api/ancestors/{child.id}")).json == []
            grandchild = await three.append("grandchild")
            await until_has(two, [grandchild])
        await until_equal(one, two, three)
        shown = (await fetch(hub, f"/api/messages/{SNAPSHOT.id}")).json
        assert (shown["message"]["clock"], shown["signature"]["publicKey"]) == (0, "")
        assert [each["id"] for each in (await fetch(hub, "/api/messages")).json] == [SNAPSHOT.id, child.id, grandchild.id]


async def test_topics_with_colons_have_paths_of_their_own() -> None:
    topics = ["app.example.com:v1", "app.example.com:v1:x", "app.example.com"]
    async with (
        memory_log(1, topics[0]) as first,
        memory_log(2, topics[1]) as second,
        memory_log(3, topics[2]) as third,
        listen([first, second, third], "127.0.0.1:0", make_http=make_http) as hub,
    ):
        logs = dict(zip(topics, (first, second, third), strict=True))
        for topic, log in logs.items():
            entry = await log.append(topic)
            for path in (topic, quote(topic, safe="")):
                assert (await fetch(hub, f"/{path}/api/clock")).json == {"clock": 2, "parents": [entry.id]}
            async with memory_log(4, topic) as client, client.connect(f"ws://127.0.0.1:{hub.port}/{topic}"):
                await until_has(client, [entry])
                await until_has(log, [await client.append("back")])


def keep_unserved_forms(log: GossipLog) -> list[Entry]:
    """Have a log of ours keep and serve these forms, as 0.16.1 does; return them."""
    forms = unserved_forms()
    for form in forms:
        # It stands at the beginning; nothing else of its envelope is read when it is stored.
        form._envelope = sign_entry(signer(2), FORMS_TOPIC, 1, [], pcf.encode("any")).envelope
    validate_all = log._validate

    def keep(values: Sequence[bytes]) -> list[Verdict]:
        found = {entry.value: entry for entry in forms}
        return [
            Verdict(Outcome.ACCEPT, entry=found[value]) if value in found else verdict
            for value, verdict in zip(values, validate_all(values), strict=True)
        ]

    log._validate = keep  # type: ignore[method-assign]
    return forms


async def test_forms_of_the_newer_reference_ban_nobody_in_a_mesh() -> None:
    async with memory_log(1, FORMS_TOPIC) as newer, memory_log(2, FORMS_TOPIC) as log, memory_log(3, FORMS_TOPIC) as third:
        forms = keep_unserved_forms(newer)
        async with (
            a_peer(log=log, listen=(TCP,)) as mesh,
            a_peer(*mesh.host.announced, log=newer, listen=(TCP,)),
            a_peer(*mesh.host.announced, log=third, listen=(TCP,)) as other,
        ):
            # Gossiped one after the other, and none of them more than once.
            await until_has(log, [await newer.append("before")])
            verdicts = [verdict for entry in forms for verdict in await newer.insert_many([entry.value])]
            assert [verdict.is_new for verdict in verdicts] == [True] * len(forms)
            alone = sign_entry(signer(9), FORMS_TOPIC, 1, [], pcf.encode("alone"))
            await newer.insert(alone.value)
            await until_has(log, [alone])
            await until_has(third, [alone])
            await until_has(newer, [await third.append("after")])
            # They were heard of by gossip, more of them than offences make a ban.
            await eventually(lambda: mesh.service.figures.verdicts["gossip", "ignore", "portable"] >= 5)
            for each in (mesh, other):
                state = each.service.state()
                assert (state.offences, state.sizes["banned"]) == ({}, 0)
                assert all(peer.score is None or peer.score.total >= 0 for peer in state.router.peers)
            assert await log.count() == 3


async def test_forms_of_the_newer_reference_ban_nobody_in_syncs() -> None:
    async with memory_log(1, FORMS_TOPIC) as newer, memory_log(2, FORMS_TOPIC) as log, memory_log(3, FORMS_TOPIC) as client:
        forms = keep_unserved_forms(newer)
        await newer.insert_many([entry.value for entry in forms])
        good = sign_entry(signer(9), FORMS_TOPIC, 1, [], pcf.encode("good"))
        await newer.insert(good.value)
        # Pulled by a client from its hub, and by a hub from its client.
        async with newer.listen("127.0.0.1:0") as hub, client.connect(hub.urls[0]):
            await until_has(client, [good])
            await until_has(newer, [await client.append("from a client")])
            assert (await fetch(hub, "/api/peers")).json["bans"] == []
        async with log.listen("127.0.0.1:0") as hub, newer.connect(hub.urls[0]):
            await until_has(log, [good])
            await until_has(newer, [await log.append("from a hub")])
            assert (await fetch(hub, "/api/peers")).json["bans"] == []
        # By itself, and again: what is beyond us is counted and is nobody's fault.
        for _ in range(3):
            result = await client.sync(newer)
            assert (result.unsupported > 0, result.rejected, result.entries >= 0) == (True, 0, True)
        assert await client.count() == 3
