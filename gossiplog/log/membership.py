"""Membership of a log: the rules of `gossiplog.access`, driven by the log's plans, and the rows that a store keeps for them.

Theory of operation. The state in memory is that of the store's rows up to one of them. Each transaction begins with `refresh`, which reads
the rows that others have added. Entries are judged one by one as they come in (`judge`, `judge_control`) and noted at their place (`note`).
At the end of the transaction, `finish` finds which data became void or counts again, and writes all changes. A view is stored only where it
changes along a branch, so a log has rows for its control entries and the merges after them, not for its data.

Changes of a transaction are in memory before the commit. If it is rolled back, the next `refresh` sees that the store's last row is another
one, and undoes them.

Invariants:
    1. After `refresh` the state is that of the store within the transaction.
    2. Data is touched by each revocation that counts and reaches one of its nodes, unless the data is within its `keep`. Each such pair is
       stored. Pairs with a void revocation are found only when it counts, because a removed admin may sign any number of these.
    3. Data is void in the store if it is void by the state after `finish`.

One task at a time may use a membership: the log's writer has one, its readers share another.

Source: docs/spec/access.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .. import access
from ..entry.message import Entry
from ..entry.message_id import clock_of, decode_id, encode_id
from ..entry.standing import Standing
from ..errors import DamagedLog, DecodeError, NotFound
from ..plan import Plan, ask
from .past import Behind
from .requests import (
    Leaf,
    MemberRow,
    ReadHeads,
    ReadLeaves,
    ReadMembers,
    ReadTail,
    ReadTouched,
    ReadTouchedBy,
    ReadValues,
    ReadVoid,
    WriteMembers,
)

_PAGE = 1_000
_DID_AT_MAX = 32
"""An author begins at most so far into a VALUE: after two array heads and the scheme's name."""
_WALKED_MAX = 2_000
"""After this many entries a walk is given up for a scan, which looks at more entries, but takes a hundredth of the time for each."""


@dataclass(slots=True)
class Changed:
    """What a transaction changed for applications.

    Attributes:
        hidden: Keys of new entries that no application gets: control entries and void data.
        lost: Keys of earlier data that became void.
        regained: Keys of earlier data that counts again.
    """

    hidden: set[bytes] = field(default_factory=set)
    lost: list[bytes] = field(default_factory=list)
    regained: list[bytes] = field(default_factory=list)


