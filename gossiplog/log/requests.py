"""The requests by which plans read and write a log. Every store answers all of them.

Keys have 20 bytes. `seq` is the insertion number in this replica, 1 for the first entry, never reused. A branch is a numbered chain of
entries, each of which has the one before it among its parents. So `(branch, clock)` identifies an entry in a few bytes, which keeps the
graph's index small.

A page of VALUEs ends with the row with which they reach 8 MiB (see `page`), so it may have fewer rows than its limit although there are
more. It is empty only after the end. VALUEs by key are bounded in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..plan import Request
from ..tree.node import TreeChange


class Leaf(NamedTuple):
    """An entry's place in this replica: its insertion number and its branch."""

    seq: int
    branch: int


class Position(NamedTuple):
    """An entry named by its branch and its clock.

    Attributes:
        branch: The chain of entries that it is in. Each replica numbers these in its own way.
        clock: One more than the highest clock of its parents.
    """

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
        rule: `damaged` (it is no valid entry), `parents` (parents are missing) or `ancestor` (it descends from a quarantined entry).
        since: Unix time in seconds when it was quarantined.
    """

    key: bytes
    value: bytes
    rule: str
    reason: str
    since: float


class Aside(NamedTuple):
    """A record of the quarantine without the entry; see `Quarantined`."""

    rule: str
    reason: str
    since: float


class Applied(NamedTuple):
    """The state of an application's tables.

    Attributes:
        version: The version of the application that made the tables; 0 if they must be rebuilt.
        behind: The insertion number up to which entries were applied; None if none is missing.
    """

    name: str
    version: int
    behind: int | None


class SetAside(NamedTuple):
    """An entry in the log that an application has set aside.

    Attributes:
        key: 20 bytes.
        kind: The name of the exception's type.
        since: Unix time in seconds when it was set aside.
    """

    key: bytes
    application: str
    kind: str
    reason: str
    since: float


class Place(NamedTuple):
    """The state at an insertion number, for a follower to compare with the place that it remembers.

    Attributes:
        generation: A random name that the log got when it was created.
        last: The last insertion number of the log.
        key: The key of the entry at the requested number; None if there is no entry.
    """

    generation: str
    last: int
    key: bytes | None


class KeptSketch(NamedTuple):
    """The stored sketch of the log's keys; see `gossiplog.sketch`.

    Attributes:
        seq: The insertion number up to which entries are in it.
        symbols: As `Sketch.to_bytes` writes them; of any type in a damaged row.
    """

    seq: int
    symbols: bytes


class MemberRow(NamedTuple):
    """A place where the view of a log's members changes along a branch: a control entry, or data that merges such branches.

    Attributes:
        n: 1 for the policy's entry, then ascending in the order of insertion.
        key: 20 bytes.
        view: As `encode_view` writes it: the view before a control entry, or for data, before its children.
        kept: The view that a revocation keeps; empty for other control entries, None for data.
    """

    n: int
    key: bytes
    branch: int
    clock: int
    view: bytes
    kept: bytes | None


@dataclass(frozen=True, slots=True)
class ReadHeads(Request[list[bytes]]):
    """The keys of entries without children, ascending; at most `limit`, None for all."""

    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ReadLeaves(Request[dict[bytes, Leaf]]):
    """Those of these keys that are in the log, with their places."""

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
    """The state at this insertion number; see `Place`."""

    seq: int


@dataclass(frozen=True, slots=True)
class ReadCount(Request[tuple[int, int]]):
    """The number of entries, and the last `seq` that was given out, 0 in a new log. A repair may have removed that entry.

    Counting may cost O(n) reads of a small index. `counted=False` omits it; then the number is 0.
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
    """The children of this entry, in any order: the next entry on its branch, and entries on other branches that link to it."""

    at: Position


@dataclass(frozen=True, slots=True)
class ReadLinksDown(Request[Position | None]):
    """The lowest branch above `beyond` to which any entry of `at.branch` links down, with the highest clock that entries of
    `at.branch` up to `at.clock` reach there by one link; −1 if none of them does, because 0 is a snapshot's clock.
    """

    at: Position
    beyond: int


