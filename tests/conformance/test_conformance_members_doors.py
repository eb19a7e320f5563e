"""What comes to a log with members by a side door: other policies, entries before the policy, keys of other schemes, snapshots."""

from __future__ import annotations

from typing import Any

import pytest
from access_support import DIDS, SIGNERS
from snapshot_support import SCHEMES as SNAPSHOT_SCHEMES

import gossiplog
from gossiplog import Ed25519Signer, Policy
from gossiplog.codec import pcf
from gossiplog.entry import Entry
from gossiplog.entry.envelope import build_value
from gossiplog.entry.message_id import decode_id
from gossiplog.entry.rules import next_clock
from gossiplog.entry.signing import sign_entry
from gossiplog.errors import LocalProtocolError, NotAuthorised, TopicMismatch

NAME = "team.example.com"
POLICY, OTHER = Policy((DIDS[0],), salt=bytes(16)), Policy((DIDS[0], DIDS[1], DIDS[2]), salt=bytes(16))
TOPIC = POLICY.topic(NAME)


def policy_payload(policy: Policy) -> dict[str, Any]:
    return {"gossiplog.access": {"founders": list(policy.founders), "k": policy.k, "salt": policy.salt}}


async def test_a_second_policy_belongs_nowhere_whoever_signs_it_upon_whatever(open_log) -> None:
    async with open_log(topic=TOPIC) as log:
        assert (await log.insert(POLICY.entry(TOPIC).value)).is_new
        founder = SIGNERS[0]
        data = await log.append("data", signer=founder)
        heads = [decode_id(id) for id in await log.heads()]
        policy = POLICY.entry(TOPIC)
        tries = [
            # The other policy, as its own entry would be; either by another key, without and with parents; and data in the policy's place.
            OTHER.entry(TOPIC),
            *(
                sign_entry(founder, TOPIC, next_clock(upon), upon, pcf.encode(policy_payload(each)))
                for each in (POLICY, OTHER)
                for upon in ([], [policy.key], heads)
            ),
            sign_entry(Ed25519Signer(POLICY.hash), TOPIC, 2, [policy.key], pcf.encode(policy_payload(POLICY))),
            sign_entry(Ed25519Signer(POLICY.hash), TOPIC, 1, [], pcf.encode("data by the policy's key")),
            sign_entry(founder, TOPIC, 1, [], pcf.encode("data without parents")),
        ]
        for verdict in await log.insert_many([entry.value for entry in tries]):
            assert (verdict.accepted, verdict.rule) == (False, "access"), verdict
        assert await log.policy() == POLICY
        assert [entry.id async for entry in log.iterate()] == [policy.id, data.id]
        # Nor is anything taken that builds on one of them.
        late = [sign_entry(founder, TOPIC, next_clock([each.key]), [each.key], pcf.encode("late")) for each in tries]
        assert {verdict.rule for verdict in await log.insert_many([entry.value for entry in late])} == {"access"}


async def test_a_replica_without_its_policy_yet_takes_nothing_and_gets_everything_later(open_log) -> None:
    async with gossiplog.open(":memory:", topic=NAME, policy=POLICY, signer=SIGNERS[0]) as founder, open_log(topic=TOPIC) as log:
        entries = [await founder.append(number) for number in range(3)]
        false = [OTHER.entry(TOPIC), sign_entry(SIGNERS[0], TOPIC, 1, [], pcf.encode(1))]
        assert {verdict.rule for verdict in await log.insert_many([entry.value for entry in (*false, *entries)])} == {"access", "parents"}
        with pytest.raises(NotAuthorised, match="no policy"):
            await log.append("too early", signer=SIGNERS[0])
        with pytest.raises(LocalProtocolError, match="not here yet"):
            await log.members()
        await log.sync(founder)
        assert await log.root() == await founder.root()
        assert (await log.append("now", signer=SIGNERS[0])).id in await log.heads()


