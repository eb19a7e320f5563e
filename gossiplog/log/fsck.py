"""The checks of a stored log: plans that read it a page at a time and note their findings.

Everything else is derived from the entries, so each check goes from the entries to the rows that must exist, and counts them. Only if a
table has another number of rows is it read through for rows that should not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..codec.did import decode_did, encode_did
from ..entry.envelope import build_value
from ..entry.message import Entry
from ..entry.message_id import KEY_BYTES, clock_of, encode_id, message_key
from ..entry.rules import VALUE_BYTES_LIMIT
from ..entry.validation import Outcome, Rule, Verdict, validate
from ..errors import DecodeError
from ..plan import Plan, ask
from ..sketch import Sketch, element_of
from ..tree.builder import StreamBuilder
from ..tree.node import FANOUT, HASH_BYTES, Node, ReadNodes, ReadRoot, boundary_limit, leaf_hash
from . import fsck_requests
from .requests import BranchLink, Leaf, Position, ReadCount, ReadHeads, ReadLeaves, ReadPositions, ReadQuarantine, ReadSketch, ReadValues

FINDINGS_MAX = 1_000
"""How many findings a report names; the rest are only counted."""
_PAGE = 1_000


class FindingKind:
    """The kinds of findings."""

    ENTRY = "entry"
    """An entry's bytes are damaged or invalid, or stored twice."""
    PARENTS = "parents"
    """An entry's parent is missing, or comes later."""
    LEAF = "leaf"
    """The index by key lacks an entry, contradicts it, or has a row of its own."""
    NODE = "node"
    """The tree above the leaves differs from the one rebuilt from them."""
    HEADS = "heads"
    """The heads are not the entries without children."""
    POSITION = "position"
    """The graph's index lacks an entry, contradicts it, or has a row of its own."""
    LINK = "link"
    """An edge of the graph's index is missing, foreign or wrong."""
    CURSOR = "cursor"
    """A follower's cursor is beyond the end of the log, or no number."""
    QUARANTINE = "quarantine"
    """A record of the quarantine is damaged, or its entry is in the log."""
    SKETCH = "sketch"
    """The stored sketch for reconciliation is damaged, or not that of the entries."""
    FILE = "file"
    """The database finds a fault in its own structure."""
    UNREADABLE = "unreadable"
    """The database cannot read a part of the file."""
    DUPLICATE = "duplicate"
    """An entry repeats another one under another spelling of the same signer: valid, but worth knowing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of `fsck`."""

    kind: str
    where: str
    detail: str


@dataclass(frozen=True, slots=True)
class FsckReport:
    """The findings of `fsck`, and what a repair did.

    Attributes:
        problems: How many findings there are, without duplicates.
        findings: The first 1,000, including duplicates, in the order in which they were found.
        repaired: The report before the repair; None if there was no repair.
        set_aside: How many entries the repair moved to the quarantine.
        unsupported: How many entries are whole, but of a signature scheme that is not accepted here, and so not verified.
        unsupported_reason: Which scheme, extra or variable the first of these lacks.
        entries_topic: The topic of all entries, if that is not the log's: then the log's topic is damaged.
    """

    entries: int
    valid: int
    problems: int
    duplicates: int
    findings: tuple[Finding, ...]
    repaired: FsckReport | None = None
    set_aside: int = 0
    unsupported: int = 0
    unsupported_reason: str | None = None
    entries_topic: str | None = None

    @property
    def is_clean(self) -> bool:
        """Whether there is no problem, after the repair if there was one."""
        return self.problems == 0


