"""A removed member against a hub, a friend and a file: what it writes without knowing is void everywhere, and nobody is blamed."""

from pathlib import Path

import pytest
import trio
from access_support import DIDS, SIGNERS
from network_support import PATIENCE_S, fetch, until_has

import gossiplog
from gossiplog import Application, Policy
from gossiplog.access import Grant, encode_said
from gossiplog.codec import pcf
from gossiplog.entry.message_id import decode_id
from gossiplog.entry.rules import next_clock
from gossiplog.entry.signing import sign_entry
from gossiplog.errors import NotAuthorised


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
