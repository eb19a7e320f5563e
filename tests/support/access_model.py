"""A model of membership, written from the rules of docs/spec/access.md alone: sets of entries, no numbers, no memory but of answers."""

from __future__ import annotations

from dataclasses import dataclass, field

RANK = {"read": 0, "write": 1, "admin": 2}


@dataclass(eq=False)
class Entry:
    """One entry; `under` and `node` are founders' dids or grants, `keep` None for the parents."""

    author: str
    parents: frozenset[Entry]
    kind: str = "data"
    under: Entry | str = ""
    did: str = ""
    role: str = ""
    node: Entry | str = ""
    keep: frozenset[Entry] | None = None
    adopt: frozenset[Entry] = frozenset()
    ids: frozenset[Entry] = frozenset()
    past: frozenset[Entry] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.past = self.parents.union(*(parent.past for parent in self.parents))

    @property
    def view(self) -> frozenset[Entry]:
        return frozenset(entry for entry in self.past if entry.kind not in ("data", "policy"))

    @property
    def kept(self) -> frozenset[Entry]:
        return (keep := self.parents if self.keep is None else self.keep).union(*(entry.past for entry in keep))


class Model:
    def __init__(self, founders, k):
        self.founders, self.k, self.known = founders, k, {}

    def path(self, node):
        path = [node]
        while isinstance(path[0], Entry):
            path.insert(0, path[0].under)
        return path

    def did(self, node):
        return node.did if isinstance(node, Entry) else node

    def role(self, node):
        return node.role if isinstance(node, Entry) else "admin"

    def is_vote(self, entry):
        return entry.kind == "revoke" and entry.under not in self.path(entry.node)

    def touches(self, revocation, entry, under):
        path = self.path(under)
        if revocation.node not in path or entry in revocation.kept:
            return False
        if entry is not None and entry.kind == "revoke" and entry.node == entry.under == revocation.node == revocation.under:
            return False
        below = path[path.index(revocation.node) + 1 :]
        return not below or below[0] not in revocation.adopt

    def lifted(self, revocation, entry, among):
        return any(
            admit.kind == "admit"
            and entry in admit.ids
            and revocation in admit.view
            and admit.under in self.path(revocation.under)
            and self.counts(admit, among)
            for admit in among
        )

    def counts(self, control, among):
        return self.is_vote(control) or not self.void_under(control, control.under, among)

    def void_under(self, entry, under, among):
        """Whether an entry signed under a node is void by a set of control entries; None stands for one that would be signed now."""
        key = entry, under, among
        if key not in self.known:
            touching = [each for each in among if each.kind == "revoke" and self.touches(each, entry, under)]
            if entry is not None and entry.kind == "data":
                touching = [each for each in touching if not self.lifted(each, entry, among)]
            votes = {each.under for each in touching if self.is_vote(each)}
            self.known[key] = len(votes) >= self.k or any(self.counts(each, among) for each in touching if not self.is_vote(each))
        return self.known[key]

    def held(self, node, view):
        return (node in self.founders or node in view) and not self.void_under(None, node, view)

    def writing(self, entry):
        nodes = [*self.founders, *(each for each in entry.view if each.kind == "grant")]
        mine = [node for node in nodes if self.did(node) == entry.author and RANK[self.role(node)] >= RANK["write"]]
        return [node for node in mine if self.held(node, entry.view)]

    def belongs(self, entry):
        if entry.kind == "data":
            return bool(self.writing(entry))
        view, under, node = entry.view, entry.under, entry.node
        named = [each for each in (under, node) if isinstance(each, Entry)] + [*entry.adopt, *entry.ids, *(entry.keep or ())]
        if self.did(under) != entry.author or not entry.past.issuperset(named):
            return False
        if self.is_vote(entry):
            if under not in self.founders:
                return False
        elif not self.held(under, view) or (self.role(under) != "admin" and not (entry.kind == "revoke" and node == under)):
            return False
        if entry.kind == "grant":
            return len(self.path(entry.under)) < 16
        if entry.kind == "admit":
            return all(each.kind == "data" for each in entry.ids)
        children = {each for each in entry.kept if each.kind == "grant" and each.under == node}
        return entry.adopt <= (children if node != under else frozenset())

    def is_void(self, entry, among):
        if entry.kind != "data":
            return not self.counts(entry, among)
        return all(self.void_under(entry, node, among) for node in self.writing(entry))