async def test_a_log_is_opened_with_the_policy_that_it_has_and_with_no_other(open_durable) -> None:
    async with open_durable(topic=NAME, policy=Policy(OTHER.founders)) as log:
        topic, policy = log.topic, await log.policy()
    # Again, with or without the salt, and by its whole topic.
    for options in (
        {"topic": NAME, "policy": Policy(OTHER.founders)},
        {"topic": NAME, "policy": policy},
        {"topic": topic},
        {"topic": None},
    ):
        async with open_durable(**options) as log:
            assert (log.topic, await log.policy()) == (topic, policy)
            assert await log.count() == 1
    for options in (
        {"topic": NAME, "policy": POLICY},
        {"topic": NAME, "policy": Policy((DIDS[0],))},
        {"topic": NAME, "policy": Policy(OTHER.founders, 3)},
        {"topic": NAME, "policy": Policy(OTHER.founders, salt=b"x" * 16)},
        {"topic": "other.example.com", "policy": Policy(OTHER.founders)},
        {"topic": topic, "policy": Policy(OTHER.founders)},
        {"topic": TOPIC},
        {"topic": NAME},
    ):
        with pytest.raises((LocalProtocolError, TopicMismatch)):
            async with open_durable(**options):
                pass
    async with open_durable("plain", topic=NAME) as log:
        await log.append("open to all", signer=SIGNERS[5])
    with pytest.raises(TopicMismatch):
        async with open_durable("plain", topic=NAME, policy=POLICY):
            pass
    with pytest.raises(LocalProtocolError, match="founded already"):
        async with open_durable("new", topic=topic, policy=policy):
            pass


async def test_logs_of_two_policies_give_each_other_nothing(open_log) -> None:
    async with (
        open_log("one", topic=NAME, policy=POLICY, signer=SIGNERS[0]) as one,
        open_log("two", topic=NAME, policy=OTHER, signer=SIGNERS[0]) as two,
    ):
        await one.append("data")
        await one.grant(DIDS[3], "admin")
        for give in (two.sync(one), two.copy_from(one)):
            with pytest.raises(LocalProtocolError, match="topic"):
                await give
        values = [entry.value async for entry in one.iterate()]
        assert {verdict.rule for verdict in await two.insert_many(values)} == {"topic"}
        assert await two.count() == 1


async def test_the_edges_of_what_can_be_granted(open_log) -> None:
    """The 17th level, the 1,025th id, dids spelled in other ways, and names that are no names: by the library, and signed by hand."""
    async with open_log(topic=NAME, policy=POLICY, signer=SIGNERS[0]) as log:

        async def refuse(payload: dict[str, Any], signer: Ed25519Signer, reason: str) -> None:
            heads = [decode_id(id) for id in await log.heads()]
            body = pcf.encode({"gossiplog.access": payload})
            verdict = await log.insert(sign_entry(signer, log.topic, next_clock(heads), heads, body).value)
            assert verdict.rule == "access" and reason in (verdict.reason or ""), verdict

        node, signer = DIDS[0], SIGNERS[0]
        for level in range(15):
            grantee = 1 + level % 8
            node, signer = (await log.grant(DIDS[grantee], "admin", under=node, signer=signer)).id, SIGNERS[grantee]
        assert max(len(member.path) for member in await log.members()) == 16
        with pytest.raises(NotAuthorised, match="more than 16 levels deep"):
            await log.grant(DIDS[0], "read", under=node, signer=signer)
        await refuse({"grant": DIDS[0], "role": "read", "under": node}, signer, "more than 16 levels deep")
        deep = await log.append("from below", signer=signer)
        assert (await log.standing(deep.id)).counts
        many = [(await log.append(0)).id for _ in range(2)]
        ids = sorted({f"{n:032x}" for n in range(1_025)})
        await refuse({"admit": ids, "under": DIDS[0]}, SIGNERS[0], "1024")
        await refuse({"revoke": node, "under": DIDS[0], "keep": ids}, SIGNERS[0], "1024")
        await refuse({"admit": many[::-1] if many == sorted(many) else many, "under": DIDS[0]}, SIGNERS[0], "ascending")
        await refuse({"admit": [many[0], many[0]], "under": DIDS[0]}, SIGNERS[0], "each once")
        did = DIDS[8]
        for other in (
            did.upper(),
            did + " ",
            f"{did}#{did[8:]}",
            did.replace("z6Mk", "z6Ml"),
            did[:-1],
            "did:key:z1" + did[9:],
            "anna",
            "",
            "😀",
        ):
            with pytest.raises(LocalProtocolError):
                await log.grant(other)
            await refuse({"grant": other, "role": "write", "under": DIDS[0]}, SIGNERS[0], "no did:key of an Ed25519 key")
            await refuse({"grant": did, "role": "write", "under": other}, SIGNERS[0], "does not hold")
        for role in ("owner", "ADMIN", "write ", "wrıte"):
            await refuse({"grant": did, "role": role, "under": DIDS[0]}, SIGNERS[0], "expected read, write or admin")
        assert len(await log.members()) == 16
    for name in ("équipe.example.com", "team example", "team_example", "", "t" * 76, "тeam.example.com", "team:example"):
        with pytest.raises(LocalProtocolError):
            async with open_log("other", topic=name, policy=POLICY):
                pass


