"""Members in a checked history: author 0 founds the log and lets in the others, and each replica judges entries as a log does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from ..access import Grant, Policy, Revoke, encode_said
from ..codec import pcf
from ..entry.rules import next_clock
from ..entry.signing import Ed25519Signer, sign_entry
from ..log.access import Void
from ..log.commit import InsertEntries, LogRules, commit
from ..log.membership import Membership
from ..plan import Plan, Request, run_plan
from ..store.memory.state import WRITES, MemoryState

if TYPE_CHECKING:
    from ..entry.message import Entry

AUTHORS = 4
"""Authors 1 to 4 are members from the beginning; histories that were shrunk have fewer."""
_NAME = "gossiplog.access"


@dataclass(frozen=True, slots=True)
class Judged:
    """The outcome of adding entries.

    Attributes:
        entries: The new entries that belong to the log, in the order of arrival.
        shown: Those of them that an application gets.
        lost: Earlier entries that have become void, the latest first.
        regained: Earlier entries that are void no longer, parents first.
    """

    entries: Sequence[Entry]
    shown: Sequence[Entry]
    lost: Sequence[Entry] = ()
    regained: Sequence[Entry] = ()


class Judge:
    """The log of one replica, without an application."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._state = MemoryState()
        self._membership = Membership()
        self._void = Void()
        self._by_key: dict[bytes, Entry] = {}

    def take(self, entries: Sequence[Entry]) -> Judged:
        """Commit entries whose parents are in the log or were refused."""
        writes: list[Request[Any]] = []
        judged = run_plan(self._commit(entries), lambda request: self._answer(request, writes))
        for request in writes:
            self._state.write(request)
        self._by_key.update({entry.key: entry for entry in judged.entries})
        return judged

    def counting(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return those of some entries of the log that an application gets."""
        return run_plan(self._counting(entries), lambda request: self._answer(request, []))

    def _counting(self, entries: Sequence[Entry]) -> Plan[list[Entry]]:
        yield from self._membership.refresh()
        return (yield from self._membership.counting(entries))

    def _commit(self, entries: Sequence[Entry]) -> Plan[Judged]:
        membership = self._membership
        rules = LogRules(self._topic, void=self._void, membership=membership)
        committed = yield from commit([InsertEntries(entries)], rules, now=0.0)
        new, changed = [entry for _, entry in committed.entries], committed.changed
        shown = yield from membership.counting(new, changed.hidden)
        lost, regained = ([self._by_key[key] for key in sorted(keys)] for keys in (changed.lost, changed.regained))
        told = (yield from membership.changed(lost[::-1], counts=False)), (yield from membership.changed(regained, counts=True))
        return Judged(new, shown, *told)

    def _answer(self, request: Request[Any], writes: list[Request[Any]]) -> Any:
        if type(request) not in WRITES:
            return self._state.answer(request)
        writes.append(request)
        return None


@cache
def found(name: str, signers: tuple[Ed25519Signer, ...], role: str = "write", founders: tuple[int, ...] = (0,)) -> list[Entry]:
    """Make a policy, and grants by the first signer to those that are no founders, as a chain of entries."""
    policy = Policy(tuple(signers[number].did for number in founders), salt=bytes(16))
    topic = policy.topic(name)
    entries = [policy.entry(topic)]
    for signer in (signer for number, signer in enumerate(signers) if number not in founders):
        parents = [entries[-1].key]
        said = pcf.encode(encode_said(Grant(signer.did, role, signers[0].did)))
        entries.append(sign_entry(signers[0], topic, next_clock(parents), parents, said))
    return entries


def say(payload: Any, founder: str, dids: Sequence[str], past: Sequence[Entry]) -> Any:
    """Return the payload that grants or revokes, if a history's payload does so by an author's number; other payloads unchanged.

    Args:
        payload: From a history: `{"gossiplog.access": {"grant": 2}}`, or `{"revoke": 2}`, with `"keep": []` to keep none of its entries.
        founder: The did of author 0, under whose node the grant or revocation is made.
        past: The ancestors, including the founding entries, parents first.
    """
    match payload:
        case {"gossiplog.access": {"grant": int(author)}} if author < len(dids):
            return encode_said(Grant(dids[author], "write", founder))
        case {"gossiplog.access": {"revoke": int(author), **rest}} if author < len(dids):
            grants = [entry.id for entry in past if _granted(entry) == dids[author]]
            return encode_said(Revoke(grants[-1], founder, () if rest else None)) if grants else payload
    return payload


def _granted(entry: Entry) -> Any:
    said = entry.payload.get(_NAME) if isinstance(entry.payload, dict) else None
    return said.get("grant") if isinstance(said, dict) else None
