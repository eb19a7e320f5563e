"""Small worlds with members who cheat: a few correct replicas, and signers who backdate, collude, replay and flood.

    python tests/support/members_world.py FIRST COUNT        # seeds, one after the other

Correct replicas say what they want through the library, get what others said in any order, some of it late or often, and sync with each
other now and then. Cheats sign with whatever parents suit them: old ones, to have written before they were removed; their own second key's;
those of void entries. At the end everybody gets everything, each in another order. Then must hold:

    equal entries give equal standings     roots, members, and the standing of each entry are equal on all correct replicas
    nothing void takes effect              an application's tables hold exactly the data that counts
    what is refused is refused everywhere  no replica has an entry that another one refuses: the roots are equal
"""

from __future__ import annotations

import random
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

import trio
from access_support import DIDS, SIGNERS

import gossiplog
from gossiplog import Application, GossipLog, Policy
from gossiplog.access import Admit, Grant, Revoke, encode_said
from gossiplog.codec import pcf
from gossiplog.entry.message import Entry
from gossiplog.entry.rules import next_clock
from gossiplog.entry.signing import sign_entry
from gossiplog.errors import LocalProtocolError, NotAuthorised

ROLES = ("read", "write", "admin")
VICES = ("backdate", "second key", "collude", "circle", "leave at once", "replay", "flood of policies")


def _reset(tx: Any) -> None:
    tx.execute("DROP TABLE IF EXISTS seen")
    tx.execute("CREATE TABLE seen (id TEXT PRIMARY KEY, node TEXT)")


def _apply(entries: Any, tx: Any) -> None:
    for entry in entries:
        tx.execute("INSERT INTO seen VALUES ($1, $2)", (entry.id, entry.standing.node))


def _undo(entries: Any, tx: Any) -> None:
    for entry in entries:
        tx.execute("DELETE FROM seen WHERE id = $1", (entry.id,))


def _grants(entry: Entry) -> str | None:
    said = entry.payload.get("gossiplog.access", {}) if isinstance(entry.payload, dict) else {}
    return said.get("grant")


