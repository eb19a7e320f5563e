"""Members in simulated replicas: how founders change them, how members cheat, and how a log's entries are judged again.

Replica 0 founds the log, in half of the seeds together with the next one and a Byzantine one, and lets in all others as admins. Correct
founders remove some members again, alone or by votes. These may be honest, and may not have heard of their removal. Some members leave.
Byzantine members sign on top of any parents that suit them: they backdate, use a second key, grant and revoke in both directions, leave,
admit, and flood the log with policies. Honest replicas build on such entries, because they cannot tell.

Source: docs/spec/access.md, "Proof".
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from ...access import Admit, Grant, Members, Policy, Revoke, encode_said, is_control
from ...codec import pcf
from ...entry.message import Entry
from ...entry.message_id import encode_id
from ...entry.rules import next_clock
from ...entry.signing import Ed25519Signer, sign_entry
from ...log.commit import InsertEntries, LogRules, commit
from ...log.membership import Membership
from ...log.requests import ReadVoid
from ...plan import ask, run_plan
from ...store.memory.state import MemoryState
from .tables import StateWithTable, TablesTransaction

_UPON_MAX = 3


def random_said(rng: random.Random, state: MemoryState, founder: str, dids: Sequence[str]) -> bytes:
    """Return the payload with which a founder lets in or removes a member.

    Args:
        dids: The members to choose from. If `founder` is the only one, it leaves.
    """
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
    """Sign a grant, revocation, admission, policy or plain entry by one of a cheat's keys, on top of any entries of its log."""
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
    """Return which of some entries are void according to a replica's store."""
    void: set[bytes] = run_plan(ask(ReadVoid(list(keys))), state.answer)
    return void


def judge_anew(topic: str, values: Sequence[bytes]) -> tuple[list[str], set[bytes]]:
    """Commit entries in the order of their keys to an empty log; return the ids of those that do not belong, and the keys of void ones."""
    state, membership = StateWithTable(), Membership()
    entries = sorted(map(Entry.stored, values), key=lambda entry: entry.key)
    transaction = TablesTransaction(state)
    (verdicts,) = transaction.run(commit([InsertEntries(entries)], LogRules(topic, membership=membership), now=0.0)).outcomes
    assert not isinstance(verdicts, Exception)
    for request in transaction.writes:
        state.write(request)
    refused = [encode_id(entry.key) for entry, verdict in zip(entries, verdicts, strict=True) if not verdict.is_new]
    return refused, read_void(state, [entry.key for entry in entries if not is_control(entry)])