@dataclass(frozen=True, slots=True)
class ReadLinksUp(Request[Position | None]):
    """The lowest branch above `beyond` that links down to any entry of `at.branch`, with the lowest clock of a child there whose
    branch has reached `at.clock` or more by one link; −1 if none has.
    """

    at: Position
    beyond: int


@dataclass(frozen=True, slots=True)
class ReadQuarantined(Request[dict[bytes, Aside]]):
    """Those of these keys that are in the quarantine, with the reasons."""

    keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class ReadQuarantine(Request[list[Quarantined]]):
    """The quarantine in key order, from after `after`; at most `limit` records."""

    after: bytes | None
    limit: int


@dataclass(frozen=True, slots=True)
class ReadQuarantineCount(Request[tuple[int, int]]):
    """How many records are in the quarantine, and how many of them since a Unix time; None counts 0. O(records), without their VALUEs."""

    since: float | None = None


@dataclass(frozen=True, slots=True)
class ReadCursor(Request[int | None]):
    """The `seq` up to which the follower of this name has acknowledged; None if the name has no cursor."""

    name: str


@dataclass(frozen=True, slots=True)
class ReadSketch(Request[KeptSketch | None]):
    """The stored sketch; None if there is none."""


@dataclass(frozen=True, slots=True)
class WriteSketch(Request[None]):
    """Store a sketch, unless the stored one is at least as new. `kept` None removes the stored one."""

    kept: KeptSketch | None


@dataclass(frozen=True, slots=True)
class WriteCursor(Request[None]):
    """Move a follower's cursor; it never moves back. `seq` None removes the cursor."""

    name: str
    seq: int | None


@dataclass(frozen=True, slots=True)
class WriteEntries(Request[None]):
    """Add entries with everything that depends on them.

    Attributes:
        rows: In order of `seq`, parents before children.
        heads: Those of the new keys that are heads.
        merged: Keys that got children; not all of them were heads.
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
    """The state of all applications' tables, by name."""


@dataclass(frozen=True, slots=True)
class WriteApplication(Request[None]):
    """Store the state of an application's tables."""

    applied: Applied


@dataclass(frozen=True, slots=True)
class ReadSetAside(Request[list[SetAside]]):
    """Entries that applications have set aside, in order of key and application, from after `after`; at most `limit` records."""

    after: tuple[bytes, str] | None
    limit: int


@dataclass(frozen=True, slots=True)
class WriteSetAside(Request[None]):
    """Add and remove entries that an application has set aside.

    Attributes:
        remove: Keys, or None for all of the application; removed before `add`.
    """

    application: str
    add: Sequence[SetAside]
    remove: Sequence[bytes] | None


@dataclass(frozen=True, slots=True)
class ReadMembers(Request[list[MemberRow]]):
    """The rows of the members' views after row `after`, in order of `n`; at most `limit` rows."""

    after: int
    limit: int


@dataclass(frozen=True, slots=True)
class ReadTouched(Request[dict[bytes, list[int]]]):
    """For each of these keys that revocations touch, their numbers, ascending."""

    keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class ReadTouchedBy(Request[list[bytes]]):
    """The keys of data that a revocation with one of these numbers touches."""

    controls: Sequence[int]


@dataclass(frozen=True, slots=True)
class ReadVoid(Request[set[bytes]]):
    """Those of these keys that are void data."""

    keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class WriteMembers(Request[None]):
    """Add rows of the members' views, and change which data is void.

    Attributes:
        rows: In order of `n`.
        touched: Pairs of a data entry's key and the number of a revocation.
        void: Keys of data that became void.
        counting: Keys of data that was void and counts again.
    """

    rows: Sequence[MemberRow]
    touched: Sequence[tuple[bytes, int]]
    void: Sequence[bytes]
    counting: Sequence[bytes]
