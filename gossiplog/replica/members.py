"""Questions about a log's members: who they are, and which node an author signs under by default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..access import Admit, Grant, MemberNode, Members, Revoke, Said, find_wrong
from ..errors import LocalProtocolError
from ..log.membership import Membership
from ..plan import Plan


@dataclass(frozen=True, slots=True)
class LogMember:
    """The present state of one node of the tree of grants.

    Attributes:
        node: Its name: a founder's did, or the id of the grant.
        person: The name of the person's first node: its own, unless it was granted as another device.
        path: The names of the nodes from the founder's to this one.
        removed_by: Ids of the revocation, or of the votes, that removed it; empty while it is held.
    """

    node: str
    did: str
    role: str
    person: str
    path: tuple[str, ...]
    removed_by: tuple[str, ...]

    @property
    def is_held(self) -> bool:
        """Whether the node has not been removed."""
        return not self.removed_by

    def to_record(self) -> dict[str, Any]:
        """Return the record that the page and the command line show."""
        record = asdict(self)
        removed_by = record.pop("removed_by")
        return {**record, "held": self.is_held, "removedBy": removed_by}


@dataclass(frozen=True, slots=True)
class AccessRecord:
    """One grant, revocation or admission, and whether it counts now.

    Attributes:
        kind: `grant`, `revoke`, `leave`, `vote` or `admit`.
        names: The did that is granted, the node that is revoked, or the ids that are admitted.
        revoked_by: Ids of the revocations that made it void; empty while it counts.
    """

    id: str
    kind: str
    names: tuple[str, ...]
    under: str
    author: str
    revoked_by: tuple[str, ...]

    def to_record(self) -> dict[str, Any]:
        """Return the record that the command line shows."""
        record = asdict(self)
        names, revoked_by = record.pop("names"), record.pop("revoked_by")
        return {**record, "of": names, "counts": not self.revoked_by, "revokedBy": revoked_by}


def list_controls(members: Members) -> list[AccessRecord]:
    """List all grants, revocations and admissions, in the order in which they arrived here."""
    records = []
    for control in members.controls:
        names: tuple[str, ...]
        match control.said:
            case Grant(did):
                kind, names = "grant", (did,)
            case Revoke(node):
                kind, names = "leave" if control.is_leaving else "vote" if control.is_vote else "revoke", (node,)
            case Admit(ids):
                kind, names = "admit", ids
        void = tuple(each.id for each in members.bars_of_control(control))
        records.append(AccessRecord(control.id, kind, names, control.under.name, control.under.did, void))
    return records


def known_members(membership: Membership | None) -> Plan[Members]:
    """Bring a membership up to date and return its members.

    Raises:
        LocalProtocolError: The log has no policy.
    """
    if membership is None:
        hint = "only a log that was founded with a policy has members: `gossiplog init --founder`, `open(…, policy=…)`"
        raise LocalProtocolError("the log has no members: anyone who connects may write", hint=hint)
    yield from membership.refresh()
    if membership.members is None:
        raise LocalProtocolError("the policy of the log is not here yet", hint="sync with a replica that has it")
    return membership.members


def list_members(members: Members) -> list[LogMember]:
    """List all nodes: founders first, then in the order in which they arrived here."""
    return [
        LogMember(node.name, node.did, node.role, node.person, node.path, tuple(each.id for each in members.bars_of_node(node)))
        for node in members.nodes.values()
    ]


def choose_grant(did: str, role: str, under: str | None, device: bool, members: Members, author: str) -> Said:
    """Make a grant under a node that the author holds as admin."""
    if (wrong := find_wrong(did, role)) is not None:
        raise LocalProtocolError(wrong, hint="`gossiplog key show` prints the did of a key")
    grant = Grant(did, role, under or _own_admin(members, author).name, device)
    for each in _held(members, did):
        if (each.role, each.path[-2:-1], each.person != each.name) == (role, (grant.under,), device):
            # With two such nodes, an admin who removes one of them would believe that the did is removed.
            raise LocalProtocolError(f"{did} holds the node {each.name} with the role {role} under {grant.under} already")
    return grant


def choose_revoke(node: str, under: str | None, keep: Sequence[str] | None, adopt: Sequence[str], members: Members, author: str) -> Said:
    """Make a revocation of a node, or of the one held node of a did, under a node above it, or as a founder's vote."""
    target = _find_node(members, node)
    own = [each for each in _held(members, author) if each.role == "admin"]
    above = [each for each in own if each.name in target.path[:-1]]
    if under is None and not above and author in members.policy.founders and author not in target.path:
        under = author
    if under is None and not above:
        hint = "who is above it, or k founders, can remove it; `leave` gives up a node of your own"
        raise LocalProtocolError(f"{author} holds no admin's node above {target.name}", hint=hint)
    return Revoke(target.name, under or above[0].name, None if keep is None else tuple(keep), tuple(adopt))


def choose_leave(node: str | None, members: Members, author: str) -> Said:
    """Make a revocation by which the author leaves a node of its own."""
    own = _held(members, author)
    if node is None and len(own) != 1:
        hint = f"name one of them: {', '.join(each.name for each in own)}" if own else None
        raise LocalProtocolError(f"{author} holds {len(own) or 'no'} node{'s' if own else ''}", hint=hint)
    if node is None and len(own[0].path) == 1:
        raise LocalProtocolError("nobody can let a founder in again who has left", hint=f"name the node to leave all the same: {author}")
    name = own[0].name if node is None else node
    return Revoke(name, name)


def choose_admit(ids: Sequence[str], under: str | None, members: Members, author: str) -> Said:
    """Make an admission under a node that the author holds as admin."""
    return Admit(tuple(ids), under or _own_admin(members, author).name)


def _held(members: Members, author: str) -> list[MemberNode]:
    nodes = [node for node in members.nodes.values() if node.did == author and not members.bars_of_node(node)]
    return sorted(nodes, key=lambda node: len(node.path))


def _own_admin(members: Members, author: str) -> MemberNode:
    found = next((node for node in _held(members, author) if node.role == "admin"), None)
    if found is None:
        raise LocalProtocolError(f"{author} holds no node with the role admin")
    return found


def _find_node(members: Members, name: str) -> MemberNode:
    if name in members.nodes:
        return members.nodes[name]
    held = _held(members, name)
    if len(held) != 1:
        hint = "name one of them; each takes a removal of its own" if held else "`gossiplog access show` lists who is a member"
        raise LocalProtocolError(f"{name[:80]!r} has {len(held)} nodes: {', '.join(node.name for node in held) or 'none'}", hint=hint)
    return held[0]
