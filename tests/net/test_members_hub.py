"""A removed member against a hub, a friend and a file: what it writes without knowing is void everywhere, and nobody is blamed."""

from pathlib import Path

import pytest
import trio
import trio.testing
from access_support import DIDS, SIGNERS
from mesh_support import TCP, a_peer
from network_support import PATIENCE_S, eventually, fetch, until_has

import gossiplog
from gossiplog import Application, Policy
from gossiplog.access import Grant, Revoke, encode_said
from gossiplog.archive.jsonl import entry_to_line, line_to_value
from gossiplog.codec import pcf
from gossiplog.entry.message_id import decode_id
from gossiplog.entry.rules import next_clock
from gossiplog.entry.signing import sign_entry
from gossiplog.errors import CannotConnect, NotAuthorised
from gossiplog.net.ground.access import Access, Caller, Rights
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.ground.proof import Refusal
from gossiplog.net.hub.client import fetch_token, parse_url
from gossiplog.net.hub.exchange import exchange

JSON = {"content-type": "application/json"}


def reset(tx) -> None:
    tx.execute("DROP TABLE IF EXISTS said")
    tx.execute("CREATE TABLE said (text TEXT)")


def apply(entries, tx) -> None:
    for entry in entries:
        tx.execute("INSERT INTO said VALUES ($1)", (entry.payload,))


SAID = Application("said", 1, apply, reset)


async def said(log) -> list[str]:
    return [text for (text,) in await log.query("SELECT text FROM said ORDER BY text")]


async def test_what_a_removed_member_does_takes_no_effect_anywhere(tmp_path: Path) -> None:
    policy = Policy([DIDS[0]])
    async with (
        gossiplog.open(":memory:", topic="team.example.com", policy=policy, signer=SIGNERS[0], app=SAID) as log,
        log.listen("127.0.0.1:0") as hub,
        gossiplog.open(":memory:", topic=log.topic, signer=SIGNERS[1], app=SAID) as removed,
        gossiplog.open(tmp_path / "friend.db", topic=log.topic, signer=SIGNERS[2], app=SAID) as friend,
    ):
        node = (await log.grant(DIDS[1], "admin")).id
        await log.grant(DIDS[2])
        await log.append("before", signer=SIGNERS[1])
        await removed.sync(log)
        await friend.sync(log)
        # Backdated: written by a replica that has not heard, data, a second key of its own, and what that one writes.
        late = await removed.append("late")
        await removed.grant(DIDS[3], "admin")
        await removed.append("by the second key", signer=SIGNERS[3])
        revocation = await log.revoke(node)
        # A friend who has not heard builds on it, which is the friend's own and counts.
        await friend.sync(removed)
        await friend.append("by a friend")
        async with removed.connect(hub.urls[0]), friend.connect(hub.urls[0]):
            await until_has(log, [late])
            await until_has(removed, [revocation])
            for replica in (removed, friend):
                with trio.fail_after(PATIENCE_S):
                    while await replica.root() != await log.root():
                        await trio.sleep(0.01)
            with pytest.raises(NotAuthorised, match=revocation.id):
                await removed.append("too late")
            # A program that does not care signs it all the same.
            heads = [decode_id(head) for head in await log.heads()]
            forged = [
                sign_entry(SIGNERS[1], log.topic, next_clock(heads), heads, pcf.encode(payload))
                for payload in ("forged", encode_said(Grant(DIDS[4], "admin", node)), {"gossiplog.access": {"admit": [], "under": node}})
            ]
            assert {(await replica.insert(entry.value)).rule for entry in forged for replica in (log, friend)} == {"access"}
            assert len(hub.links()) == 2, "nobody is blamed"
            answer = (await fetch(hub, f"/api/why?entry={late.id}")).json
            assert (answer["state"], answer["cause"]) == ("present", "void")
            assert revocation.id in answer["text"]
        for replica in (log, removed, friend):
            assert await said(replica) == ["before", "by a friend"]
            assert not (await replica.standing(late.id)).counts
            assert await replica.root() == await log.root()