async def test_keys_of_wallets_and_of_their_sessions_as_members(open_log) -> None:
    """A session of SIWE has an Ed25519 key, which may hold a node; one of EIP-712 and the wallet itself have none that may."""
    from gossiplog.ethereum import SCHEME, Eip712Signer, Wallet, is_session_authorised

    wallet, session, typed = Wallet(bytes([7]) * 32), Ed25519Signer.from_seed(bytes([9]) * 32), Eip712Signer(bytes([9]) * 32)
    schemes = {"ed25519", SCHEME}
    async with (
        open_log(topic=NAME, policy=POLICY, signer=SIGNERS[0], schemes=schemes) as log,
        gossiplog.open(":memory:", topic=TOPIC, signer=session, schemes=schemes) as theirs,
    ):
        for did in (wallet.did, typed.did):
            with pytest.raises(LocalProtocolError, match="no did:key of an Ed25519 key"):
                await log.grant(did)
            with pytest.raises(LocalProtocolError, match="expected a did:key"):
                Policy((did,))
        node = await log.grant(session.did)
        context = {"timestamp": 1, "blockhash": "", "duration": 1}
        action = {"type": "action", "did": wallet.did, "name": "say", "args": ["hello"], "context": context}
        with pytest.raises(NotAuthorised):
            await log.append(action, signer=typed)
        await theirs.sync(log)
        opening = wallet.authorise(TOPIC, session.did, 1_700_000_000_000, nonce="members12")
        said = await theirs.append(opening)
        assert is_session_authorised(TOPIC, opening)
        await log.sync(theirs)
        assert (await log.standing(said.id)).node == node.id
        removal = await log.revoke(node.id)
        late = await theirs.append("late")
        await log.sync(theirs)
        assert (await log.standing(late.id)).revoked_by == (removal.id,)


async def test_a_snapshot_begins_no_log_with_members_and_one_upon_its_topic_is_another_log(open_log) -> None:
    payload = pcf.encode({"type": "snapshot", "models": {}, "effects": []})

    def snapshot(topic: str) -> bytes:
        return build_value("canvas-snapshot", "", b"", topic, 0, (), payload)

    short = "t.example"
    topic, beside = POLICY.topic(short), f"{POLICY.topic(short)}:{'b5' * 32}"
    async with (
        open_log(topic=topic, signer=SIGNERS[0], schemes=SNAPSHOT_SCHEMES) as log,
        open_log("beside", topic=beside, schemes=SNAPSHOT_SCHEMES) as other,
    ):
        for is_there in (False, True):
            assert not (await log.insert(snapshot(topic))).accepted
            assert (await log.insert(snapshot(beside))).rule == "topic"
            forged = sign_entry(SIGNERS[1], topic, 1, [Entry.decode(snapshot(beside)).key], pcf.encode("upon it"))
            assert not (await log.insert(forged.value)).accepted
            if not is_there:
                await log.insert(POLICY.entry(topic).value)
        assert await log.count() == 1
        assert (await other.insert(snapshot(beside))).accepted and not other.has_members
