"""Random histories with members for the model and for the room, and the room driven in memory as a log does it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import access_model

from gossiplog.access import NOTHING, Admit, Grant, Members, Policy, Revoke, View, encode_said, named_in
from gossiplog.codec import pcf
from gossiplog.entry.message import Entry
from gossiplog.entry.message_id import decode_id, encode_id
from gossiplog.entry.rules import next_clock
from gossiplog.entry.signing import Ed25519Signer, sign_entry

SIGNERS = [Ed25519Signer.from_seed(bytes([number]) * 32) for number in range(9)]
DIDS = [signer.did for signer in SIGNERS]


def key_of(number: int) -> bytes:
    """A key of the right form, which sorts as the histories do."""
    return bytes([1 + number // 100, number % 100]) + number.to_bytes(18)


class Driven:
    """The room, given entries in some causal order, with everything that a log's index would know."""

    def __init__(self, policy: Policy, members: type[Members] = Members) -> None:
        self.members = members(policy)
        self.past: dict[str, frozenset[str]] = {}
        self.after: dict[str, View] = {}
        self.data: dict[str, tuple[Any, ...]] = {}
        # By data entry the revocations within whose `keep` it is not.
        self.outside: dict[str, list[Any]] = {}

    def add(self, key: bytes, author: str, parents: Iterable[str], said: Any) -> str | None:
        """Judge an entry, and add it if it belongs; return why it does not."""
        id, parents = encode_id(key), list(parents)
        if not parents:
            self.past[id], self.after[id] = frozenset(), NOTHING
            return None
        members, past = self.members, frozenset(parents).union(*(self.past[parent] for parent in parents))
        view = self.join(parents)
        if said is None:
            nodes = members.holdings(author, view)
            if not nodes:
                return "no node"
            self.data[id] = nodes
            self.outside[id] = members.against(nodes)
            self.past[id], self.after[id] = past, view
            return None
        keep = said.keep if isinstance(said, Revoke) else None
        named = {each: each in self.data for each in named_in(said) if each in past}
        kept = view if keep is None else self.join([each for each in keep if each in past])
        reason = members.find_refusal(said, author, view, kept, named)
        if reason is not None:
            return reason
        control = members.add(key, said, view, kept)
        self.past[id], self.after[id] = past, control.view_after
        if isinstance(said, Revoke):
            keeps = parents if keep is None else keep
            inside = frozenset(keeps).union(*(self.past[each] for each in keeps))
            for each, nodes in self.data.items():
                if each not in inside and control in members.against(nodes):
                    self.outside[each].append(control)
        return None

    def join(self, ids: Iterable[str]) -> View:
        view = NOTHING
        for id in ids:
            view = view.union(self.after[id])
        return view

    def standings(self) -> dict[str, bool]:
        """Of every entry that belongs whether it counts."""
        members = self.members
        found = {control.id: not members.bars_of_control(control) for control in members.controls}
        for id, nodes in self.data.items():
            found[id] = not members.bars_of_data(id, nodes, self.outside[id])
        return found

    def held(self) -> dict[str, bool]:
        return {name: not self.members.bars_of_node(node) for name, node in self.members.nodes.items()}