async def test_a_role_is_the_right_of_a_connection(tmp_path: Path) -> None:
    """Reader pulls, writer pushes; who is removed, or nobody, gets nothing: by WebSocket, sync, POST and a stream of events."""
    reader, writer, nobody = SIGNERS[1], SIGNERS[2], SIGNERS[3]
    closed = HubLimits(access=Access.parse({"default": {"anonymous": []}}))
    async with (
        gossiplog.open(":memory:", topic="team.example.com", policy=Policy([DIDS[0]]), signer=SIGNERS[0]) as log,
        log.listen("127.0.0.1:0", limits=closed) as hub,
        gossiplog.open(":memory:", topic=log.topic, signer=reader) as reads,
        gossiplog.open(":memory:", topic=log.topic, signer=writer) as writes,
        gossiplog.open(":memory:", topic=log.topic, signer=nobody) as stranger,
        gossiplog.open(":memory:", topic=log.topic, signer=SIGNERS[0]) as founder,
    ):
        url = hub.urls[0]
        nodes = [(await log.grant(reader.did, "read")).id, (await log.grant(writer.did, "write")).id]
        await founder.sync(log)

        async def token_of(identity: gossiplog.Ed25519Signer) -> str:
            token = await fetch_token(parse_url(url, identity=identity))
            assert token is not None
            return token

        for who in (None, nobody):
            async with stranger.connect(url, identity=who) as link:
                await eventually(lambda link=link: link.error)
                assert ("is not let in here" if who else "takes a token") in (link.error or "")
        with pytest.raises(CannotConnect, match="is not let in here"):
            await exchange(stranger, parse_url(url, identity=nobody))
        assert await stranger.count() == 0
        async with (
            reads.connect(url, identity=reader) as reading,
            writes.connect(url, identity=writer),
            founder.connect(url, identity=SIGNERS[0]),
        ):
            await until_has(reads, [await log.append("one")])
            await until_has(writes, [await log.append("two")])
            # What a friend gave to the reader is not the reader's to bring.
            by_a_friend = await founder.append("three", signer=SIGNERS[0])
            await until_has(log, [by_a_friend])
            await until_has(log, [await writes.append("by the writer")])
            tokens = {who: {"authorization": f"Bearer {await token_of(who)}"} for who in (reader, writer)}
            entry = sign_entry(writer, log.topic, next_clock([]), [], pcf.encode("x"))
            for who, status in ((reader, 403), (writer, 400)):
                posted = await fetch(hub, "/api/messages", method="POST", headers=JSON | tokens[who], body=entry_to_line(entry))
                assert posted.status == status, posted.body
            assert {(await fetch(hub, "/api/heads", headers=tokens[who])).status for who in (reader, writer)} == {200}
            assert (await fetch(hub, "/api/connections", headers=tokens[writer])).status == 403
            before = len(hub.links())
            await log.revoke(nodes[0])
            await eventually(lambda: len(hub.links()) == before - 1)
            new = await log.append("after the reader's removal")
            await until_has(writes, [new])
            await eventually(lambda: reading.error and "is not let in here" in reading.error)
            assert not await reads.has(new.id)
            assert (await fetch(hub, "/api/heads", headers=tokens[reader])).status == 403
            # Another role is another right: the writer is a reader from now on.
            await log.grant(writer.did, "read")
            await log.revoke(nodes[1])
            await until_has(writes, [last := await log.append("for readers")])
            posted = await fetch(hub, "/api/messages", method="POST", headers=JSON | tokens[writer], body=entry_to_line(entry))
            assert posted.status == 403
        assert await writes.has(last.id)


async def test_what_is_void_at_a_hub_reaches_an_admin_through_it_and_costs_no_more_than_one_writer_may() -> None:
    """The hub declines nothing that belongs: what is void may be admitted, or count again. Many keys of a removed admin are one writer."""
    evil, worker = SIGNERS[1], SIGNERS[2]
    limits = HubLimits(access=Access.parse({"default": {"quota": {"entries_per_writer": 8}}}))
    async with (
        gossiplog.open(":memory:", topic="team.example.com", policy=Policy([DIDS[0]]), signer=SIGNERS[0], app=SAID) as founder,
        gossiplog.open(":memory:", topic=founder.topic, app=SAID) as served,
        gossiplog.open(":memory:", topic=founder.topic, signer=evil) as grants,
        gossiplog.open(":memory:", topic=founder.topic) as floods,
        gossiplog.open(":memory:", topic=founder.topic, signer=worker, app=SAID) as works,
        served.listen("127.0.0.1:0", limits=limits) as hub,
    ):
        nodes = [(await founder.grant(evil.did, "admin")).id, (await founder.grant(worker.did)).id]
        for log in (served, grants, works):
            await log.sync(founder)
        # Both are away while they are removed, the one for bad and the other by mistake.
        theirs = [await works.append(number) for number in range(3)]
        seconds = [await grants.grant(did, "write") for did in DIDS[3:9]]
        await floods.sync(grants)
        many = [await floods.append(number, signer=signer) for signer in SIGNERS[3:9] for number in range(5)]
        async with founder.connect(hub.urls[0]):
            removals = [await founder.revoke(node) for node in nodes]
            await until_has(served, removals)
            async with works.connect(hub.urls[0]), grants.connect(hub.urls[0]):
                await until_has(founder, [*theirs, *seconds])
                async with floods.connect(hub.urls[0]) as link:
                    await eventually(lambda: "unwelcome" in link.refused)
                assert sum([await served.has(entry.id) for entry in [*seconds, *many]]) <= 8
                # The worker is let in again, and what they wrote meanwhile is admitted: by the founder, who has it from the hub.
                await founder.grant(worker.did)
                await until_has(works, [await founder.admit([entry.id for entry in theirs])])
                for log in (founder, served, works):
                    assert await said(log) == ["0", "1", "2"]
                    assert await log.root() == await served.root()


