"""The requests by which plans read a log and write to it; every store answers all of them.

Keys are 20 bytes. `seq` is the insertion order in this one replica, 1 for the first entry, never reused. A branch numbers a chain
of entries each of which has the one before it among its parents; `(branch, clock)` names an entry as well as its key does, in
a few bytes, which is what keeps the graph's index small.

A page of VALUEs may have fewer rows than its limit although there are more: it ends with the row with which they reach 8 MiB, see
`page`. It is empty only after the end. VALUEs by key are bounded in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..plan import Request
from ..tree.node import TreeChange


class Leaf(NamedTuple):
    """Where an entry stands in this replica: its insertion number and its branch."""

    seq: int
    branch: int


class Position(NamedTuple):
    """An entry named by its branch and its clock."""

    branch: int
    clock: int


class Row(NamedTuple):
    """One entry as it is stored."""

    seq: int
    key: bytes
    value: bytes
    hash: bytes
    branch: int
    clock: int


class BranchLink(NamedTuple):
    """An edge from a child to a parent on another branch.

    Attributes:
        reach: The highest clock on the parent's branch that any entry of the child's branch up to this child links to. Equal to
            `parent.clock` unless someone names a parent that their own branch had already merged past.
    """

    child: Position
    parent: Position
    reach: int


class Quarantined(NamedTuple):
    """An entry that was kept out of the log, by a repair or a salvage, until it is retried.

    Attributes:
        key: 20 bytes.
        value: VALUE, byte for byte.
        rule: `damaged` (it is no valid entry), `parents` (they are missing) or `ancestor` (it descends from a quarantined entry).
        since: Unix time in seconds when it was set aside.
    """

    key: bytes
    value: bytes
    rule: str
    reason: str
    since: float


class Aside(NamedTuple):
    """What the quarantine says of an entry, without the entry; see `Quarantined`."""

    rule: str
    reason: str
    since: float


class Applied(NamedTuple):
    """How far an application's tables have got.

    Attributes:
        version: Of the application that made the tables; 0 if they are to be built anew.
        behind: The insertion number up to which entries were applied; None if none is missing, whatever the last one is.
    """

    name: str
    version: int
    behind: int | None


class SetAside(NamedTuple):
    """An entry that is in the log, and that an application could make nothing of.

    Attributes:
        key: 20 bytes.
        since: Unix time in seconds when it was applied.
    """

    key: bytes
    application: str
    kind: str
    reason: str
    since: float


class Place(NamedTuple):
    """What a follower compares with what it remembers of the place it has got to.

    Attributes:
        generation: The log's own name, drawn at random when it was made.
        key: Of the entry at the place that was asked for; None if there is none.
    """

    generation: str
    last: int
    key: bytes | None


class KeptSketch(NamedTuple):
    """The sketch of the log's keys as it was kept last; see `gossiplog.sketch`.

    Attributes:
        symbols: As `Sketch.to_bytes` writes them. A damaged row may have anything.
    """

    seq: int
    symbols: bytes


class MemberRow(NamedTuple):
    """A place where the view of a log's members changes along a branch: a control entry, or data that merges such branches.

    Attributes:
        n: 1 for the policy's entry, and so on in the order of insertion.
        key: 20 bytes.
        view: Of a control entry, what was before it; of data, what is before its children too. As `encode_view` writes it.
        kept: What a revocation keeps, as a view; empty for other control entries, None for data.
    """

    n: int
    key: bytes
    branch: int
    clock: int
    view: bytes
    kept: bytes | None


@dataclass(frozen=True, slots=True)
class ReadHeads(Request[list[bytes]]):
    """The keys of entries that are nobody's parents, ascending; at most `limit` of them, None for all."""

    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ReadLeaves(Request[dict[bytes, Leaf]]):
    """Which of these keys are in the log, and where."""

    keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class ReadValues(Request[dict[bytes, bytes]]):
    """VALUE for each of these keys that is in the log, up to the one with which they reach 8 MiB; ask again for the others.

    The answer is empty only if none of the keys is in the log.
    """

    keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class ReadPage(Request[list[tuple[bytes, bytes]]]):
    """`(key, VALUE)` with `after < key < before` in key order, which is a causal order, or in reverse; at most `limit`.

    With `seq_max` only entries with that insertion number or a lower one: a state of the log that does not change.
    """

    after: bytes | None
    before: bytes | None
    reverse: bool
    limit: int
    seq_max: int | None = None


@dataclass(frozen=True, slots=True)
class ReadTail(Request[list[tuple[int, bytes]]]):
    """`(seq, VALUE)` of entries inserted after `seq`, in the order of insertion; at most `limit`."""

    seq: int
    limit: int


@dataclass(frozen=True, slots=True)
class ReadPlace(Request[Place]):
    """What stands at this insertion number; see `Place`."""

    seq: int


@dataclass(frozen=True, slots=True)
class ReadCount(Request[tuple[int, int]]):
    """How many entries there are, and the last `seq` that was given out (0 in a new log), though a repair may have taken its entry away.

    Counting may cost O(n) reads of a small index; `counted=False` leaves it out, and the count answers 0.
    """

    counted: bool = True


