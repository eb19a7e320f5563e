"""The one place where entries come into a log: the plan of a transaction, the same for every store.

A batch of work becomes rows, heads, edges and a change of the tree, which one request writes. Nothing is written if the plan raises. An
error of one caller's work is that caller's outcome; an error of the store ends the whole batch.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from ..entry.message import Entry
from ..entry.message_id import clock_of, encode_id
from ..entry.rules import VALUE_BYTES_DEFAULT, next_clock
from ..entry.signing import Signer, sign_entry
from ..entry.validation import Outcome, Rule, Verdict
from ..errors import DamagedLog, GossipLogError, NotAuthorised, StoreError
from ..plan import Call, Plan, ask
from ..tree.node import Node, leaf_hash
from ..tree.writer import update
from . import requests
from .access import AccessRule, Void
from .membership import Changed, Membership
from .past import Past

HEADS_MERGED_MAX = 256
"""An append has at most this many heads as its parents, those with the lowest ids; the next append takes the rest.

Source: docs/spec/entries.md, "Entry".
"""


@dataclass(frozen=True, slots=True, eq=False)
class AppendPayloads:
    """Payloads in PCF to sign and append, all or none."""

    payloads: Sequence[bytes]
    signer: Signer


@dataclass(frozen=True, slots=True, eq=False)
class InsertEntries:
    """Entries made elsewhere that `validate` accepted, parents first. Each has its own outcome.

    Attributes:
        is_retry: Whether to try quarantined entries again, and release those that pass.
    """

    entries: Sequence[Entry]
    is_retry: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class LogRules:
    """What decides which entries a log accepts.

    Attributes:
        rule: The access rule; None allows everything.
        void: Entries that were refused before. Refused entries are added to it.
        membership: Of a log with a policy. It is asked before the rule.
        value_bytes_max: The largest VALUE of an append.
    """

    topic: str
    rule: AccessRule | None = None
    void: Void = field(default_factory=Void)
    membership: Membership | None = None
    value_bytes_max: int = VALUE_BYTES_DEFAULT


@dataclass(slots=True)
class Committed:
    """The result of a batch.

    Attributes:
        entries: The new entries with their insertion numbers.
        outcomes: For each piece of work its verdicts, one per entry, or the error for its caller.
        owners: For each new key the index of its piece of work.
        last: The last insertion number before the batch.
        siblings_max: The number of children of the widest node of the tree that was touched.
        changed: Which entries count and which do not any more, in a log with members.
    """

    entries: list[tuple[int, Entry]] = field(default_factory=list)
    outcomes: list[list[Verdict] | Exception] = field(default_factory=list)
    owners: dict[bytes, int] = field(default_factory=dict)
    last: int = 0
    siblings_max: int = 0
    changed: Changed = field(default_factory=Changed)


def commit(
    work: Sequence[AppendPayloads | InsertEntries], rules: LogRules, *, now: float, failed: Mapping[int, Exception] | None = None
) -> Plan[Committed]:
    """Bring a batch of work into the log.

    Args:
        work: Done in this order; later pieces build on earlier ones.
        now: Unix time in seconds, for the quarantine's records.
        failed: Errors of `apply` in an earlier attempt at this batch, by index of the piece of work. They are the outcomes of these pieces.
    """
    batch = _Batch(rules, now)
    yield from batch.read(work)
    for index, piece in enumerate(work):
        error = (failed or {}).get(index)
        if error is not None:
            batch.committed.outcomes.append(error)
        elif isinstance(piece, AppendPayloads):
            yield from batch.append(index, piece)
        else:
            yield from batch.insert(index, piece)
    yield from batch.write()
    return batch.committed


def restore(rows: Sequence[tuple[int, Entry]], rules: LogRules, *, now: float) -> Plan[list[Verdict]]:
    """Bring back entries that a repair took out, each with the `seq` that it had; return a verdict for each.

    Args:
        rows: `(seq, entry)` in order of seq, each valid.
        rules: Without an access rule. The membership is rebuilt.
        now: Unix time in seconds, for the quarantine's records.
    """
    batch = _Batch(rules, now)
    yield from batch.read([InsertEntries([entry for _, entry in rows])])
    verdicts = []
    for seq, entry in rows:
        verdicts.append((yield from batch.restore(seq, entry)))
    yield from batch.write()
    return verdicts


class _Batch:
    """A transaction in the making: what was read from the store, and what has been added."""

    def __init__(self, rules: LogRules, now: float) -> None:
        self.committed = Committed()
        self._rules = rules
        self._membership = rules.membership
        self._rule = rules.rule
        self._has_rules = rules.rule is not None or rules.membership is not None
        self._void = rules.void
        self._now = now
        self._new: dict[bytes, Entry] = {}
        self._leaves: dict[bytes, requests.Leaf] = {}
        self._quarantined: dict[bytes, requests.Aside] = {}
        self._released: list[bytes] = []
        self._set_aside: list[requests.Quarantined] = []
        self._tips: dict[int, int] = {}
        self._reach: dict[tuple[int, int], int] = {}
        # Branches that began in this batch have no links in the store.
        self._first_new_branch = 0
        self._next_branch = 0
        self._next_seq = 1
        self._rows: list[requests.Row] = []
        self._links: list[requests.BranchLink] = []
        self._stored_heads: list[bytes] = []
        self._new_heads: dict[bytes, None] = {}
        self._merged: dict[bytes, None] = {}

    def read(self, work: Sequence[AppendPayloads | InsertEntries]) -> Plan[None]:
        """Read everything that the batch needs from the store, in a few requests."""
        appends = sum(len(piece.payloads) for piece in work if isinstance(piece, AppendPayloads))
        inserts = [entry for piece in work if isinstance(piece, InsertEntries) for entry in piece.entries]
        wanted: dict[bytes, None] = {}
        if appends:
            # Enough heads for each append, however many of them the inserts before it merge.
            merged_max = sum(len(entry.parent_keys) for entry in inserts)
            self._stored_heads = yield from ask(requests.ReadHeads(HEADS_MERGED_MAX * appends + merged_max))
            wanted = dict.fromkeys(self._stored_heads)
        if inserts:
            wanted.update(dict.fromkeys([entry.key for entry in inserts]))
            wanted.update(dict.fromkeys(chain.from_iterable([entry.parent_keys for entry in inserts])))
        self._leaves = (yield from ask(requests.ReadLeaves(list(wanted)))) if wanted else {}
        missing = [key for key in wanted if key not in self._leaves]
        lost = next((key for key in self._stored_heads if key not in self._leaves), None)
        if lost is not None:
            raise DamagedLog(f"the head {encode_id(lost)} is not in the log")
        if missing:
            self._quarantined = yield from ask(requests.ReadQuarantined(missing))
        branches = {leaf.branch for leaf in self._leaves.values()}
        self._tips = yield from ask(requests.ReadBranchTips(sorted(branches)))
        self._first_new_branch = self._next_branch = self._tips.pop(-1) + 1
        for key, leaf in self._leaves.items():
            if self._tips.get(leaf.branch, 0) < clock_of(key):
                raise DamagedLog(f"entry {encode_id(key)} is not on the branch {leaf.branch} that it is said to be on")
        if self._membership is not None:
            yield from self._membership.refresh()
        _, last = yield from ask(requests.ReadCount(counted=False))
        self.committed.last = last
        self._next_seq = last + 1

    def append(self, index: int, piece: AppendPayloads) -> Plan[None]:
        """Sign payloads, each on top of the one before, and add them."""
        entries: list[tuple[Entry, int, list[bytes]]] = []
        heads = self._heads()
        mark = 0 if self._membership is None else self._membership.mark()
        topic, bytes_max = self._rules.topic, self._rules.value_bytes_max
        try:
            for payload in piece.payloads:
                parents = heads[:HEADS_MERGED_MAX]
                clock = next_clock(parents)
                entry = sign_entry(piece.signer, topic, clock, parents, payload, value_bytes_max=bytes_max)
                if self._has_rules:
                    answer = yield from self._ask_rules(entry)
                    if answer is not True:
                        cause = answer if isinstance(answer, Exception) else None
                        raise NotAuthorised(self._refusal(entry, answer)) from cause
                    self._new[entry.key] = entry
                entries.append((entry, clock, parents))
                del heads[:HEADS_MERGED_MAX]
                insort(heads, entry.key)
        except StoreError:
            raise
        except GossipLogError as error:
            if self._membership is not None:
                self._membership.back_to(mark)
            self.committed.outcomes.append(error)
            return
        for entry, clock, merged in entries:
            yield from self._add(index, entry, clock, merged)
        self.committed.outcomes.append([Verdict(Outcome.ACCEPT, entry=entry, is_new=True) for entry, _, _ in entries])

    def insert(self, index: int, piece: InsertEntries) -> Plan[None]:
        """Add the entries that are new and not refused, and whose parents are here."""
        verdicts: list[Verdict] = []
        for entry in piece.entries:
            verdict = yield from self._judge(entry, piece.is_retry)
            if verdict.is_new:
                yield from self._add(index, entry, entry.envelope.clock, entry.parent_keys)
            verdicts.append(verdict)
        self.committed.outcomes.append(verdicts)

    def restore(self, seq: int, entry: Entry) -> Plan[Verdict]:
        """Add an entry under the `seq` that it had before, if its parents are here."""
        verdict = yield from self._judge(entry, is_retry=True)
        if verdict.is_new:
            self._next_seq = seq
            yield from self._add(0, entry, entry.envelope.clock, entry.parent_keys)
        return verdict

    def write(self) -> Plan[None]:
        """Write everything that was added or set aside."""
        if self._set_aside or self._released:
            yield from ask(requests.WriteQuarantine(self._set_aside, self._released))
        if not self._rows:
            return
        tree = yield from update(sorted([Node(0, row.key, row.hash) for row in self._rows]))
        self.committed.siblings_max = tree.siblings_max
        yield from ask(requests.WriteEntries(self._rows, self._links, list(self._new_heads), list(self._merged), tree))
        if self._membership is not None:
            self.committed.changed = yield from self._membership.finish({entry.key: entry for _, entry in self.committed.entries})

    def _heads(self) -> list[bytes]:
        if self._merged:
            self._stored_heads = [key for key in self._stored_heads if key not in self._merged]
        return sorted([*self._stored_heads, *self._new_heads])

    def _judge(self, entry: Entry, is_retry: bool) -> Plan[Verdict]:
        key = entry.key
        if key in self._leaves:
            return Verdict(Outcome.ACCEPT, entry=entry)
        record = self._quarantined.get(key)
        if record is not None and not is_retry:
            return Verdict(Outcome.IGNORE, Rule.QUARANTINED, record.reason, entry)
        missing = [parent for parent in entry.parent_keys if parent not in self._leaves]
        if self._has_rules and not (self._rule is None and not missing and self._is_of_a_member(entry)):
            reason = yield from self._find_refusal(entry, missing)
            if reason is not None:
                return Verdict(Outcome.IGNORE, Rule.ACCESS, reason, entry)
        if not missing:
            if record is not None:
                self._released.append(key)
                del self._quarantined[key]
            return Verdict(Outcome.ACCEPT, entry=entry, is_new=True)
        blocked = next((parent for parent in missing if parent in self._quarantined), None)
        if blocked is None:
            return Verdict(Outcome.IGNORE, Rule.PARENTS, _describe_missing(missing), entry)
        if record is not None:
            self._released.append(key)
        reason = f"parent {encode_id(blocked)} is in the quarantine"
        aside = requests.Aside("ancestor", reason, self._now if record is None else record.since)
        self._set_aside.append(requests.Quarantined(key, entry.value, *aside))
        self._quarantined[key] = aside
        return Verdict(Outcome.IGNORE, Rule.QUARANTINED, reason, entry)

    def _is_of_a_member(self, entry: Entry) -> bool:
        """Tell whether an entry is a member's data, so that no more questions are needed. This is by far the most frequent case."""
        if self._membership is None or self._membership.judge(entry, self._leaves) is not True:
            return False
        self._new[entry.key] = entry
        return True

    def _find_refusal(self, entry: Entry, missing: Sequence[bytes]) -> Plan[str | None]:
        """Say why an entry has no place in the log; None if it has one, or if that cannot be told while parents are missing."""
        key = entry.key
        if key in self._void:
            return self._void[key]
        void = next((parent for parent in missing if parent in self._void), None)
        if void is not None:
            reason = f"its parent {encode_id(void)} was refused"
            self._void.add(key, reason)
            return reason
        if missing:
            return None
        answer = yield from self._ask_rules(entry)
        if answer is True:
            self._new[key] = entry
            return None
        reason = self._refusal(entry, answer)
        self._void.add(key, reason)
        self._void.news.append((entry, reason))
        return reason

    def _refusal(self, entry: Entry, answer: bool | str | Exception) -> str:
        if isinstance(answer, str):
            return answer
        # If the rule raises on an entry, the entry is refused. Otherwise anybody could block all entries by making one such entry.
        if isinstance(answer, Exception) and self._rule is not None:
            return f"the access rule {self._rule.name} raised {type(answer).__name__}: {answer}"
        return f"{entry.author} is not authorised"

    def _ask_rules(self, entry: Entry) -> Plan[bool | str | Exception]:
        """Ask the membership about an entry, and then the access rule.

        Returns:
            True if both allow it; else the membership's reason, the rule's False, or the exception that the rule raised.
        """
        membership = self._membership
        if membership is None:
            return (yield from self._ask_rule(entry))
        mark = membership.mark()
        belongs = membership.judge(entry, self._leaves)
        if belongs is False:
            belongs = (yield from membership.judge_control(entry, self._new)) or True
        if belongs is not True or self._rule is None:
            return belongs
        answer = yield from self._ask_rule(entry)
        if answer is not True:
            membership.back_to(mark)
        return answer

    def _ask_rule(self, entry: Entry) -> Plan[bool | Exception]:
        rule = self._rule
        if rule is None:
            return True
        if not rule.asks_past:
            return rule.ask(entry)
        new = self._new
        return (yield from ask(Call(lambda transaction: rule.ask(entry, Past(entry.parent_keys, new, transaction.run)))))

    def _add(self, index: int, entry: Entry, clock: int, parent_keys: Sequence[bytes]) -> Plan[None]:
        key = entry.key
        seq = self._next_seq
        self._next_seq += 1
        if len(parent_keys) == 1:
            # By the clock rule, the parent's clock is one less. This is by far the most frequent case.
            parents = [requests.Position(self._leaves[parent_keys[0]].branch, clock - 1)]
        else:
            parents = sorted({requests.Position(self._leaves[parent].branch, clock_of(parent)) for parent in parent_keys})
        branch = next((at.branch for at in parents if self._tips[at.branch] == at.clock), None)
        if branch is None:
            branch = self._next_branch
            self._next_branch += 1
        tip = self._tips.get(branch)
        for parent in parents:
            if parent != (branch, tip):
                reach = max(parent.clock, (yield from self._read_reach(branch, clock, parent.branch)))
                self._reach[branch, parent.branch] = reach
                self._links.append(requests.BranchLink(requests.Position(branch, clock), parent, reach))
        self._tips[branch] = clock
        for parent_key in parent_keys:
            if parent_key in self._new_heads:
                del self._new_heads[parent_key]
            else:
                self._merged[parent_key] = None
        if self._membership is not None:
            self._membership.note(key, branch, clock)
        self._new_heads[key] = None
        self._leaves[key] = requests.Leaf(seq, branch)
        self._rows.append(requests.Row(seq, key, entry.value, leaf_hash(key, entry.value), branch, clock))
        self.committed.entries.append((seq, entry))
        self.committed.owners[key] = index

    def _read_reach(self, branch: int, clock: int, parent_branch: int) -> Plan[int]:
        """Return the highest clock on the parent's branch to which the child's branch has linked before."""
        known = self._reach.get((branch, parent_branch))
        if known is not None:
            return known
        if branch >= self._first_new_branch:
            return 0
        found = yield from ask(requests.ReadLinksDown(requests.Position(branch, clock), parent_branch - 1))
        return found.clock if found is not None and found.branch == parent_branch else 0


def _describe_missing(missing: Sequence[bytes]) -> str:
    shown = ", ".join(_ids(missing[:3]))
    return f"missing parent {shown}" if len(missing) == 1 else f"{len(missing)} missing parents: {shown}{', …' if len(missing) > 3 else ''}"


def _ids(keys: Sequence[bytes]) -> Iterator[str]:
    return (encode_id(key) for key in keys)
