"""A hub that declines void entries, as a model: what it would lose, and whether its clients ever have what it has.

    python tests/support/declining_model.py FIRST COUNT        # seeds, one after the other

The hub is the most careful one that we could think of. It judges by everything that it is offered, takes what counts with all ancestors of
that, remembers the rest, and takes of it whatever counts later, from any client that still has it. Clients take everything, write upon all
that they have, meet each other, stay away for a while, and now and then leave for ever. A hub that stores whatever belongs is beside it.
"""

from __future__ import annotations

import random
import sys
from collections import Counter

from access_model import Entry, Model

ADMINS, WRITERS = ("ann", "bob"), ("cyd", "dan", "eve")


class DecliningWorld:
    """One seed: a founder, two admins and three writers, each with a replica, and a hub."""

    def __init__(self, seed: int, steps: int = 80) -> None:
        self.rng = random.Random(f"declining {seed}")
        self.model = Model(["founder"], 1)
        policy = Entry("", frozenset(), "policy")
        known = {policy}
        self.nodes: dict[str, Entry | str] = {"founder": "founder"}
        for did in (*ADMINS, *WRITERS):
            above = "founder" if did in ADMINS else self.rng.choice(("founder", *ADMINS))
            role = "admin" if did in ADMINS else "write"
            entry = Entry(above, self._heads(known), "grant", self.nodes[above], did=did, role=role)
            known.add(entry)
            self.nodes[did] = entry
        self.founded = self._heads(known)
        self.replicas = {did: set(known) for did in self.nodes}
        self.hub, self.stored = set(known), set(known)
        self.forced = 0
        for _ in range(steps):
            self._step()
        for _ in range(2):
            for did in self.replicas:
                self._sync(did)

    def figures(self) -> Counter[str]:
        """What the two hubs come to, in entries, and in replicas that would sync for ever."""
        standing, declining = (self._void(entries) for entries in (self.stored, self.hub))
        missing = self.stored - self.hub
        reach = set().union(*(self.replicas.get(did, set()) for did in ("founder", *ADMINS)))
        return Counter(
            {
                "stored": len(self.stored),
                "void": len(standing),
                "void, and here for an entry that counts": self.forced,
                "declined at the end": len(missing),
                "count, and are lost": len(missing - standing),
                "judged otherwise": len((standing ^ declining) & self.hub),
                "void data that no admin can admit": sum(each.kind == "data" and each not in reach for each in missing & standing),
                "replicas": len(self.replicas),
                "replicas that never agree with the hub": sum(has != self.hub for has in self.replicas.values()),
                "replicas that never agree with one that stores": sum(not has <= self.stored for has in self.replicas.values()),
            }
        )

    def _heads(self, entries: set[Entry]) -> frozenset[Entry]:
        return frozenset(entries).difference(*(entry.parents for entry in entries))

    def _void(self, entries: set[Entry]) -> set[Entry]:
        among = frozenset(entry for entry in entries if entry.kind not in ("data", "policy"))
        return {entry for entry in entries if entry.kind != "policy" and self.model.is_void(entry, among)}

    def _step(self) -> None:
        rng = self.rng
        did = rng.choice(list(self.replicas))
        match rng.choice(("data",) * 4 + ("sync",) * 4 + ("meet", "revoke", "revoke", "admit", "go")):
            case "sync":
                self._sync(did)
            case "meet":
                other = self.replicas[rng.choice(list(self.replicas))]
                self.replicas[did] |= other
                other |= self.replicas[did]
            case "go" if did not in ("founder", *ADMINS) and rng.random() < 0.5:
                del self.replicas[did]
            case "go":
                pass
            case kind:
                self._write(did, kind)

    def _write(self, did: str, kind: str) -> None:
        rng, has = self.rng, self.replicas[did]
        parents, under = self._heads(has), self.nodes[did]
        entry = Entry(did, parents)
        if kind == "revoke":
            node = rng.choice([self.nodes[each] for each in (*ADMINS, *WRITERS)])
            # Half of the time everything since the founding is undone, and those right below go on.
            children = frozenset(each for each in self.nodes.values() if isinstance(each, Entry) and each.under == node)
            keep, adopt = rng.choice(((None, frozenset[Entry]()), (self.founded, children)))
            entry = Entry(did, parents, kind, under, node=node, keep=keep, adopt=adopt)
        if kind == "admit":
            void = sorted((each for each in self._void(has) if each.kind == "data"), key=lambda each: (len(each.past), each.author))
            entry = Entry(did, parents, kind, under, ids=frozenset(void[:1]))
            if not void:
                return
        if self.model.belongs(entry):
            has.add(entry)

    def _sync(self, did: str) -> None:
        has = self.replicas[did]
        offered = self.hub | has
        void = self._void(offered)
        counting = offered - void
        taken = counting.union(*(entry.past for entry in counting))
        self.forced += len((taken - self.hub) & void)
        self.hub |= taken
        self.stored |= has
        has |= self.hub


def total(seeds: range) -> Counter[str]:
    """Add up the figures of some seeds."""
    return sum((DecliningWorld(seed).figures() for seed in seeds), Counter())


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:3])
    for what, number in total(range(first, first + count)).items():
        print(f"{number:8,}  {what}")