@dataclass(frozen=True, slots=True)
class ReadBranchTips(Request[dict[int, int]]):
    """The highest clock on each of these branches. The key −1 of the answer holds the highest branch number, −1 if none."""

    branches: Sequence[int]


@dataclass(frozen=True, slots=True)
class ReadPositions(Request[dict[Position, bytes]]):
    """The keys of the entries at these positions."""

    at: Sequence[Position]


@dataclass(frozen=True, slots=True)
class ReadChildren(Request[list[Position]]):
    """The children of this entry, in any order: the next one on its own branch, and those on others that are linked to it."""

    at: Position


@dataclass(frozen=True, slots=True)
class ReadLinksDown(Request[Position | None]):
    """Of the branches numbered above `beyond` that any entry of `at.branch` links down to, the first, with the highest clock that
    entries of `at.branch` up to `at.clock` reach there by one link: −1 if none of them does, as 0 is a snapshot's.
    """

    at: Position
    beyond: int


@dataclass(frozen=True, slots=True)
class ReadLinksUp(Request[Position | None]):
    """Of the branches numbered above `beyond` that link down to any entry of `at.branch`, the first, with the lowest clock of a
    child there whose branch has reached `at.clock` or more by one link: −1 if none has.
    """

    at: Position
    beyond: int


@dataclass(frozen=True, slots=True)
class ReadQuarantined(Request[dict[bytes, Aside]]):
    """Which of these keys are in the quarantine, and why."""

    keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class ReadQuarantine(Request[list[Quarantined]]):
    """The quarantine in key order, from after `after`; at most `limit` records."""

    after: bytes | None
    limit: int


@dataclass(frozen=True, slots=True)
class ReadQuarantineCount(Request[tuple[int, int]]):
    """How many records are in the quarantine, and how many of them since a Unix time, None for never. O(records), without their values."""

    since: float | None = None


@dataclass(frozen=True, slots=True)
class ReadCursor(Request[int | None]):
    """The `seq` up to which the follower of this name has acknowledged; None if nobody has used the name."""

    name: str


@dataclass(frozen=True, slots=True)
class ReadSketch(Request[KeptSketch | None]):
    """The sketch that was kept last; None if none was."""


@dataclass(frozen=True, slots=True)
class WriteSketch(Request[None]):
    """Keep a sketch, unless one that is as new is kept already. `kept` None forgets the one that is kept."""

    kept: KeptSketch | None


@dataclass(frozen=True, slots=True)
class WriteCursor(Request[None]):
    """Move a follower's cursor; it never moves back. `seq` None forgets the cursor."""

    name: str
    seq: int | None


@dataclass(frozen=True, slots=True)
class WriteEntries(Request[None]):
    """Add entries with everything that depends on them.

    Attributes:
        rows: In order of `seq`, parents before children.
        heads: Keys that are heads now.
        merged: Keys that were heads before and are no longer.
    """

    rows: Sequence[Row]
    links: Sequence[BranchLink]
    heads: Sequence[bytes]
    merged: Sequence[bytes]
    tree: TreeChange


@dataclass(frozen=True, slots=True)
class WriteQuarantine(Request[None]):
    """Set entries aside, and release others."""

    add: Sequence[Quarantined]
    remove: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class ReadApplications(Request[list[Applied]]):
    """All applications that have tables here, in order of their names."""


@dataclass(frozen=True, slots=True)
class WriteApplication(Request[None]):
    """Replace what is stored about an application."""

    applied: Applied


@dataclass(frozen=True, slots=True)
class ReadSetAside(Request[list[SetAside]]):
    """What applications set aside, in order of key and application, from after `after`; at most `limit` records."""

    after: tuple[bytes, str] | None
    limit: int


@dataclass(frozen=True, slots=True)
class WriteSetAside(Request[None]):
    """Note what an application set aside, and forget what it no longer does.

    Attributes:
        remove: Keys; None for all of the application, before `add`.
    """

    application: str
    add: Sequence[SetAside]
    remove: Sequence[bytes] | None


@dataclass(frozen=True, slots=True)
class ReadMembers(Request[list[MemberRow]]):
    """What is stored of the members' views after row `after`, in order; at most `limit` rows."""

    after: int
    limit: int


@dataclass(frozen=True, slots=True)
class ReadTouched(Request[dict[bytes, list[int]]]):
    """For each of these keys the numbers of the revocations that touch it, ascending; keys that none does are missing."""

    keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class ReadTouchedBy(Request[list[bytes]]):
    """The keys of data that a revocation with one of these numbers touches."""

    controls: Sequence[int]


@dataclass(frozen=True, slots=True)
class ReadVoid(Request[set[bytes]]):
    """Which of these keys are void data."""

    keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class WriteMembers(Request[None]):
    """Add to what is stored of members, and change what is void.

    Attributes:
        rows: In order of `n`.
        touched: Pairs of the key of data and the number of a revocation.
        void: Keys of data that is void now.
        counting: Keys of data that was void, and counts again.
    """

    rows: Sequence[MemberRow]
    touched: Sequence[tuple[bytes, int]]
    void: Sequence[bytes]
    counting: Sequence[bytes]