class Membership:
    """The members of one log: they decide who may write, and which entries count.

    Attributes:
        members: The rules with their state; None until the policy's entry is here.
    """

    def __init__(self) -> None:
        self.members: access.Members | None = None
        # Number and key of the last known row, and of the last one before this transaction.
        self._last: tuple[int, bytes] = (0, b"")
        self._last_before = self._last
        self._controls_before = -1
        # For each branch, the views after its entries: ascending clocks, and the view that holds from each on.
        self._views: dict[int, tuple[list[int], list[access.View]]] = {}
        self._policy_key = b""
        # The numbers of revocations and admissions that are void.
        self._void: set[int] = set()
        # The standing of a node's data while it counts, by the node's name.
        self._counting: dict[str, Standing] = {}
        # Of this transaction: new rows; the view before the entry being judged; and by key, the views after entries, the views that control
        # entries keep, and the revocations that touch data.
        self._rows: list[MemberRow] = []
        self._view = access.NOTHING
        self._after: dict[bytes, access.View] = {}
        self._said: dict[bytes, bytes] = {}
        self._touched: dict[bytes, set[int]] = {}

    def refresh(self) -> Plan[None]:
        """Begin a transaction or the reading of a snapshot: undo uncommitted changes, and read the rows that others have added."""
        rows = yield from self._read_on()
        if not self._is_last(rows):
            self.back_to(self._controls_before)
            for row in reversed(self._rows):
                for values in self._views[row.branch]:
                    values.pop()
            self._last = self._last_before
            self._void = self._find_void()
            rows = yield from self._read_on()
        if not self._is_last(rows):
            # The tables were rebuilt.
            self.__dict__.update(Membership().__dict__)
            rows = yield from self._read_on()
        new = rows[1:] if self._last[0] else rows
        while new:
            yield from self._load(new)
            new = yield from ask(ReadMembers(self._last[0], _PAGE))
        self._rows, self._after, self._said, self._touched = [], {}, {}, {}
        self._last_before, self._controls_before = self._last, self.mark()

    def mark(self) -> int:
        """Return a mark for `back_to`."""
        return -1 if self.members is None else len(self.members.controls)

    def back_to(self, mark: int) -> None:
        """Forget the control entries that were judged since `mark` and not noted, because their append failed."""
        if mark < 0:
            self.members = None
        while self.members is not None and len(self.members.controls) > mark:
            self.members.take_back()

    def judge(self, entry: Entry, leaves: Mapping[bytes, Leaf]) -> str | bool:
        """Judge an entry. If the answer is True, its children can be judged next.

        Args:
            leaves: The places of its parents, except for those that were judged in this transaction.

        Returns:
            True if it is data or a policy that belongs in the log; a reason if it does not; False for a control entry, which
            `judge_control` decides.
        """
        parents = entry.parent_keys
        if not parents:
            return self._judge_policy(entry) or True
        members = self.members
        if members is None:
            return "the log has no policy yet"
        view = self._view_after(parents[0], leaves)
        for parent in parents[1:]:
            view = view.union(self._view_after(parent, leaves))
        if access.is_control(entry):
            self._view = view
            return False
        author = entry.author
        nodes = members.holdings(author, view)
        if not nodes:
            return members.explain_absence(author, view)
        if members.revocations and (against := members.against(nodes)):
            self._touched[entry.key] = {each.index for each in against} - self._void
        self._after[entry.key] = view
        return True

    def judge_control(self, entry: Entry, new: Mapping[bytes, Entry]) -> Plan[str | None]:
        """Say why the control entry that `judge` was just called with does not belong; None if it does."""
        members, view, author = self.members, self._view, entry.author
        assert members is not None
        try:
            said = access.parse_said(entry)
        except DecodeError as error:
            return f"a control entry without a form: {error}"
        # First, so that a stranger cannot cause lookups of the entries it names.
        stranger = members.find_stranger(said, author, view)
        if stranger is not None:
            return stranger
        named: dict[str, bool] = {}
        if ids := access.named_in(said):
            before = Behind(entry.parent_keys, new)
            for id in ids:
                key = decode_id(id)
                if (yield from before.has(key)):
                    named[id] = key not in members.by_key and key != self._policy_key
        kept = view
        if isinstance(said, access.Revoke) and said.keep is not None:
            keys = [decode_id(id) for id in named]
            places = yield from ask(ReadLeaves(keys))
            kept = access.NOTHING
            for key in keys:
                kept = kept.union(self._view_after(key, places))
        reason = members.find_refusal(said, author, view, kept, named)
        if reason is None:
            control = members.add(entry.key, said, view, kept)
            self._after[entry.key] = control.view_after
            self._said[entry.key] = access.encode_view(kept) if isinstance(said, access.Revoke) else b""
        return reason

    def note(self, key: bytes, branch: int, clock: int) -> None:
        """Note the place of an entry that was judged in this transaction. Call it in order along each branch."""
        after, kept = self._after[key], self._said.get(key)
        if branch not in self._views:
            self._views[branch] = [], []
        clocks, views = self._views[branch]
        if kept is None and after == (views[-1] if views else access.NOTHING):
            return
        before = after if self.members is None or key not in self.members.by_key else self.members.by_key[key].view
        clocks.append(clock)
        views.append(after)
        row = MemberRow(self._last[0] + 1, key, branch, clock, access.encode_view(before), kept)
        self._rows.append(row)
        self._last = row.n, key

    def finish(self, new: Mapping[bytes, Entry]) -> Plan[Changed]:
        """Find the entries whose standing this transaction changes, and write all changes."""
        changed = Changed()
        members = self.members
        if members is None:
            return changed
        self._touched = {key: indexes for key, indexes in self._touched.items() if key in new}
        added = [members.by_key[key] for key in self._said if key in members.by_key and key in new]
        changed.hidden.update(self._said)
        revoked = [control for control in added if isinstance(control.said, access.Revoke)]
        flipped: set[int] = set()
        if revoked:
            void = self._find_void()
            flipped, self._void = void ^ self._void, void
            for control in [*revoked, *(members.controls[index] for index in flipped)]:
                if control.index not in void and isinstance(control.said, access.Revoke):
                    for key in (yield from self._find_outside(control, new)):
                        self._touched.setdefault(key, set()).add(control.index)
        keys = set(self._touched)
        keys.update((yield from ask(ReadTouchedBy(sorted(flipped)))) if flipped else ())
        for control in [*added, *(members.controls[index] for index in flipped)]:
            if isinstance(control.said, access.Admit):
                keys.update(map(decode_id, control.said.ids))
        void_now: list[bytes] = []
        ordered = sorted(keys)
        for low in range(0, len(ordered), _PAGE):
            page = ordered[low : low + _PAGE]
            stored = [key for key in page if key not in new]
            before = (yield from ask(ReadVoid(stored))) if stored else set()
            bars = yield from self._bars(page, new)
            void_now += [key for key in page if bars[key] and key not in before]
            changed.regained += [key for key in stored if key in before and not bars[key]]
        changed.hidden.update(key for key in void_now if key in new)
        changed.lost = [key for key in void_now if key not in new]
        touched = [(key, index) for key, indexes in sorted(self._touched.items()) for index in sorted(indexes)]
        if self._rows or touched or void_now or changed.regained:
            yield from ask(WriteMembers(self._rows, touched, void_now, changed.regained))
        return changed

    def counting(self, entries: Sequence[Entry], hidden: Collection[bytes] = ()) -> Plan[list[Entry]]:
        """Return the data among some entries that counts, each with its standing: those that an application may see.

        Args:
            entries: Stored, or of this transaction.
            hidden: Keys to leave out, as `finish` returns them.
        """
        members = self.members
        data = [entry for entry in entries if entry.key not in hidden and not access.is_control(entry)]
        if members is None or not data:
            return []
        stored = [entry.key for entry in data if entry.key not in self._after]
        void = (yield from ask(ReadVoid(stored))) if stored else set()
        places = (yield from ask(ReadLeaves(stored))) if stored else {}
        return [self._told(members, entry, places) for entry in data if entry.key not in void]

    def changed(self, entries: Sequence[Entry], *, counts: bool) -> Plan[list[Entry]]:
        """Return data that `finish` reported as lost or regained, each with its new standing."""
        members = self.members
        if members is None or not entries:
            return []
        places = yield from ask(ReadLeaves([entry.key for entry in entries]))
        told = [self._told(members, entry, places) for entry in entries]
        return told if counts else [entry.with_standing(replace(entry.standing, counts=False)) for entry in told if entry.standing]

    def _told(self, members: access.Members, entry: Entry, places: Mapping[bytes, Leaf]) -> Entry:
        node = members.holdings(entry.author, self._view_after(entry.key, places))[0]
        standing = self._counting.get(node.name)
        if standing is None:
            standing = self._counting[node.name] = Standing(True, "data", node.name, node.role, node.person)
        return entry.with_standing(standing)

    def standing(self, key: bytes) -> Plan[Standing]:
        """Return the standing of a stored entry.

        Raises:
            NotFound: The log has no such entry, or no policy.
        """
        members = self.members
        values = yield from ask(ReadValues([key]))
        if members is None or key not in values:
            raise NotFound(encode_id(key))
        if key == self._policy_key:
            return Standing(True, "policy", "", "", "")
        control = members.by_key.get(key)
        if control is not None:
            barred, node = members.bars_of_control(control), control.under
            kind = type(control.said).__name__.lower()
        else:
            barred = (yield from self._bars([key], {}))[key]
            places = yield from ask(ReadLeaves([key]))
            node = members.holdings(Entry(key, values[key]).author, self._view_after(key, places))[0]
            kind = "data"
        rule = "" if not barred else "vote" if barred[0].is_vote else "leaving" if barred[0].is_leaving else "removal"
        return Standing(not barred, kind, node.name, node.role, node.person, tuple(each.id for each in barred), rule)

    def find_void(self, keys: Sequence[bytes]) -> Plan[set[bytes]]:
        """Return those of some stored entries that are void: control entries and data."""
        members = self.members
        found = yield from ask(ReadVoid(keys))
        if members is not None:
            found = found | {key for key in keys if key in members.by_key and members.bars_of_control(members.by_key[key])}
        return found

    # Private

    def _read_on(self) -> Plan[list[MemberRow]]:
        return (yield from ask(ReadMembers(max(self._last[0] - 1, 0), _PAGE)))

    def _is_last(self, rows: Sequence[MemberRow]) -> bool:
        """Tell whether the first of these rows is still the last known one."""
        return not self._last[0] or (bool(rows) and (rows[0].n, rows[0].key) == self._last)

    def _load(self, rows: Sequence[MemberRow]) -> Plan[None]:
        values = yield from read_values([row.key for row in rows if row.kept is not None])
        for row in rows:
            after = access.decode_view(row.view)
            if row.kept is not None:
                entry = Entry(row.key, values[row.key])
                if self.members is None:
                    self.members, self._policy_key = access.Members(access.parse_policy(entry)), row.key
                else:
                    kept = access.decode_view(row.kept) if row.kept else after
                    after = self.members.add(row.key, access.parse_said(entry, is_stored=True), after, kept).view_after
            clocks, views = self._views.setdefault(row.branch, ([], []))
            clocks.append(row.clock)
            views.append(after)
            self._last = row.n, row.key
        self._void = self._find_void()

    def _judge_policy(self, entry: Entry) -> str | None:
        if self.members is not None:
            return "the log has its policy already"
        try:
            self.members = access.Members(access.parse_policy(entry))
        except DecodeError as error:
            return f"the log has no policy yet, and this entry is none: {error}"
        self._policy_key = entry.key
        self._after[entry.key], self._said[entry.key] = access.NOTHING, b""
        return None

    def _view_after(self, key: bytes, leaves: Mapping[bytes, Leaf]) -> access.View:
        view = self._after.get(key)
        if view is None:
            clocks, views = self._views.get(leaves[key].branch, ([], []))
            at = bisect_right(clocks, clock_of(key))
            view = views[at - 1] if at else access.NOTHING
        return view

    def _find_void(self) -> set[int]:
        """Find which revocations and admissions are void. O(control entries)."""
        members = self.members
        if members is None or not members.revocations:
            return set()
        acting = (control for control in members.controls if isinstance(control.said, (access.Revoke, access.Admit)))
        return {control.index for control in acting if members.bars_of_control(control)}

    def _bars(self, keys: Sequence[bytes], new: Mapping[bytes, Entry]) -> Plan[dict[bytes, tuple[access.ControlEntry, ...]]]:
        """Find the control entries that make each of these data entries void."""
        members = self.members
        assert members is not None
        stored = [key for key in keys if key not in new]
        touched = (yield from ask(ReadTouched(stored))) if stored else {}
        places = (yield from ask(ReadLeaves(stored))) if stored else {}
        values = yield from read_values(stored)
        bars = {}
        for key in keys:
            entry = new[key] if key in new else Entry(key, values[key])
            nodes = members.holdings(entry.author, self._view_after(key, places))
            touching = {*touched.get(key, ()), *self._touched.get(key, ())}
            bars[key] = members.bars_of_data(encode_id(key), nodes, [members.controls[index] for index in sorted(touching)])
        return bars

    def _find_outside(self, revocation: access.ControlEntry, new: Mapping[bytes, Entry]) -> Plan[list[bytes]]:
        """Find the data under the nodes that a revocation removes and that it does not keep, by a walk down from the heads.

        The walk ends at entries that are kept, and at the grant, because nothing signed under a grant is older. If much is not kept, all
        entries after the grant are scanned instead: a removed admin may sign revocations with parents as old as it likes.
        """
        members, said = self.members, revocation.said
        assert members is not None
        assert isinstance(said, access.Revoke)
        dids = members.dids_below(revocation)
        floor = decode_id(said.node) if said.node not in members.policy.founders else self._policy_key
        if said.keep == ():
            return (yield from _find_by(dids, floor, new))
        if said.keep is None:
            values = {} if revocation.key in new else (yield from read_values([revocation.key]))
            kept = Behind((new.get(revocation.key) or Entry(revocation.key, values[revocation.key])).parent_keys, new)
        else:
            kept = Behind(map(decode_id, said.keep), new)
        found: list[bytes] = []
        seen = {*new, *(yield from ask(ReadHeads()))}
        waiting, walked = list(seen), 0
        while waiting:
            key = waiting.pop()
            if key <= floor or (yield from kept.has(key)):
                continue
            walked += 1
            if walked > _WALKED_MAX:
                found, waiting = [], []
                for key in (yield from _find_by(dids, floor, new)):
                    if not (yield from kept.has(key)):
                        found.append(key)
                break
            entry = new[key] if key in new else Entry(key, (yield from read_values([key]))[key])
            if entry.author in dids and not access.is_control(entry):
                found.append(key)
            fresh = set(entry.parent_keys) - seen
            seen |= fresh
            waiting += fresh
        return found