class Story:
    """A random history, made step by step: each candidate is judged by the model, and what belongs is kept."""

    def __init__(self, rng: random.Random, steps: int) -> None:
        founders = DIDS[: rng.choice((1, 1, 2, 3, 3, 4))]
        self.policy = Policy(tuple(founders), rng.randint(len(founders) // 2 + 1, len(founders)), bytes(16))
        self.model = access_model.Model(founders, self.policy.k)
        self.rng = rng
        self.ids: dict[access_model.Entry, str] = {}
        # Key, author, parents, what it says, and whether it belongs.
        self.steps: list[SimpleNamespace] = []
        self.entries: list[access_model.Entry] = []
        self._number = 0
        self._take(access_model.Entry("", frozenset(), "policy"))
        while len(self.steps) < steps:
            self._take(self._candidate())

    def _take(self, entry: access_model.Entry) -> None:
        belongs = entry.kind == "policy" or self.model.belongs(entry)
        key = key_of(self._number)
        self._number += 1
        said = said_of(entry, self.ids)
        step = SimpleNamespace(key=key, id=encode_id(key), author=entry.author, said=said, belongs=belongs, entry=entry)
        step.parents = [self.ids[parent] for parent in sorted(entry.parents, key=self.ids.__getitem__)]
        if belongs:
            self.ids[entry] = step.id
            self.entries.append(entry)
        self.steps.append(step)

    def _some(self, pool: list[Any], most: int) -> frozenset[Any]:
        return frozenset(self.rng.sample(pool, min(len(pool), self.rng.randint(0, most))))

    def _candidate(self) -> access_model.Entry:
        rng, pool = self.rng, self.entries
        recent = pool[-6:] if rng.random() < 0.7 else pool
        parents = frozenset(rng.sample(recent, min(len(recent), rng.choice((1, 1, 1, 2, 3)))))
        past = [entry for entry in pool if entry in parents or any(entry in parent.past for parent in parents)]
        seen = past if rng.random() < 0.95 else pool
        grants = [entry for entry in seen if entry.kind == "grant"]
        nodes: list[Any] = [*self.model.founders, *grants]
        under = rng.choice(grants if grants and rng.random() < 0.6 else nodes)
        author = self.model.did(under) if rng.random() < 0.95 else rng.choice(DIDS)
        kind = rng.choice(("data", "data", "data", "grant", "grant", "grant", "revoke", "revoke", "revoke", "admit"))
        entry = access_model.Entry(author, parents, kind)
        if kind == "data":
            return entry
        entry.under = under
        if kind == "grant":
            entry.did, entry.role = rng.choice(DIDS), rng.choice(("read", "write", "admin", "admin", "admin"))
        elif kind == "revoke":
            below = [node for node in nodes if under in self.model.path(node) and (node != under or rng.random() < 0.2)] or nodes
            above = [node.under for node in nodes if isinstance(node, access_model.Entry) and node.under in below]
            entry.node = rng.choice((above or below) if rng.random() < 0.3 else below if rng.random() < 0.6 else nodes)
            # Against somebody who acts elsewhere, unseen.
            actors = [each for each in pool if each.kind in ("admit", "revoke") and each.under in grants and each not in past]
            if actors and rng.random() < 0.5:
                actor = rng.choice([each for each in actors if each.kind == "admit"] or actors)
                entry.node, entry.under = actor.under, actor.under.under
                entry.author = self.model.did(entry.under)
            if rng.random() < 0.4:
                entry.keep = self._some(seen, 2)
            if rng.random() < 0.5:
                mine = [each for each in seen if each.kind == "grant" and each.under == entry.node]
                entry.adopt = self._some(mine if rng.random() < 0.9 else [each for each in seen if each.kind == "grant"], 2)
        else:
            revoking = [each for each in seen if each.kind == "revoke"]
            if revoking and rng.random() < 0.8:
                entry.under = rng.choice(self.model.path(rng.choice(revoking).under))
                entry.author = self.model.did(entry.under)
            data = [each for each in seen if each.kind == "data"]
            entry.ids = self._some(data if rng.random() < 0.9 else seen, 6) or frozenset(seen[-1:])
        return entry

    def standings(self) -> dict[str, bool]:
        """The model's answer for every entry that belongs, at the end."""
        among = frozenset(entry for entry in self.entries if entry.kind not in ("data", "policy"))
        return {self.ids[entry]: not self.model.is_void(entry, among) for entry in self.entries if entry.kind != "policy"}

    def shuffled(self, rng: random.Random) -> list[SimpleNamespace]:
        """The same candidates in another causal order."""
        waiting, order, known = list(self.steps[1:]), [self.steps[0]], {self.steps[0].id}
        while waiting:
            ready = [step for step in waiting if known.issuperset(step.parents)]
            step = rng.choice(ready)
            waiting.remove(step)
            order.append(step)
            known.add(step.id)
        return order


def said_of(entry: access_model.Entry, ids: Mapping[Any, str]) -> Any:
    """What an entry of the model says, by ids."""

    def names(nodes: Iterable[Any]) -> tuple[str, ...]:
        return tuple(sorted(ids.get(node, node) for node in nodes))

    under = ids.get(entry.under, entry.under)
    match entry.kind:
        case "grant":
            return Grant(entry.did, entry.role, under)
        case "revoke":
            keep = None if entry.keep is None else names(entry.keep)
            return Revoke(ids.get(entry.node, entry.node), under, keep, names(entry.adopt))
        case "admit":
            return Admit(names(entry.ids), under)
    return None


def sign_story(told: Story, name: str) -> list[tuple[Entry, bool]]:
    """The history as signed entries, and whether each belongs; they stand in causal order."""
    topic = told.policy.topic(name)
    ids: dict[Any, str] = {}
    signed = []
    for number, step in enumerate(told.steps):
        if step.entry.kind == "policy":
            entry = told.policy.entry(topic)
        else:
            said = said_of(step.entry, ids)
            payload = pcf.encode({"n": number} if said is None else encode_said(said))
            parents = [decode_id(ids[parent]) for parent in step.entry.parents]
            entry = sign_entry(SIGNERS[DIDS.index(step.author)], topic, next_clock(parents), parents, payload)
        if step.belongs:
            ids[step.entry] = entry.id
        signed.append((entry, step.belongs))
    return signed


@lru_cache(maxsize=512)
def story(seed: int, steps: int = 40) -> Story:
    """The history of a seed."""
    return Story(random.Random(seed), steps)