class Audit:
    """One check of one state of a log. Run its plans in the order of their definition, all against the same snapshot.

    Each plan named `…_page` takes the end of the previous page, None for the first, and returns its own end, None after the last page.
    Memory is O(heads) and a page of 1,000 rows.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._findings: list[Finding] = []
        self._entries = self._valid = self._problems = self._duplicates = self._unsupported = 0
        self._unsupported_reason: str | None = None
        # Topics of entries other than the log's. If there is more than one, the entries are wrong, not the log's topic.
        self._topics: set[str] = set()
        # The entries without children so far. Parents come first, so this never gets much larger than the set of heads.
        self._sinks: set[bytes] = set()
        # The number of rows that each table must have, counted one by one, and the number that it has.
        self._leaves = self._positions = self._links = self._nodes = 0
        self._counts = fsck_requests.TableCounts(0, 0, 0, 0)
        self._builder = StreamBuilder()
        self._root: Node | None = None
        self._twins: dict[bytes, str] = {}
        # The insertion number of the stored sketch, and the sum and number of the elements up to there.
        self._sketch_seq, self._sketch_sum, self._sketch_count = -1, 0, 0
        # The pair of branches whose links are being read, and the highest clock that they have reached.
        self._pair = (-1, -1)
        self._reach = 0

    def report(self) -> FsckReport:
        """Return the findings so far."""
        return FsckReport(
            self._entries,
            self._valid,
            self._problems,
            self._duplicates,
            tuple(self._findings),
            unsupported=self._unsupported,
            unsupported_reason=self._unsupported_reason,
            entries_topic=None if self._valid or self._unsupported or len(self._topics) != 1 else next(iter(self._topics)),
        )

    def note(self, kind: str, where: str, detail: str) -> None:
        """Add a finding."""
        if kind == FindingKind.DUPLICATE:
            self._duplicates += 1
        else:
            self._problems += 1
        if len(self._findings) < FINDINGS_MAX:
            self._findings.append(Finding(kind, where, detail))

    def check_entries(self, rows: Sequence[tuple[int, Verdict]]) -> Plan[None]:
        """Check a page of entries, in order of `seq`, each with the verdict of its validation, against the index."""
        self._entries += len(rows)
        whole: list[tuple[int, Entry]] = []
        unverified: dict[int, Verdict] = {}
        for seq, verdict in rows:
            is_unsupported = verdict.outcome is Outcome.IGNORE and verdict.rule == Rule.SCHEME
            if verdict.entry is not None and (verdict.accepted or is_unsupported):
                whole.append((seq, verdict.entry))
                if is_unsupported:
                    unverified[seq] = verdict
            else:
                self.note(FindingKind.ENTRY, f"seq {seq}", f"{verdict.rule}: {verdict.reason}")
                if verdict.rule == Rule.TOPIC and verdict.entry is not None and len(self._topics) < _TOPICS_MAX:
                    self._topics.add(verdict.entry.envelope.topic)
        wanted = dict.fromkeys(key for _, entry in whole for key in (entry.key, *entry.parent_keys))
        leaves = yield from ask(ReadLeaves(list(wanted)))
        valid = [(seq, entry) for seq, entry in whole if seq not in unverified or self._is_vouched_for(seq, entry, leaves, unverified[seq])]
        self._valid += sum(seq not in unverified for seq, _ in valid)
        for seq, entry in valid:
            if seq <= self._sketch_seq:
                self._sketch_sum ^= element_of(entry.key)
                self._sketch_count += 1
        for _, entry in valid:
            self._sinks.difference_update(entry.parent_keys)
            self._sinks.add(entry.key)
        nodes = yield from ask(ReadNodes([(0, entry.key) for _, entry in valid]))
        places = [Position(leaves[entry.key].branch, entry.clock) for _, entry in valid if entry.key in leaves]
        positions = yield from ask(fsck_requests.ReadPositionRows(places))
        between: list[tuple[Position, Position]] = []
        for (seq, entry), node in zip(valid, nodes, strict=True):
            leaf = leaves.get(entry.key)
            self._check_leaf(seq, entry, leaf, node)
            self._check_parents(seq, entry, leaves)
            if leaf is None or leaf.seq != seq:
                continue
            at = Position(leaf.branch, entry.clock)
            parents = {Position(leaves[key].branch, clock_of(key)) for key in entry.parent_keys if key in leaves}
            row = positions.get(at)
            if row is None or row.seq != seq:
                self.note(FindingKind.POSITION, entry.id, f"not at branch {at.branch}, clock {at.clock}")
            else:
                before = Position(at.branch, row.previous)
                if row.previous and before not in parents:
                    self.note(FindingKind.POSITION, entry.id, f"follows {before.clock} on branch {at.branch}, which is no parent of it")
                self._positions += 1
                parents.discard(before)
            between += [(at, parent) for parent in parents]
        self._links += len(between)
        linked = yield from ask(fsck_requests.ReadLinkRows(between))
        for child, parent in between:
            if (child, parent) not in linked:
                self.note(FindingKind.LINK, _edge(child, parent), "missing")
        yield from self._check_duplicates([entry for seq, entry in valid if seq not in unverified])

    def begin(self) -> Plan[None]:
        """Read where the stored sketch ends, with which the entries' sum will be compared."""
        kept = yield from ask(ReadSketch())
        if kept is not None:
            self._sketch_seq = kept.seq

    def check_sketch(self) -> Plan[None]:
        """Check the sketch by its checksum and its first symbol, which contains all entries."""
        kept = yield from ask(ReadSketch())
        if kept is None:
            return
        _, last = yield from ask(ReadCount(counted=False))
        try:
            sketch = Sketch.from_bytes(kept.symbols)
        except DecodeError as error:
            self.note(FindingKind.SKETCH, f"seq {kept.seq}", str(error))
            return
        if kept.seq > last or (sketch.sums[0], sketch.counts[0]) != (self._sketch_sum, self._sketch_count):
            self.note(
                FindingKind.SKETCH, f"seq {kept.seq}", f"of {sketch.counts[0]} entries; up to there are {self._sketch_count}, or others"
            )

    def check_file(self) -> Plan[None]:
        """Let the database check its own structure."""
        for line in (yield from ask(fsck_requests.ReadDefects(_DEFECTS_MAX))):
            self.note(FindingKind.FILE, "database", line)

    def count_rows(self) -> Plan[None]:
        """Count rows. By these numbers, the pages below look for rows that should not exist."""
        self._counts = yield from ask(fsck_requests.ReadTableCounts())

    def leaf_page(self, after: bytes | None) -> Plan[bytes | None]:
        """Check a page of the index by key, and the tree's nodes above it."""
        page = yield from ask(fsck_requests.ReadLeafPage(after, _PAGE))
        whole = [row for row in page if self._is_leaf(row)]
        if self._counts.leaves != self._leaves:
            for row in whole:
                found = yield from ask(fsck_requests.ReadEntryRows(row.seq - 1, 1))
                if not found or found[0][0] != row.seq or _key_of(found[0][1]) != row.key:
                    self.note(FindingKind.LEAF, encode_id(row.key), f"leads to seq {row.seq}, which is not its entry")
        yield from self._check_nodes(list(self._builder.add((row.key, row.hash) for row in whole)))
        return page[-1].key if len(page) == _PAGE else None

    def check_root(self) -> Plan[None]:
        """Check the last nodes of each level, and the root."""
        nodes = list(self._builder.close())
        yield from self._check_nodes(nodes)
        self._root = nodes[-1]
        root = yield from ask(ReadRoot())
        if root != nodes[-1]:
            expected = f"level {nodes[-1].level}, {nodes[-1].hash.hex()}"
            self.note(FindingKind.NODE, "root", f"level {root.level}, {root.hash.hex()}; rebuilt, it is {expected}")

    def node_page(self, after: tuple[int, bytes] | None) -> Plan[tuple[int, bytes] | None]:
        """Look for nodes that should not exist, if there are too many."""
        if self._root is None or self._counts.nodes == self._nodes:
            return None
        page = yield from ask(fsck_requests.ReadNodePage(after, _PAGE))
        below = yield from ask(ReadNodes([(level - 1, key or None) for level, key in page]))
        limit = boundary_limit(FANOUT)
        for (level, key), node in zip(page, below, strict=True):
            is_due = 1 <= level <= self._root.level and node is not None and (not key or node.hash < limit)
            if not is_due:
                self.note(FindingKind.NODE, _place(level, key), "should not be there")
        return page[-1] if len(page) == _PAGE else None

    def position_page(self, after: Position | None) -> Plan[Position | None]:
        """Look for positions that should not exist, if there are too many."""
        if self._counts.positions == self._positions:
            return None
        page = yield from ask(fsck_requests.ReadPositionPage(after, _PAGE))
        for at, seq in page:
            found = yield from ask(fsck_requests.ReadEntryRows(seq - 1, 1))
            key = _key_of(found[0][1]) if found and found[0][0] == seq else None
            leaves = yield from ask(ReadLeaves([key] if key else []))
            if key is None or clock_of(key) != at.clock or key not in leaves or leaves[key] != Leaf(seq, at.branch):
                self.note(FindingKind.POSITION, f"branch {at.branch}, clock {at.clock}", f"leads to seq {seq}, which is not there")
        return page[-1][0] if len(page) == _PAGE else None

    def link_page(self, after: BranchLink | None) -> Plan[BranchLink | None]:
        """Check the reach of links, and look for links that should not exist, if there are too many."""
        page = yield from ask(fsck_requests.ReadLinkPage(after, _PAGE))
        for link in page:
            child, parent, reach = link
            if self._pair != (child.branch, parent.branch):
                self._pair, self._reach = (child.branch, parent.branch), 0
            self._reach = max(self._reach, parent.clock)
            if reach != self._reach:
                self.note(FindingKind.LINK, _edge(child, parent), f"reach {reach}, expected {self._reach}")
            if self._counts.links != self._links and not (yield from _is_link(link)):
                self.note(FindingKind.LINK, _edge(child, parent), "should not be there")
        return page[-1] if len(page) == _PAGE else None

    def check_heads(self) -> Plan[None]:
        """Compare the heads with the entries that have no children."""
        heads = set((yield from ask(ReadHeads())))
        for key in sorted(self._sinks - heads):
            self.note(FindingKind.HEADS, encode_id(key), "has no children and is not among the heads")
        for key in sorted(heads - self._sinks):
            self.note(FindingKind.HEADS, encode_id(key), "is among the heads and has children, or is not there")

    def check_cursors(self) -> Plan[None]:
        """Look for cursors beyond the end."""
        _, last = yield from ask(ReadCount(counted=False))
        for name, seq in (yield from ask(fsck_requests.ReadCursors())):
            if seq is None:
                self.note(FindingKind.CURSOR, str(name), "is not a number")
            elif seq > last:
                self.note(FindingKind.CURSOR, str(name), f"stands at seq {seq}, and the last is {last}")

    def quarantine_page(self, after: bytes | None) -> Plan[bytes | None]:
        """Check a page of the quarantine."""
        page = yield from ask(ReadQuarantine(after, _PAGE))
        leaves = yield from ask(ReadLeaves([record.key for record in page]))
        for record in page:
            if record.key in leaves:
                self.note(FindingKind.QUARANTINE, encode_id(record.key), "is in the log, too")
            if record.rule != "damaged":
                verdict = validate(record.value, topic=self._topic, key=record.key, value_bytes_max=VALUE_BYTES_LIMIT)
                if not verdict.accepted and verdict.rule != Rule.SCHEME:
                    self.note(FindingKind.QUARANTINE, encode_id(record.key), f"{verdict.rule}: {verdict.reason}")
        return page[-1].key if page else None

    def _is_vouched_for(self, seq: int, entry: Entry, leaves: dict[bytes, Leaf], verdict: Verdict) -> bool:
        """Tell whether the index has an entry that cannot be verified here. Its key is of these bytes, so they were once accepted."""
        leaf = leaves.get(entry.key)
        if leaf is None or leaf.seq != seq:
            self.note(FindingKind.ENTRY, f"seq {seq}", f"{verdict.rule}: {verdict.reason}")
            return False
        self._unsupported += 1
        self._unsupported_reason = self._unsupported_reason or verdict.reason
        return True

    def _check_leaf(self, seq: int, entry: Entry, leaf: Leaf | None, node: Node | None) -> None:
        if leaf is None:
            self.note(FindingKind.LEAF, entry.id, "missing")
            return
        if leaf.seq != seq:
            self.note(FindingKind.LEAF, entry.id, f"leads to seq {leaf.seq}, and the entry is at {seq}")
            return
        self._leaves += 1
        if node is None or node.hash != leaf_hash(entry.key, entry.value):
            self.note(FindingKind.LEAF, entry.id, "has another hash than its entry")

    def _check_parents(self, seq: int, entry: Entry, leaves: dict[bytes, Leaf]) -> None:
        for key in entry.parent_keys:
            leaf = leaves.get(key)
            if leaf is None:
                self.note(FindingKind.PARENTS, entry.id, f"parent {encode_id(key)} is missing")
            elif leaf.seq >= seq:
                self.note(FindingKind.PARENTS, entry.id, f"parent {encode_id(key)} comes later, at seq {leaf.seq}")

    def _check_duplicates(self, entries: Sequence[Entry]) -> Plan[None]:
        """Find entries that repeat others: a padded did:key names the same signer, so the same signature makes another entry."""
        for entry in entries:
            envelope = entry.envelope
            if envelope.did.startswith(_USUAL_DID) and len(envelope.did) == _USUAL_DID_CHARS:
                continue
            did = encode_did(*decode_did(envelope.did)) if envelope.did else ""
            if did == envelope.did:
                continue
            parts = (envelope.codec, did, envelope.signature, envelope.topic, envelope.clock, envelope.parent_keys, entry.payload_bytes)
            twin = message_key(envelope.clock, build_value(*parts))
            if twin in (yield from ask(ReadLeaves([twin]))):
                self.note(FindingKind.DUPLICATE, entry.id, f"says what {encode_id(twin)} says, by the same signer")
            elif twin in self._twins:
                self.note(FindingKind.DUPLICATE, entry.id, f"says what {self._twins[twin]} says, by the same signer")
            elif len(self._twins) < _TWINS_MAX:
                self._twins[twin] = entry.id

    def _check_nodes(self, nodes: Sequence[Node]) -> Plan[None]:
        above = [node for node in nodes if node.level > 0]
        self._nodes += len(above)
        stored = yield from ask(ReadNodes([(node.level, node.key) for node in above]))
        for node, found in zip(above, stored, strict=True):
            if found != node:
                self.note(
                    FindingKind.NODE, _place(node.level, node.key), "missing" if found is None else "has another hash than when rebuilt"
                )

    def _is_leaf(self, row: fsck_requests.LeafRow) -> bool:
        is_whole = [type(part) for part in row] == [bytes, bytes, int, int] and len(row.key) == KEY_BYTES and len(row.hash) == HASH_BYTES
        if not is_whole:
            self.note(FindingKind.LEAF, repr(row.key)[:80], "the row is damaged")
        return is_whole


_USUAL_DID = "did:key:z6Mk"
_USUAL_DID_CHARS = 56
_TWINS_MAX = 10_000
_TOPICS_MAX = 2
_DEFECTS_MAX = 100


def _is_link(link: BranchLink) -> Plan[bool]:
    child, parent, _ = link
    keys = yield from ask(ReadPositions([child, parent]))
    if child not in keys or parent not in keys:
        return False
    values = yield from ask(ReadValues([keys[child]]))
    return keys[child] in values and keys[parent] in Entry(keys[child], values[keys[child]]).parent_keys


def _key_of(value: object) -> bytes | None:
    try:
        return Entry.stored(value).key if isinstance(value, bytes) else None
    except DecodeError:
        return None


def _edge(child: Position, parent: Position) -> str:
    return f"branch {child.branch}, clock {child.clock} → branch {parent.branch}, clock {parent.clock}"


def _place(level: int, key: bytes | None) -> str:
    return f"level {level}, {encode_id(key) if key and len(key) == KEY_BYTES else key.hex() if key else 'anchor'}"
