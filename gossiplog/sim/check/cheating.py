"""Members in simulated replicas: what the founder says of them, how they cheat, and what must hold of their standings.

Replica 0 founds the log, in half of the seeds with the next one and a Byzantine one, and lets in all others as admins. Correct founders
remove some of them again, alone or by votes, honest ones too, who may not have heard of it. Some leave.
Byzantine ones sign upon whatever parents suit them: they backdate, use a second key, grant and remove in both directions, leave, admit, and
flood with policies. Upon which the others build, who cannot know better.

Source: docs/spec/access.md, "Proof".
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...access import Admit, Grant, Members, Policy, Revoke, encode_said, is_control
from ...codec import pcf
from ...entry.message import Entry
from ...entry.message_id import encode_id
from ...entry.rules import next_clock
from ...entry.signing import Ed25519Signer, sign_entry
from ...log.commit import InsertEntries, commit
from ...log.membership import Membership
from ...log.requests import ReadVoid
from ...plan import ask, run_plan
from ...store.memory.state import MemoryState
from .tables import StateWithTable, TablesTransaction

_UPON_MAX = 3


def random_said(rng: random.Random, state: MemoryState, founder: str, dids: Sequence[str]) -> bytes:
    """Have a founder let in or remove one of these, or a member leave."""
    members = _read_members(state)
    did = rng.choice(dids)
    nodes = [node.name for node in members.nodes.values() if node.did == did and not members.bars_of_node(node)]
    if dids == [founder]:
        return pcf.encode(encode_said(Revoke(nodes[-1], nodes[-1])) if nodes else "left")
    if not nodes:
        return pcf.encode(encode_said(Grant(did, "admin", founder)))
    adopt = tuple(node.name for node in members.nodes.values() if node.path[-2:-1] == (nodes[-1],)) if rng.random() < 0.3 else ()
    return pcf.encode(encode_said(Revoke(nodes[-1], founder, rng.choice((None, None, ())), adopt)))


def cheat(rng: random.Random, signers: Sequence[Ed25519Signer], topic: str, state: MemoryState) -> Entry:
    """Sign something by one of a cheat's keys, upon any entries that its log has."""
    members = _read_members(state)
    signer, entries = rng.choice(signers), [Entry.stored(rng.choice(state.values)) for _ in range(rng.randint(1, _UPON_MAX))]
    names = list(members.nodes)
    own = rng.choice([name for name, node in members.nodes.items() if node.did == signer.did] or names)
    other = rng.choice(names)
    said: Any = rng.choice(
        (
            Grant(rng.choice(signers).did, "admin", own),
            Grant(members.nodes[other].did, rng.choice(("read", "write", "admin")), own),
            Revoke(other, own, rng.choice((None, ()))),
            Revoke(own, own),
            Admit((entries[0].id,), own),
            None,
        )
    )
    payload: Any = {"cheat": rng.random()} if said is None else encode_said(said)
    parents = sorted({entry.key for entry in entries})
    if rng.random() < 0.1:
        flood = Policy((signer.did,), salt=rng.randbytes(16))
        payload, parents = {"gossiplog.access": {"founders": [signer.did], "k": 1, "salt": flood.salt}}, rng.choice(([], parents))
    return sign_entry(signer, topic, next_clock(parents), parents, pcf.encode(payload))


def _read_members(state: MemoryState) -> Members:
    membership = Membership()
    run_plan(membership.refresh(), state.answer)
    assert membership.members is not None
    return membership.members


def read_void(state: MemoryState, keys: Sequence[bytes]) -> set[bytes]:
    """Return what a replica's store says is void, of some entries, and what no application gets besides: control entries."""
    void: set[bytes] = run_plan(ask(ReadVoid(list(keys))), state.answer)
    return void


def judge_anew(topic: str, values: Sequence[bytes]) -> tuple[list[str], set[bytes]]:
    """Judge entries in the order of their keys, from nothing; return which do not belong, and what is void."""
    state, membership = StateWithTable(), Membership()
    entries = sorted(map(Entry.stored, values), key=lambda entry: entry.key)
    transaction = TablesTransaction(state)
    plan = partial(commit, [InsertEntries(entries)], topic=topic, now=0.0, membership=membership)
    (verdicts,) = transaction.run(plan()).outcomes
    assert not isinstance(verdicts, Exception)
    for request in transaction.writes:
        state.write(request)
    refused = [encode_id(entry.key) for entry, verdict in zip(entries, verdicts, strict=True) if not verdict.is_new]
    return refused, read_void(state, [entry.key for entry in entries if not is_control(entry)])