async def test_roles_hold_until_the_last_server_with_these_rules_has_stopped() -> None:
    closed = HubLimits(access=Access.parse({"default": {"anonymous": []}}))
    async with (
        gossiplog.open(":memory:", topic="team.example.com", policy=Policy([DIDS[0]]), signer=SIGNERS[0]) as log,
        gossiplog.open(":memory:", topic=log.topic) as reads,
        log.listen("127.0.0.1:0", limits=closed) as hub,
    ):
        node = await log.grant(DIDS[1], "read")
        async with log.listen("127.0.0.1:0", limits=closed) as other, reads.connect(other.urls[0], identity=SIGNERS[1]):
            await until_has(reads, [node])
        async with reads.connect(hub.urls[0], identity=SIGNERS[1]) as link:
            await until_has(reads, [await log.append("after the first has stopped")])
            await log.revoke(node.id)
            await eventually(lambda: link.error and "is not let in here" in link.error)


async def test_a_stream_of_events_ends_with_the_role() -> None:
    closed = HubLimits(access=Access.parse({"default": {"anonymous": []}}))
    async with (
        gossiplog.open(":memory:", topic="team.example.com", policy=Policy([DIDS[0]]), signer=SIGNERS[0]) as log,
        log.listen("127.0.0.1:0", limits=closed) as hub,
    ):
        node = await log.grant(DIDS[1], "read")
        token = await fetch_token(parse_url(hub.urls[0], identity=SIGNERS[1]))
        stream = await trio.open_tcp_stream("127.0.0.1", hub.port)
        await stream.send_all(f"GET /api/events?token={token} HTTP/1.1\r\nHost: localhost:{hub.port}\r\n\r\n".encode())
        with trio.fail_after(PATIENCE_S):
            assert b" 200 " in await stream.receive_some()
            await log.revoke(node.id)
            data = b"".join([piece async for piece in stream])
        await log.append("secret")
        assert b"secret" not in data
        await stream.aclose()


async def test_a_removed_member_who_colludes_backdates_and_replays_gains_nothing_by_mesh_bucket_or_file(tmp_path: Path) -> None:
    """What the removed signs with old parents belongs and is void, whoever brings it by whichever way; what it signs later is refused."""
    removed, friend, second = SIGNERS[1], SIGNERS[2], SIGNERS[3]
    policy = Policy([DIDS[0]])
    async with (
        gossiplog.open(":memory:", topic="team.example.com", policy=policy, signer=SIGNERS[0], app=SAID) as log,
        gossiplog.open(tmp_path / "evil.db", topic=log.topic, signer=removed, app=SAID) as evil,
        gossiplog.open(":memory:", topic=log.topic, signer=friend, app=SAID) as colludes,
        gossiplog.open(":memory:", topic=log.topic, app=SAID) as reads,
        gossiplog.open(":memory:", topic=log.topic, app=SAID) as imports,
    ):
        node = (await log.grant(removed.did, "admin")).id
        await log.grant(friend.did)
        before = await log.append("before", signer=removed)
        await evil.sync(log)
        await colludes.sync(log)
        revocation = await log.revoke(node)
        # Backdated: data, a second key, what that writes, a removal of the friend's other key, and an admission of all that.
        void = [await evil.append("backdated")]
        grant = await evil.grant(second.did, "admin")
        void += [grant, await evil.append("by the second key", signer=second), await evil.grant(DIDS[4], "write", signer=second)]
        void.append(await evil.admit([void[0].id]))
        # The friend colludes: it builds on them, and knows no removal either.
        await colludes.sync(evil)
        built = await colludes.append("by a friend")
        await evil.sync(colludes)
        # What names the removal, or is stronger than the rules, belongs nowhere.
        heads = [decode_id(id) for id in [*await log.heads(), built.id]]
        late = [
            sign_entry(who, log.topic, next_clock(heads), heads, pcf.encode(payload))
            for who in (removed, second)
            for payload in ("late", encode_said(Grant(DIDS[5], "admin", grant.id)), encode_said(Revoke(node, node)))
        ]
        bucket = tmp_path / "bucket"
        await colludes.publish(bucket)
        async with a_peer(log=log, listen=(TCP,)) as mesh, a_peer(*mesh.host.announced, log=evil, listen=(TCP,)):
            await until_has(log, [*void, built])
            await until_has(evil, [revocation])
            # Replayed by hand, over and over.
            for _ in range(3):
                await log.insert_many([entry.value for entry in [*void, before, *late]])
        await reads.sync(log)
        await reads.sync(bucket)
        lines = [entry_to_line(entry) async for entry in evil.iterate()]
        await imports.insert_many(line_to_value(line)[0] for line in lines)
        replicas = (log, evil, reads, imports)
        await colludes.sync(log)
        for replica in (*replicas, colludes):
            assert {(await replica.insert(entry.value)).rule for entry in late} == {"access"}
            assert await replica.root() == await log.root()
            assert await said(replica) == ["before", "by a friend"]
            for entry in void:
                standing = await replica.standing(entry.id)
                assert (standing.counts, standing.revoked_by) == (False, (revocation.id,))
                assert revocation.id in (standing.reason or "")
            assert [member.did for member in await replica.members() if member.is_held] == [DIDS[0], friend.did]


