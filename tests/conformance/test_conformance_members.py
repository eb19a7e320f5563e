"""Members decided by the log: what belongs is stored everywhere, what is void has no effect anywhere, whatever the order of arrival."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from access_support import DIDS, SIGNERS, sign_story, story
from log_support import assert_whole

import gossiplog
from gossiplog import Application, Policy
from gossiplog.access import Grant, Revoke, encode_said
from gossiplog.codec import pcf
from gossiplog.entry.message_id import decode_id
from gossiplog.entry.rules import next_clock
from gossiplog.entry.signing import sign_entry
from gossiplog.entry.standing import Standing
from gossiplog.errors import LocalProtocolError, NotAuthorised, NotFound
from gossiplog.log import membership

NAME = "team.example.com"
SEEDS = (2, 5, 7, 12, 391)


def reset(tx) -> None:
    tx.execute("DROP TABLE IF EXISTS said")
    tx.execute("CREATE TABLE said (id TEXT PRIMARY KEY, person TEXT, role TEXT)")


def apply(entries, tx) -> None:
    for entry in entries:
        assert entry.standing.counts
        tx.execute("INSERT INTO said VALUES ($1, $2, $3)", (entry.id, entry.standing.person, entry.standing.role))


def undo(entries, tx) -> None:
    for entry in entries:
        assert not entry.standing.counts and entry.standing.role
        tx.execute("DELETE FROM said WHERE id = $1", (entry.id,))


PLAIN = Application("said", 1, apply, reset)
APPLICATIONS = [PLAIN, Application("said", 1, apply, reset, order_free=True, undo=undo)]


async def shown(log) -> set[str]:
    return {id for (id,) in await log.query("SELECT id FROM said")}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("application", "walked"), [*zip(APPLICATIONS, (4_000, 3), strict=True)], ids=["rebuilt", "undone and scanned"])
async def test_histories_come_out_as_the_model_says_in_any_order_and_any_batches(
    open_log, seed: int, application: Application, walked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "_WALKED_MAX", walked)
    told, rng = story(seed), random.Random(seed)
    signed = sign_story(told, NAME)
    by_step = dict(zip((step.id for step in told.steps), signed, strict=True))
    expected = {by_step[id][0].id: counts for id, counts in told.standings().items()}
    order = [by_step[step.id] for step in told.shuffled(rng)]
    async with open_log(topic=told.policy.topic(NAME), app=application) as log:
        while order:
            batch, order = order[: (size := rng.randint(1, 9))], order[size:]
            verdicts = await log.insert_many([entry.value for entry, _ in batch])
            assert [verdict.accepted for verdict in verdicts] == [belongs for _, belongs in batch]
            assert {verdict.rule for verdict in verdicts} <= {None, "access"}
        standings = {id: await log.standing(id) for id in expected}
        assert {id: standing.counts for id, standing in standings.items()} == expected
        assert await log.find_void(list(expected)) == {id for id, counts in expected.items() if not counts}
        assert await shown(log) == {id for id, standing in standings.items() if standing.counts and standing.kind == "data"}
        await log.rebuild()
        assert await shown(log) == {id for id, standing in standings.items() if standing.counts and standing.kind == "data"}
        await assert_whole(log)


async def test_a_founder_lets_in_removes_and_admits(open_log) -> None:
    policy = Policy([DIDS[0]])
    async with open_log("a", topic=NAME, policy=policy, signer=SIGNERS[0], app=PLAIN) as a:
        with pytest.raises(NotAuthorised, match="is no member"):
            await a.append("too early", signer=SIGNERS[1])
        node = (await a.grant(DIDS[1], "admin")).id
        phone = (await a.grant(DIDS[2], "write", device=True, signer=SIGNERS[1])).id
        with pytest.raises(LocalProtocolError, match="holds no node with the role admin"):
            await a.grant(DIDS[3], signer=SIGNERS[2])
        first = await a.append("first", signer=SIGNERS[2])
        assert await a.standing(first.id) == Standing(True, "data", phone, "write", node)
        async with open_log("b", topic=a.topic, signer=SIGNERS[2], app=PLAIN) as b:
            await b.sync(a)
            late = [await b.append(text) for text in ("unseen", "unseen too")]
            revocation = await a.revoke(DIDS[1], adopt=[])
            assert [(each.did, each.is_held) for each in await a.members()] == [(DIDS[0], True), (DIDS[1], False), (DIDS[2], False)]
            with pytest.raises(NotAuthorised, match=revocation.id):
                await a.grant(DIDS[1], under=node, signer=SIGNERS[1])
            await a.sync(b)
            await b.sync(a)
            for log in (a, b):
                assert await shown(log) == {first.id}
                standing = await log.standing(late[0].id)
                assert (standing.counts, standing.revoked_by, standing.person) == (False, (revocation.id,), node)
                assert revocation.id in str(standing.reason)
            with pytest.raises(NotAuthorised):
                await b.append("too late")
            await a.admit([late[1].id])
            await b.sync(a)
            for log in (a, b):
                assert await shown(log) == {first.id, late[1].id}
            assert await a.root() == await b.root()
        await a.grant(DIDS[4], "read")
        await a.leave(signer=SIGNERS[4])
        assert [each.is_held for each in await a.members()][-1] is False
        with pytest.raises(NotFound):
            await a.standing("0" * 32)


async def test_a_log_without_a_policy_has_no_members(open_log) -> None:
    async with open_log(topic=NAME, signer=SIGNERS[0]) as log:
        entry = await log.append({"gossiplog.access": "just data"})
        assert entry.standing is None
        for call in (log.members, log.policy, log.leave):
            with pytest.raises(LocalProtocolError, match="no members"):
                await call()
        with pytest.raises(LocalProtocolError, match="no members"):
            await log.standing(entry.id)


async def test_what_fails_halfway_leaves_members_as_they_were(open_log) -> None:
    def picky(entries, tx) -> None:
        if any(entry.payload == "bad" for entry in entries):
            raise gossiplog.Reject("bad")

    async with open_log(topic=NAME, policy=Policy([DIDS[0]]), signer=SIGNERS[0], apply=picky) as log:
        grants = [{"gossiplog.access": {"grant": did, "role": "write", "under": DIDS[0]}} for did in DIDS[1:4]]
        with pytest.raises(NotAuthorised):
            await log.append_many([*grants, {"gossiplog.access": {}}])
        with pytest.raises(gossiplog.errors.Rejected):
            await log.append_many([*grants, "bad"])
        assert len(await log.members()) == 1
        with pytest.raises(NotAuthorised):
            await log.append("no", signer=SIGNERS[1])
        await log.append_many([*grants, "good"])
        await log.append("yes", signer=SIGNERS[1])
        assert [each.did for each in await log.members()] == DIDS[:4]


async def test_members_are_there_again_when_a_log_is_opened_again(open_durable) -> None:
    policy = Policy(DIDS[:3])
    async with open_durable(topic=NAME, policy=policy, signer=SIGNERS[0]) as log:
        topic = log.topic
        node = (await log.grant(DIDS[3], "admin")).id
        await log.append("one", signer=SIGNERS[3])
    async with open_durable(topic=NAME, policy=policy, signer=SIGNERS[3]) as log:
        assert log.topic == topic
        assert (await log.policy()).founders == policy.founders
        await log.grant(DIDS[4], "read")
        assert [each.path[0] for each in await log.members()][-1] == DIDS[0]
        await log.revoke(node, signer=SIGNERS[1])
        await log.append("one vote is none")
        await log.revoke(node, signer=SIGNERS[2])
        with pytest.raises(NotAuthorised):
            await log.append("two are enough")
    with pytest.raises(LocalProtocolError, match="other founders"):
        async with open_durable(topic=NAME, policy=Policy(DIDS[:2])):
            pass


async def test_a_repair_builds_members_anew(tmp_path: Path) -> None:
    told = story(7)
    signed = sign_story(told, NAME)
    path = tmp_path / "log.db"
    async with gossiplog.open(path, topic=told.policy.topic(NAME), app=PLAIN) as log:
        await log.insert_many([entry.value for entry, _ in signed])
        entries = [entry async for entry in log.iterate()]
        before = [await log.standing(entry.id) for entry in entries]
        rows = await shown(log)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM gossiplog_heads")
        db.execute("DELETE FROM gossiplog_touched")
        db.execute("DELETE FROM gossiplog_void")
    async with gossiplog.open(path, app=PLAIN) as log:
        assert (await log.fsck(repair=True)).set_aside == 0
        assert [await log.standing(entry.id) for entry in entries] == before
        assert await shown(log) == rows
        assert any(not standing.counts for standing in before)
        await assert_whole(log)


def empty(tx) -> None:
    # A table that is made anew is so for all who hold a snapshot of a database on a server.
    tx.execute("CREATE TABLE IF NOT EXISTS said (id TEXT PRIMARY KEY, person TEXT, role TEXT)")
    tx.execute("DELETE FROM said")


@pytest.mark.parametrize("application", [replace(each, reset=empty) for each in APPLICATIONS], ids=["rebuilt", "undone"])
async def test_a_held_snapshot_shows_what_counted_when_it_was_taken(open_durable, application: Application) -> None:
    async with (
        open_durable(topic=NAME, policy=Policy((DIDS[0],)), signer=SIGNERS[0], app=application) as log,
        gossiplog.open(":memory:", topic=log.topic, signer=SIGNERS[1]) as away,
    ):
        node = await log.grant(DIDS[1])
        await away.sync(log)
        said = await away.append("said")
        await log.sync(away)
        async with log.snapshot() as before:
            # The readers' state of members goes on to the removal while an older state is held, and is asked of both.
            removal = await log.revoke(node.id, keep=[])
            for _ in range(2):
                assert await shown(log) == set()
                assert (await log.standing(said.id)).revoked_by == (removal.id,)
                assert [member.is_held for member in await log.members()] == [True, False]
                assert await log.query("SELECT id FROM said", at=before) == [(said.id,)]
            await log.admit([said.id])
            assert await shown(log) == {said.id}
            async with log.snapshot() as between:
                more = await log.append("more")
                assert await log.query("SELECT id FROM said", at=between) == [(said.id,)]
                assert await shown(log) == {said.id, more.id}
            assert await log.query("SELECT id FROM said", at=before) == [(said.id,)]


@pytest.mark.parametrize("founders", [2, 3])
async def test_founders_who_remove_each_other_at_once_both_stay_until_enough_vote(open_durable, founders: int) -> None:
    """No order of arrival decides it: each has one vote. What a removed founder signs from before is void, and its vote still counts."""
    anna, ben, carl = SIGNERS[:3]
    policy = Policy(tuple(DIDS[:founders]), salt=bytes(16))
    async with (
        open_durable(topic=NAME, policy=policy, signer=anna, app=PLAIN) as annas,
        gossiplog.open(":memory:", topic=annas.topic, signer=ben, app=PLAIN) as bens,
    ):

        async def held(*logs) -> list[str]:
            found = [[member.did for member in await log.members() if member.is_held] for log in logs]
            assert all(each == found[0] for each in found)
            return found[0]

        await bens.sync(annas)
        votes = [await annas.revoke(DIDS[1]), await bens.revoke(DIDS[0])]
        late = await bens.append("after the vote")
        await annas.sync(bens)
        await bens.sync(annas)
        assert await held(annas, bens) == sorted(DIDS[:founders])
        for log in (annas, bens):
            assert [record.kind for record in await log.access_log() if record.revoked_by == ()] == ["vote", "vote"]
            assert (await log.standing(late.id)).counts
        if founders == 2:
            return
        # Ben goes by Anna's vote and Carl's, who has not seen what Ben wrote meanwhile; then Ben's own vote and Carl's remove Anna, too.
        async with gossiplog.open(":memory:", topic=annas.topic, signer=carl, app=PLAIN) as carls:
            await carls.insert_many([policy.entry(annas.topic).value, votes[0].value])
            await carls.revoke(DIDS[1])
            for log in (annas, bens):
                await log.sync(carls)
            await carls.sync(annas)
            assert await held(annas, bens, carls) == sorted({DIDS[0], DIDS[2]})
            standing = await annas.standing(late.id)
            assert (standing.counts, standing.rule, len(standing.revoked_by)) == (False, "vote", 2)
            assert await shown(annas) == await shown(carls) == set()
            with pytest.raises(NotAuthorised):
                await bens.append("too late")
            await carls.revoke(DIDS[0])
            await annas.sync(carls)
            await bens.sync(carls)
            assert await held(annas, bens, carls) == [DIDS[2]]


async def test_removals_that_a_removed_admin_backdates_follow_few_parents(open_durable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upon the oldest parents nearly nothing is kept: what came since is looked through once, or not at all if the node is new."""
    followed: list[int] = []
    read = membership.read_values

    def counting(keys):
        followed.append(len(keys))
        return read(keys)

    evil, child = SIGNERS[1], DIDS[2]
    async with open_durable(topic=NAME, policy=Policy((DIDS[0],)), signer=SIGNERS[0]) as log:
        node = await log.grant(evil.did, "admin")
        below = await log.grant(child, signer=evil)
        data = [await log.append("by the child", signer=SIGNERS[2]) for _ in range(2)]
        for _ in range(3):
            await log.append_many([{"n": number} for number in range(200)])
        removal = await log.revoke(node.id)
        monkeypatch.setattr(membership, "_WALKED_MAX", 100)
        monkeypatch.setattr(membership, "read_values", counting)

        async def backdate(parents: list[bytes], said) -> str:
            entry = sign_entry(evil, log.topic, next_clock(parents), parents, pcf.encode(encode_said(said)))
            followed.clear()
            assert (await log.insert(entry.value)).is_new
            assert (await log.standing(entry.id)).revoked_by == (removal.id,)
            assert sum(followed) < 1_000, "a walk reads ahead, and ends"
            return entry.id

        for keep in (None, (), (below.id,)):
            await backdate([below.key], Revoke(below.id, node.id, keep))
        new = await backdate([below.key], Grant(child, "admin", node.id))
        await backdate([decode_id(new)], Revoke(new, node.id, ()))
        assert sum(followed) < 10
        # None of them counts; what the child wrote does, as the removal kept it.
        assert [(await log.standing(entry.id)).counts for entry in data] == [True, True]


