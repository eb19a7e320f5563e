"""Mode A against the reference: Node as the hub of our client, and our hub with Node as its clients.

Source: docs/spec/sync.md, "Mode A".
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from interop_support import Reference, chain, portable_payloads, root_of, run_reference
from mounted_support import MOUNTED_TOPIC, serving_mounted
from network_support import eventually, fetch
from ports import free_port

import gossiplog
from gossiplog import GossipLog, Policy
from gossiplog.archive import entry_to_line, line_to_value
from gossiplog.codec import pcf
from gossiplog.entry import Ed25519Signer
from gossiplog.entry.signing import sign_entry
from gossiplog.net.ground.access import Access, hash_token, make_token
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.ground.protocol_ids import presence_protocol
from gossiplog.net.hub.client import connect, open_hub_connections, parse_url
from gossiplog.net.hub.exchange import exchange
from gossiplog.sync.rpc import HEADS_MAX

pytestmark = pytest.mark.slow

TOPIC = "hub.example.com"
WAIT_MS = 120_000
MANY = 10_000


@pytest.fixture
async def node(installed_reference: None) -> AsyncIterator[Reference]:
    async with run_reference("hub.mjs") as running:
        yield running


@asynccontextmanager
async def our_log(number: int = 7, location: str | Path = ":memory:") -> AsyncIterator[GossipLog]:
    async with gossiplog.open(location, topic=TOPIC, signer=Ed25519Signer.from_seed(bytes([number]) * 32)) as log:
        yield log


async def open_theirs(node: Reference, log: str, number: int, **options: Any) -> None:
    await node.ask("open", log=log, seed=bytes([number]).hex() * 32, **{"topic": TOPIC, **options})


async def append_theirs(node: Reference, log: str, payloads: list[Any]) -> None:
    await node.ask("append", log=log, payloads=[pcf.encode(payload).hex() for payload in payloads])


async def converge(ours: GossipLog, node: Reference, *names: str, count: int) -> None:
    """Wait until everybody has so many entries and the same root; compare count, heads and clock too."""

    async def has_all() -> bool:
        return await ours.count() >= count

    with trio.fail_after(WAIT_MS / 1000):
        while not await has_all():
            await trio.sleep(0.05)
    level, digest = await root_of(ours)
    for name in names:
        assert await node.ask("until", log=name, hash=digest.hex(), ms=WAIT_MS) == digest.hex(), name
        state = await node.ask("state", log=name)
        assert state["count"] == await ours.count() == count
        assert sorted(state["heads"]) == await ours.heads()
        assert state["root"] == {"level": level, "hash": digest.hex()}
        assert state["faults"] == []


async def until_pulled(node: Reference, name: str, digest: bytes) -> None:
    """Wait as long as the reference gets on, which pulls some hundred entries a second on a free core."""
    had = -1
    while await node.ask("until", log=name, hash=digest.hex(), ms=30_000) != digest.hex():
        has = (await node.ask("state", log=name))["count"]
        assert has > had, f"{name} stands still at {has} entries"
        had = has


async def test_presence_beside_the_reference_breaks_nothing(node: Reference) -> None:
    async with our_log() as hub_log, hub_log.listen("127.0.0.1:0") as hub, our_log(8) as ours, ours.connect(hub.urls[0]):
        await open_theirs(node, "a", 1)
        await node.ask("connect", log="a", url=hub.urls[0])
        await ours.presence.set({"cursor": 1}, ttl_s=60)
        await eventually(lambda: hub_log.presence.states == ours.presence.states != {})
        await append_theirs(node, "a", [1, 2, 3])
        await converge(ours, node, "a", count=3)
        (service,) = hub.services.values()
        protocol = presence_protocol(TOPIC)
        assert [protocol in link.connection.traffic for peer in service.peers.values() for link in peer.links].count(True) == 1
    # A hub of the reference declines the stream.
    await open_theirs(node, "hub", 2)
    port = free_port()
    await node.ask("listen", log="hub", port=port)
    async with our_log(9) as ours, ours.connect(f"ws://127.0.0.1:{port}") as link:
        await ours.presence.set({"cursor": 1}, ttl_s=60)
        await link.wait_connected()
        await append_theirs(node, "hub", [4])
        await converge(ours, node, "hub", count=1)
        await ours.append("5")
        await converge(ours, node, "hub", count=2)
        assert link.attempts == 1


async def test_logs_that_would_share_a_connection_have_their_own_with_a_hub_of_the_reference(node: Reference) -> None:
    """It takes any path for that of its log. So the first connection serves nobody, and the second log must not depend on it."""
    await open_theirs(node, "hub", 2)
    port = free_port()
    await node.ask("listen", log="hub", port=port)
    async with (
        open_hub_connections() as connections,
        gossiplog.open(":memory:", topic="other.example.com") as other,
        connect(other, f"ws://127.0.0.1:{port}/other.example.com", connections=connections) as first,
        our_log(9) as ours,
    ):
        await first.wait_connected()
        async with connect(ours, f"ws://127.0.0.1:{port}/{TOPIC}", connections=connections) as link:
            await append_theirs(node, "hub", [1, 2, 3])
            await converge(ours, node, "hub", count=3)
            await ours.append("4")
            await converge(ours, node, "hub", count=4)
            assert link.attempts == first.attempts == 1 and first.is_connected


async def test_our_hub_brings_reference_clients_together(node: Reference) -> None:
    async with our_log() as ours:
        await open_theirs(node, "a", 1)
        await open_theirs(node, "b", 2)
        for name in ("a", "b"):
            await append_theirs(node, name, [{"apart": name, "n": n} for n in range(60)])
        await ours.append_many({"apart": "hub", "n": n} for n in range(60))
        async with ours.listen("127.0.0.1:0") as hub:
            for name in ("a", "b"):
                await node.ask("connect", log=name, url=hub.urls[0])
            await converge(ours, node, "a", "b", count=180)
            # All append at once while they are connected.
            for name in ("a", "b"):
                await node.ask("appendSlowly", log=name, count=40, ms=5)
            for n in range(40):
                await ours.append({"together": "hub", "n": n})
            for name in ("a", "b"):
                await node.ask("appended", log=name)
            await converge(ours, node, "a", "b", count=300)


async def test_an_applications_own_server_brings_reference_clients_together(node: Reference, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with serving_mounted(path) as address:
        async with gossiplog.open(":memory:", topic=MOUNTED_TOPIC, signer=Ed25519Signer.from_seed(bytes([7]) * 32)) as ours:
            url = f"ws://{address}/log/{MOUNTED_TOPIC}"
            for number, name in enumerate("ab"):
                await open_theirs(node, name, number, topic=MOUNTED_TOPIC)
                await append_theirs(node, name, [{"apart": name, "n": n} for n in range(60)])
                await node.ask("connect", log=name, url=url)
            async with ours.connect(url):
                await converge(ours, node, "a", "b", count=120)
                await node.ask("appendSlowly", log="a", count=20, ms=5)
                await node.ask("appended", log="a")
                await converge(ours, node, "a", "b", count=140)


async def test_append_of_a_reference_client_is_pushed_to_another_through_our_hub(node: Reference) -> None:
    async with our_log() as ours, ours.listen("127.0.0.1:0") as hub:
        await open_theirs(node, "a", 1)
        await open_theirs(node, "b", 2)
        for name in ("a", "b"):
            await node.ask("connect", log=name, url=hub.urls[0])
        await eventually(lambda: len(hub.links()) == 2 and all(link.is_pushing for link in hub.links()))
        await append_theirs(node, "a", [{"n": n} for n in range(20)])
        await converge(ours, node, "a", "b", count=20)
        received = (await node.ask("state", log="b"))["received"]
        assert received.get("push", 0) == 20, received


async def test_reference_hub_and_our_client_give_each_other_everything(node: Reference) -> None:
    port = free_port()
    async with our_log() as ours:
        await open_theirs(node, "hub", 1)
        await append_theirs(node, "hub", [{"apart": "hub", "n": n} for n in range(60)])
        await ours.append_many({"apart": "us", "n": n} for n in range(60))
        await node.ask("listen", log="hub", port=port)
        async with ours.connect(f"ws://127.0.0.1:{port}"):
            await converge(ours, node, "hub", count=120)
            await node.ask("appendSlowly", log="hub", count=40, ms=5)
            for n in range(40):
                await ours.append({"together": "us", "n": n})
            await node.ask("appended", log="hub")
            await converge(ours, node, "hub", count=200)
        # And again after having been apart.
        await append_theirs(node, "hub", [{"later": n} for n in range(10)])
        await ours.append_many({"later": n} for n in range(10))
        async with ours.connect(f"ws://127.0.0.1:{port}"):
            await converge(ours, node, "hub", count=220)


async def test_entries_of_every_kind_go_over_both_ways(node: Reference) -> None:
    payloads = portable_payloads()
    entries = chain(payloads, topic=TOPIC)
    async with our_log() as ours:
        await open_theirs(node, "a", 9)
        assert all(verdict.is_new for verdict in await ours.insert_many([entry.value for entry in entries]))
        await node.ask("append", log="a", payloads=[payload.hex() for payload in payloads])
        async with ours.listen("127.0.0.1:0") as hub:
            await node.ask("connect", log="a", url=hub.urls[0])
            await converge(ours, node, "a", count=len(entries) + len(payloads))
        assert [(entry.id, entry.value) async for entry in ours.iterate()] == [
            (entry["id"], bytes.fromhex(entry["value"])) for entry in await node.ask("export", log="a")
        ]


async def test_ten_thousand_entries_are_pulled_from_the_reference_through_its_aborts(node: Reference, tmp_path: Path) -> None:
    port = free_port()
    async with our_log(8) as source, our_log(9, tmp_path / "ours.db") as ours:
        await source.append_many({"n": n, "text": "x" * 40} for n in range(MANY))
        await open_theirs(node, "hub", 1)
        await node.ask("listen", log="hub", port=port)
        # Both ways: first the reference pulls, in sessions of ours that end after their share, then we do.
        async with source.connect(f"ws://127.0.0.1:{port}"):
            root = await source.root()
            await until_pulled(node, "hub", root.hash)
        done = await exchange(ours, parse_url(f"ws://127.0.0.1:{port}"))
        assert done.pulled is not None
        assert done.pulled.entries == MANY
        assert done.is_equal
        assert await ours.root() == root


async def test_more_than_a_frame_below_one_node_arrives_in_parts(node: Reference, caplog: pytest.LogCaptureFixture) -> None:
    """The reference asks for all values of a node at once, which may be more than any answer may have."""
    port = free_port()
    async with our_log() as ours:
        await ours.append_many({"n": n, "text": "x" * 64_700} for n in range(400))
        _, digest = await root_of(ours)
        async with ours.listen("127.0.0.1:0") as hub:
            await open_theirs(node, "client", 1)
            await node.ask("connect", log="client", url=hub.urls[0])
            await until_pulled(node, "client", digest)
            # A session is counted once it is over, which may be after the client has inserted all that it brought.
            await eventually(lambda: hub.links()[0].counts["syncs served"] > 1)
        # As a hub it pulls in the same way.
        await open_theirs(node, "hub", 2)
        await node.ask("listen", log="hub", port=port)
        done = await exchange(ours, parse_url(f"ws://127.0.0.1:{port}"))
        assert done.is_taken
        assert done.is_equal
        assert not done.unserved
        assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []


async def test_one_exchange_gives_the_reference_what_it_lacks(node: Reference) -> None:
    port = free_port()
    async with our_log() as ours:
        await ours.append_many(range(50))
        await open_theirs(node, "hub", 1)
        await append_theirs(node, "hub", [{"n": n} for n in range(50)])
        await node.ask("listen", log="hub", port=port)
        done = await exchange(ours, parse_url(f"ws://127.0.0.1:{port}"))
        assert (done.pushed, done.is_taken, done.is_equal) == (50, True, True)
        await converge(ours, node, "hub", count=100)


async def test_http_api_answers_as_the_references(node: Reference) -> None:
    port = free_port()
    async with our_log() as ours:
        await open_theirs(node, "hub", 1)
        await append_theirs(node, "hub", [{"n": n, "raw": b"\x01"} for n in range(10)])
        await node.ask("listen", log="hub", port=port)
        await exchange(ours, parse_url(f"ws://127.0.0.1:{port}"))
        async with ours.listen("127.0.0.1:0") as hub:

            class Theirs:
                port = 0

            theirs: Any = Theirs()
            theirs.port = port
            ids = [entry.id async for entry in ours.iterate()]
            paths = [
                "/api/clock",
                "/api/messages",
                f"/api/messages?gt={ids[2]}&lte={ids[7]}&order=desc&limit=3",
                f"/api/messages?gte={ids[2]}&lt={ids[7]}",
                "/api/messages/count",
                f"/api/messages/count?gte={ids[3]}",
                f"/api/messages/{ids[4]}",
            ]
            for path in paths:
                us, them = await fetch(hub, path), await fetch(theirs, path)
                assert us.status == them.status == 200
                assert us.json == them.json, path
                assert us.headers["content-type"].split(";")[0] == them.headers["content-type"].split(";")[0]
            missing = f"/api/messages/{'0' * 32}"
            assert (await fetch(hub, missing)).status == (await fetch(theirs, missing)).status == 404
            entry = await ours.append({"posted": True})
            request: dict[str, Any] = {"method": "POST", "headers": {"content-type": "application/json"}, "body": entry_to_line(entry)}
            posted, again = await fetch(theirs, "/api/messages", **request), await fetch(hub, "/api/messages", **request)
            assert (posted.status, posted.headers["location"]) == (again.status, again.headers["location"])
            assert line_to_value((await fetch(theirs, f"/api/messages/{entry.id}")).body)[0] == entry.value


async def test_reference_client_comes_back_after_our_hub_was_away(node: Reference) -> None:
    async with our_log() as ours:
        await open_theirs(node, "a", 1)
        for count in (1, 2):
            async with ours.listen("127.0.0.1:0") as hub:
                url = hub.urls[0]
                await node.ask("connect", log="a", url=url)
                await append_theirs(node, "a", [count])
                await converge(ours, node, "a", count=2 * count - 1)
            await ours.append({"alone": count})
        assert await ours.count() == 4


async def test_reference_proves_its_did_and_brings_the_token_that_it_gets_for_it(node: Reference) -> None:
    seed, other = bytes([1]).hex() * 32, bytes([2]).hex() * 32
    did, stranger = (Ed25519Signer.from_seed(bytes.fromhex(each)).did for each in (seed, other))
    rules = {"default": {"dids": {did: ["connect", "pull", "push"]}}}
    async with our_log() as ours, ours.listen("127.0.0.1:0", limits=HubLimits(access=Access.parse(rules))) as hub:
        await open_theirs(node, "a", 1)
        await append_theirs(node, "a", [{"n": n} for n in range(20)])
        url = hub.urls[0]
        assert "is not let in here" in await node.ask_in_vain("prove", url=url, did=stranger, seed=other)
        assert "does not verify" in await node.ask_in_vain("prove", url=url, did=did, seed=other)
        assert "Unexpected server response: 401" in await node.ask_in_vain("connect", log="a", url=url)
        token = await node.ask("prove", url=url, did=did, seed=seed)
        await node.ask("connect", log="a", url=f"{url}?token={token}")
        with trio.fail_after(WAIT_MS / 1000):
            while await ours.count() < 20:
                await trio.sleep(0.05)


async def test_reference_brings_its_token_in_the_url_and_is_told_when_it_is_none(node: Reference) -> None:
    token = make_token()
    rules = {"tokens": {"theirs": hash_token(token)}, "default": {"tokens": {"theirs": ["connect", "pull", "push"]}}}
    async with our_log() as ours, ours.listen("127.0.0.1:0", limits=HubLimits(access=Access.parse(rules))) as hub:
        await open_theirs(node, "a", 1)
        await append_theirs(node, "a", [{"apart": "a", "n": n} for n in range(20)])
        await ours.append_many({"apart": "hub", "n": n} for n in range(20))
        for query in ("", "?token=", f"?token={make_token()}"):
            assert "Unexpected server response: 401" in await node.ask_in_vain("connect", log="a", url=hub.urls[0] + query)
        assert (hub.links(), await ours.count()) == ([], 20)
        assert (await node.ask("state", log="a"))["count"] == 20
        await node.ask("connect", log="a", url=f"{hub.urls[0]}?token={token}")
        await eventually(lambda: len(hub.links()) == 1 and hub.links()[0].is_pushing)
        await append_theirs(node, "a", [{"together": "a"}])
        await ours.append({"together": "hub"})
        with trio.fail_after(WAIT_MS / 1000):
            while await ours.count() < 42:
                await trio.sleep(0.05)
        root = (await ours.root()).hash.hex()
        assert await node.ask("until", log="a", hash=root, ms=WAIT_MS) == root


async def test_reference_clients_do_in_a_log_with_members_what_their_did_may(node: Reference) -> None:
    """The writer pulls and pushes, the reader pulls, what neither may write is refused, and who was removed gets nothing more."""
    seeds = {name: bytes([number]) * 32 for number, name in enumerate(("founder", "writer", "reader", "stranger"), 60)}
    signers = {name: Ed25519Signer.from_seed(seed) for name, seed in seeds.items()}
    policy = Policy([signers["founder"].did])
    closed = HubLimits(access=Access.parse({"default": {"anonymous": []}}))
    async with (
        gossiplog.open(":memory:", topic="team.example.com", policy=policy, signer=signers["founder"]) as ours,
        ours.listen("127.0.0.1:0", limits=closed) as hub,
    ):
        url = hub.urls[0]
        nodes = {role: (await ours.grant(signers[name].did, role)).id for name, role in (("writer", "write"), ("reader", "read"))}
        with pytest.raises(AssertionError, match="is not let in here"):
            await node.ask("prove", url=url, did=signers["stranger"].did, seed=seeds["stranger"].hex())
        for name in ("writer", "reader"):
            await node.ask("open", log=name, topic=ours.topic, seed=seeds[name].hex())
            token = await node.ask("prove", url=url, did=signers[name].did, seed=seeds[name].hex())
            await node.ask("connect", log=name, url=f"{url}?token={token}")
        await converge(ours, node, "writer", "reader", count=3)
        await append_theirs(node, "writer", ["by the writer"])
        await converge(ours, node, "writer", "reader", count=4)
        assert (await ours.standing((await ours.heads())[0])).role == "write"
        # The reference does not know the rules: what it signs for a reader stays where it is.
        await append_theirs(node, "reader", ["by the reader"])
        last = await ours.append("by the founder")
        await converge(ours, node, "writer", count=5)
        await ours.revoke(nodes["write"])
        await eventually(lambda: len(hub.links()) == 1)
        await ours.append("after the removal")
        state = await node.ask("state", log="writer")
        assert last.id in state["heads"] or state["count"] == 6, "at most the removal itself"
        assert await ours.count() == 7


async def test_removed_and_strange_reference_clients_at_an_open_hub_change_nothing_and_are_blamed_for_nothing(node: Reference) -> None:
    """The reference knows no members: it pulls all, and pushes what it likes. That is void from the removed, and refused from strangers."""
    seeds = {name: bytes([number]) * 32 for number, name in enumerate(("founder", "removed", "stranger"), 70)}
    signers = {name: Ed25519Signer.from_seed(seed) for name, seed in seeds.items()}
    policy = Policy((signers["founder"].did,))
    async with gossiplog.open(":memory:", topic="team.example.com", policy=policy, signer=signers["founder"]) as ours:
        place = await ours.grant(signers["removed"].did)
        before = await ours.append("before")
        for name in ("removed", "stranger"):
            await node.ask("open", log=name, topic=ours.topic, seed=seeds[name].hex())
        async with ours.listen("127.0.0.1:0") as hub:
            for name in ("removed", "stranger"):
                await node.ask("connect", log=name, url=hub.urls[0])
            await converge(ours, node, "removed", "stranger", count=3)
            await append_theirs(node, "removed", ["while a member"])
            await converge(ours, node, "removed", "stranger", count=4)
        # Both write while they are away; one of them has been removed meanwhile.
        removal = await ours.revoke(place.id)
        for name in ("removed", "stranger"):
            await append_theirs(node, name, [f"{name} {n}" for n in range(3)])
        async with ours.listen("127.0.0.1:0") as hub:
            for name in ("removed", "stranger"):
                await node.ask("connect", log=name, url=hub.urls[0])
            await eventually(lambda: len(hub.links()) == 2)
            with trio.fail_after(WAIT_MS / 1000):
                while await ours.count() < 8:
                    await trio.sleep(0.05)
            # Once it has heard of the removal, what it writes is refused. The stranger's never was anything else.
            with trio.fail_after(WAIT_MS / 1000):
                while (await node.ask("state", log="removed"))["count"] < 8:
                    await trio.sleep(0.05)
            for name in ("removed", "stranger"):
                await append_theirs(node, name, ["late"])
            last = await ours.append("after all that")
            with trio.fail_after(WAIT_MS / 1000):
                for name in ("removed", "stranger"):
                    while last.id not in [entry["id"] for entry in await node.ask("export", log=name)]:
                        await trio.sleep(0.05)
            assert len(hub.links()) == 2, "nobody is blamed"
            entries = {entry.id: await ours.standing(entry.id) async for entry in ours.iterate()}
            assert len(entries) == 9
            void = {id for id, standing in entries.items() if not standing.counts}
            assert len(void) == 3 and all(entries[id].revoked_by == (removal.id,) for id in void)
            assert {(await ours.get(id)).payload for id in void} == {f"removed {n}" for n in range(3)}
            assert entries[before.id].counts
            assert signers["stranger"].did not in [(await ours.get(id)).author for id in entries]


async def test_an_update_of_more_heads_than_ours_have_is_no_offence(node: Reference) -> None:
    """The reference names all of its heads."""
    number = HEADS_MAX + 100
    author, port = Ed25519Signer.from_seed(b"\5" * 32), free_port()
    async with our_log() as log, log.listen("127.0.0.1:0") as hub, our_log(8) as client:
        await log.insert_many([sign_entry(author, TOPIC, 1, [], pcf.encode(n)).value for n in range(number)])
        await open_theirs(node, "r", 1)
        await node.ask("connect", log="r", url=hub.urls[0])
        await converge(log, node, "r", count=number)
        await node.ask("listen", log="r", port=port)
        async with connect(client, f"ws://127.0.0.1:{port}") as link:
            await converge(client, node, "r", count=number)
            assert link.attempts == 1