class World:
    """One seed. `steps` are what happens before everybody gets everything."""

    def __init__(self, seed: int, steps: int = 24) -> None:
        self.rng = random.Random(f"members {seed}")
        self.steps = steps
        founders = self.rng.choice((1, 1, 3))
        self.policy = Policy(sorted(DIDS[:founders]), salt=bytes(16))
        self.cheats = SIGNERS[self.rng.randint(1, 3) :: 3]
        self.pool: dict[bytes, Entry] = {}
        self.vices = self.rng.sample(VICES, self.rng.randint(1, len(VICES)))
        self.replicas: list[GossipLog] = []

    async def run(self) -> dict[str, int]:
        """Run it, and check what must hold; return what it was made of."""
        async with AsyncExitStack() as stack:
            topic = ""
            for number in range(self.rng.randint(2, 4)):
                undo = {"undo": _undo} if number % 2 else {}
                options: dict[str, Any] = {"topic": topic} if topic else {"topic": "world.example.com", "policy": self.policy}
                signer = SIGNERS[0] if not topic else SIGNERS[3 * number % len(SIGNERS)]
                log = await stack.enter_async_context(
                    gossiplog.open(":memory:", signer=signer, app=Application("seen", 1, _apply, _reset, **undo), **options)
                )
                topic = log.topic
                self.replicas.append(log)
            under = None
            for signer in SIGNERS[len(self.policy.founders) : 7]:
                granter = SIGNERS[0] if under is None or self.rng.random() < 0.5 else under
                role = self.rng.choice(("admin", "admin", "write"))
                await self.replicas[0].grant(signer.did, role, signer=granter)
                under = signer if role == "admin" else under
            await self._learn(self.replicas[0])
            for log in self.replicas[1:]:
                await log.sync(self.replicas[0])
            for _ in range(self.steps):
                await self._step()
            await self._give_everything()
            return await self._check()

    async def _learn(self, log: GossipLog) -> None:
        async for entry in log.iterate():
            self.pool.setdefault(entry.key, entry)

    async def _step(self) -> None:
        rng, log = self.rng, self.rng.choice(self.replicas)
        match rng.choice(("say", "say", "say", "cheat", "cheat", "give", "sync")):
            case "say":
                try:
                    await self._say(log)
                except (NotAuthorised, LocalProtocolError):
                    return
                await self._learn(log)
            case "cheat":
                self._cheat()
            case "give":
                some = rng.sample(list(self.pool.values()), rng.randint(1, len(self.pool)))
                await log.insert_many([entry.value for entry in some])
            case "sync":
                await log.sync(rng.choice([other for other in self.replicas if other is not log]))

    async def _say(self, log: GossipLog) -> None:
        rng = self.rng
        signer = rng.choice((SIGNERS[0], rng.choice(SIGNERS)))
        nodes = [member.node for member in await log.members()]
        match rng.choice(("data", "data", "grant", "grant", "revoke", "leave", "admit")):
            case "data":
                await log.append(rng.randrange(100), signer=signer)
            case "grant":
                await log.grant(rng.choice(DIDS), rng.choice(ROLES), signer=signer, device=rng.random() < 0.2)
            case "revoke":
                keep = rng.choice((None, None, [], rng.sample(sorted(entry.id for entry in self.pool.values()), 1)))
                await log.revoke(rng.choice(nodes), keep=keep, signer=signer)
            case "leave":
                await log.leave(signer=signer)
            case "admit":
                await log.admit([rng.choice(list(self.pool.values())).id], signer=signer)

    def _cheat(self) -> None:
        """Sign something by a cheat's key, upon any parents."""
        rng = self.rng
        entries = sorted(self.pool.values(), key=lambda entry: entry.key)
        grants = [entry.id for entry in entries if _grants(entry)] + list(self.policy.founders)
        signer, vice = rng.choice(self.cheats), rng.choice(self.vices)
        own = [entry.id for entry in entries if _grants(entry) == signer.did] or [signer.did]
        said: Any = rng.randrange(100)
        upon = rng.sample(entries, min(len(entries), rng.randint(1, 3)))
        match vice:
            case "backdate":
                upon = rng.sample(entries[len(entries) // 3 :], 1)
                said = rng.choice((said, encode_said(Grant(rng.choice(DIDS), rng.choice(ROLES), rng.choice(own)))))
            case "second key":
                said = encode_said(Grant(rng.choice(self.cheats).did, "admin", rng.choice(own)))
            case "circle":
                said = encode_said(Revoke(rng.choice(grants), rng.choice([*own, *grants])))
            case "leave at once":
                node = rng.choice(own)
                said = encode_said(Revoke(node, node, rng.choice((None, ()))))
            case "replay":
                said = encode_said(Admit((rng.choice(entries).id,), rng.choice(own)))
            case "flood of policies":
                flood = Policy(sorted({signer.did, *self.policy.founders}), salt=rng.randbytes(16))
                upon, said = (
                    rng.choice(([], upon)),
                    {"gossiplog.access": {"founders": list(flood.founders), "k": flood.k, "salt": flood.salt}},
                )
            case "collude":
                pass
        parents = sorted({entry.key for entry in upon})
        entry = sign_entry(signer, self.replicas[0].topic, next_clock(parents), parents, pcf.encode(said))
        self.pool.setdefault(entry.key, entry)

    async def _give_everything(self) -> None:
        for log in self.replicas:
            entries = list(self.pool.values())
            self.rng.shuffle(entries)
            values = [entry.value for entry in entries]
            while any(verdict.is_new for verdict in await log.insert_many(values)):
                pass

    async def _check(self) -> dict[str, int]:
        first, *others = self.replicas
        root, members = await first.root(), {member.node: member for member in await first.members()}
        entries = [entry async for entry in first.iterate()]
        standings = {entry.id: await first.standing(entry.id) for entry in entries}
        counting = {id: standing for id, standing in standings.items() if standing.kind == "data" and standing.counts}
        for log in others:
            assert await log.root() == root, "roots differ"
            assert {member.node: member.is_held for member in await log.members()} == {
                node: member.is_held for node, member in members.items()
            }, "members differ"
            for id, standing in standings.items():
                theirs = await log.standing(id)
                assert (theirs.counts, theirs.kind, theirs.node) == (standing.counts, standing.kind, standing.node), (
                    f"the standing of {id} differs"
                )
        told = {(id, standing.node) for id, standing in counting.items()}
        for log in self.replicas:
            seen = set(await log.query("SELECT id, node FROM seen"))
            assert seen == told, f"void or lost: {seen ^ told}"
        return {
            "entries": len(entries),
            "refused": len(self.pool) - len(entries),
            "void": sum(not each.counts for each in standings.values()),
        }


def main() -> None:
    """Run seeds, and say what they were made of."""
    first, count = map(int, sys.argv[1:3])
    totals, began = dict.fromkeys(("entries", "refused", "void"), 0), time.process_time()
    for seed in range(first, first + count):
        try:
            done = trio.run(World(seed).run)
        except BaseException:
            print(f"seed {seed} fails", flush=True)
            raise
        for name, number in done.items():
            totals[name] += number
    print(f"{count} seeds from {first}: {totals}, {time.process_time() - began:.0f} s CPU", flush=True)


if __name__ == "__main__":
    main()
