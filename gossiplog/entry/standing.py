"""The standing of one entry in a log with members."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether an entry counts now, and which node it was written under.

    Attributes:
        counts: Whether it has an effect. An entry that belongs and does not count is void.
        kind: `data`, `policy`, `grant`, `revoke` or `admit`.
        node: The node that it was signed under: a founder's did, or a grant's id; empty for a policy. For data, of the nodes that its
            author held before it, the one closest to a founder, and of several the lowest. It never changes.
        role: The node's role: `read`, `write` or `admin`.
        person: The first node of the same person; see docs/spec/access.md, "Forms".
        revoked_by: Ids of the revocation, or of the k founders' votes, that made it void.
        rule: The rule that makes it void: `removal`, `leaving` or `vote`; empty if it counts.
    """

    counts: bool
    kind: str
    node: str
    role: str
    person: str
    revoked_by: tuple[str, ...] = ()
    rule: str = ""

    @property
    def reason(self) -> str | None:
        """The reason why it is void, in a few words; None if it counts."""
        if self.counts:
            return None
        return f"void by the {self.rule} {', '.join(self.revoked_by)} of the node {self.node} or of one above it, which it has not seen"

    def to_record(self) -> dict[str, Any]:
        """Return the standing as the page and the command line show it."""
        record = asdict(self)
        revoked_by = record.pop("revoked_by")
        return {**record, "revokedBy": revoked_by, "reason": self.reason}