def _find_by(dids: Collection[str], floor: bytes, new: Mapping[bytes, Entry]) -> Plan[list[bytes]]:
    """Find all data by some dids that arrived after an entry, by a scan of 1 µs per entry that follows no parents."""
    found = [key for key, entry in new.items() if entry.author in dids and not access.is_control(entry)]
    known = {did.encode() for did in dids}
    places = yield from ask(ReadLeaves([floor]))
    # If that entry is new, no stored entry came after it.
    seq = places[floor].seq if floor in places else None
    while seq is not None and (page := (yield from ask(ReadTail(seq, _PAGE)))):
        for _, value in page:
            # A member's did stands in full near the beginning, in every scheme. Decoding would take three times as long.
            at = value.find(b"did:key:", 0, _DID_AT_MAX)
            if value[at : at + access.DID_CHARS] in known:
                entry = Entry.stored(value)
                if entry.author in dids and entry.key not in new and not access.is_control(entry):
                    found.append(entry.key)
        seq = page[-1][0]
    return found


def read_values(keys: Sequence[bytes]) -> Plan[dict[bytes, bytes]]:
    """Read VALUEs that must exist, by key.

    Raises:
        DamagedLog: An entry asked for is missing.
    """
    values: dict[bytes, bytes] = {}
    while left := [key for key in keys if key not in values]:
        found = yield from ask(ReadValues(left))
        if not found:
            raise DamagedLog(f"entry {encode_id(left[0])} is missing, though members depend on it")
        values.update(found)
    return values