async def test_a_void_removal_costs_a_row_and_takes_effect_once_it_counts(open_durable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anna lets in Ben, Ben lets in Carl, Carl lets in Dora. Carl, removed by Ben, removes Dora: void, until Ben's removal is void."""
    written: list[int] = []
    write = membership.WriteMembers

    def counting(rows, touched, lost, regained):
        written.append(len(touched))
        return write(rows, touched, lost, regained)

    monkeypatch.setattr(membership, "WriteMembers", counting)
    anna, ben, carl, dora = SIGNERS[:4]
    async with (
        open_durable(topic=NAME, policy=Policy((anna.did,)), signer=anna, app=APPLICATIONS[1]) as log,
        gossiplog.open(":memory:", topic=log.topic, signer=carl) as carls,
    ):
        bens = await log.grant(ben.did, "admin")
        place = await log.grant(carl.did, "admin", signer=ben)
        doras = await log.grant(dora.did, signer=carl)
        said = [await log.append(number, signer=dora) for number in range(5)]
        await carls.sync(log)
        removal = await log.revoke(place.id, signer=ben)
        late = [await carls.revoke(doras.id, keep=[]) for _ in range(3)]
        written.clear()
        await log.sync(carls)
        assert sum(written) == 0 and {(await log.standing(each.id)).revoked_by for each in late} == {(removal.id,)}
        # Data comes that Carl's removals would make void, too.
        parents = [said[-1].key]
        more = sign_entry(dora, log.topic, next_clock(parents), parents, pcf.encode("more"))
        assert (await log.insert(more.value)).is_new
        assert await shown(log) == {entry.id for entry in said}
        await log.revoke(bens.id, keep=[place.id], adopt=[place.id])
        for entry in (*said, more):
            assert (await log.standing(entry.id)).revoked_by[0] in {each.id for each in late}
        assert await shown(log) == set()
        await assert_whole(log)