async def test_a_did_that_an_application_names_has_the_rights_of_its_role() -> None:
    """What `who` of an ASGI application returns; a change of the role is waited for, and other logs give nothing."""
    access = Access.parse({"default": {"anonymous": []}})
    access.set_members("team", {DIDS[1]: Rights({"connect", "pull"})})
    caller = Caller(access, known=DIDS[1])
    assert (caller.did("team"), caller.rights("team"), caller.rights("other")) == (DIDS[1], {"connect", "pull"}, set())
    assert caller.refusal("team", "push") == Refusal(403, "you may not push here")
    assert Caller(access, known=DIDS[2]).rights("team") == set()
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(access.wait_changed, "team", DIDS[1], Rights({"connect", "pull"}))
            await trio.testing.wait_all_tasks_blocked()
            access.set_members("team", {DIDS[1]: Rights({"connect", "pull"}), DIDS[2]: Rights()})
            await trio.testing.wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == 1, "another member's role is no change"
            access.set_members("team", None)
    assert caller.rights("team") == set()


async def test_what_builds_on_too_many_entries_of_a_removed_writer_waits_until_the_quota_has_room() -> None:
    """A hub never takes an entry without its ancestors: whoever merged a flood is refused with it, told why, blamed for nothing."""
    removed, friend = SIGNERS[1], SIGNERS[2]
    access = Access.parse({"default": {"quota": {"entries_per_writer": 5}}})
    async with (
        gossiplog.open(":memory:", topic="team.example.com", policy=Policy([DIDS[0]]), signer=SIGNERS[0]) as founder,
        gossiplog.open(":memory:", topic=founder.topic, app=SAID) as served,
        gossiplog.open(":memory:", topic=founder.topic, signer=removed) as floods,
        gossiplog.open(":memory:", topic=founder.topic, signer=friend) as works,
        served.listen("127.0.0.1:0", limits=HubLimits(access=access)) as hub,
    ):
        node = await founder.grant(removed.did)
        await founder.grant(friend.did)
        await floods.sync(founder)
        await works.sync(founder)
        removal = await founder.revoke(node.id)
        await served.sync(founder)
        # The friend hears of the removal only after it has built on what came in another way.
        await floods.append_many(range(9))
        before = await works.append("before")
        await works.sync(floods)
        after = await works.append("after")
        url = parse_url(hub.urls[0])
        with trio.fail_after(PATIENCE_S):
            for _ in range(2):
                done = await exchange(works, url)
                assert done.is_taken is False and done.refused.keys() == {"unwelcome"}
                assert done.refused["unwelcome"].reason == f"5 entries of those removed by {removal.id} are here, the most that are taken"
            assert await served.has(before.id) and not await served.has(after.id)
            # Nobody is banned for it, and what does not build on it is taken.
            async with founder.connect(hub.urls[0]), works.connect(hub.urls[0]) as link:
                await until_has(served, [await founder.append("of others")])
                await eventually(lambda: "unwelcome" in link.refused)
            access.replace(Access.parse({"default": {"quota": {"entries_per_writer": 20}}}))
            assert (await exchange(works, url)).is_taken
        assert await said(served) == ["after", "before", "of others"]
