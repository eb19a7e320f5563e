"""Members: the tree of grants. It decides, from a log's control entries alone, which entries belong and which count.

Theory of operation. Control entries are added in any causal order and numbered as they come. Each has a view: the numbers of the control
entries among its ancestors (`views.py`). Whether a node is held, or an entry void, depends only on a set of revocations: those of a view,
or all. Answers are cached for each of the sets asked about last. So a new grant invalidates no cached answer, and an entry with the
same view as an earlier one costs two look-ups.

Whether a revocation counts within a set depends only on the revocations of the set whose node is on the path of its `under`. These are
signed further up, or are leavings of that node, which depend only on revocations further up. So the search ends after two steps per level.

Invariants:
    1. Nodes and control entries are only added. A node's path never changes.
    2. Every control entry that is added belongs: `find_refusal` returned None for it with the same view.
    3. Cached answers for a set of revocations never change, since the set is fixed.
    4. No answer depends on the numbers, and so none depends on the order of arrival.

Source: docs/spec/access.md, "Rules".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..entry.message_id import encode_id
from .forms import Admit, Grant, Policy, Revoke, Said, named_in
from .views import IndexSet, View

LEVELS_MAX = 16
"""Nodes on a path, including the founder's."""
_SETS_MAX = 64
"""Sets of revocations whose answers are cached."""


@dataclass(frozen=True, slots=True)
class MemberNode:
    """A place in the tree.

    Attributes:
        name: A founder's did, or the id of the grant.
        role: `read`, `write` or `admin`.
        path: The names of the nodes from the founder's to this one.
        person: The name of the person's first node: this one, unless it was granted as another device of its parent.
    """

    name: str
    did: str
    role: str
    path: tuple[str, ...]
    person: str


@dataclass(frozen=True, slots=True, eq=False)
class ControlEntry:
    """A grant, revocation or admission that belongs.

    Attributes:
        index: Its number among control entries.
        rank: The number of revocations added before it; a revocation's own number among them.
        key: 20 bytes.
        under: The node that it is signed under.
        view: The control entries among its ancestors.
        kept: The view of the entries that a revocation keeps.
    """

    index: int
    rank: int
    key: bytes
    said: Said
    under: MemberNode
    view: View
    kept: View
    is_vote: bool
    is_leaving: bool

    @property
    def view_after(self) -> View:
        """The view of an entry whose only parent is this one."""
        controls = self.view.controls.with_number(self.index)
        revokes = isinstance(self.said, Revoke)
        return View(controls, self.view.revocations.with_number(self.rank) if revokes else self.view.revocations)

    @property
    def id(self) -> str:
        """The entry's id."""
        return encode_id(self.key)


Bars: TypeAlias = tuple[ControlEntry, ...]
"""The reason why an entry is void: one revocation that counts, or the votes of k founders; empty if it counts."""


class Members:
    """The members of a log, by the control entries that were added.

    Attributes:
        nodes: All nodes by name, in the order in which they were added.
        controls: The control entries, by number; `by_key` has the same by key.
        revocations: The number of revocations among them.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.nodes = {did: MemberNode(did, did, "admin", (did,), did) for did in policy.founders}
        self.controls: list[ControlEntry] = []
        self.by_key: dict[bytes, ControlEntry] = {}
        self.revocations = 0
        # The nodes of each did, the closest to a founder first. Not in the order of arrival: applications get to see the first one.
        self._by_did: dict[str, tuple[MemberNode, ...]] = {did: (node,) for did, node in self.nodes.items()}
        # The number of each node's grant; -1 for founders.
        self._granted = dict.fromkeys(policy.founders, -1)
        # For each node that is revoked its removals, and its leavings, which touch no leavings of it.
        self._revoked: dict[str, tuple[list[ControlEntry], list[ControlEntry]]] = {}
        # Admissions by the data that they name.
        self._admitted: dict[str, list[ControlEntry]] = {}
        # For each of the last sets of revocations: why a control entry, by number, or what a node would sign, by name, is void.
        self._known: dict[IndexSet, dict[int | str, Bars]] = {}

    @property
    def everything(self) -> IndexSet:
        """The set of all revocations, which decides which entries count now."""
        return IndexSet(self.revocations, 0)

    # Belonging

    def find_stranger(self, said: Said, author: str, view: View) -> str | None:
        """Return why an author may not sign under a control entry's node; None if it may. The part of `find_refusal` without reads."""
        under = self._find(said.under, view)
        if under is None or under.did != author:
            return f"{author} does not hold the node {said.under[:80]} before this entry"
        return None

    def find_refusal(self, said: Said, author: str, view: View, kept: View, named: Mapping[str, bool]) -> str | None:
        """Return why a control entry does not belong; None if it does.

        Args:
            view: The entry's view, the union over its parents.
            kept: The view of what a revocation keeps: the union over the ids of its `keep`, including these; its own view without `keep`.
            named: The ids of `named_in` that are ancestors, each with whether it is data.
        """
        stranger = self.find_stranger(said, author, view)
        if stranger is not None:
            return stranger
        under = self.nodes[said.under]
        missing = next((id for id in named_in(said) if id not in named), None)
        if missing is not None:
            return f"{missing} is not among its ancestors"
        is_vote = False
        if isinstance(said, Revoke):
            node = self._find(said.node, view)
            if node is None:
                return f"the node {said.node[:80]} is not among its ancestors"
            is_vote = under.name not in node.path and len(under.path) == 1
            if under.name not in node.path and not is_vote:
                return f"{under.name} is not above the node {node.name}, and no founder"
            if under is node and said.adopt:
                return "a leaving adopts nothing"
            for child in map(self.nodes.get, said.adopt):
                if child is None or child.path[:-1] != node.path or self._granted[child.name] not in kept.controls:
                    return "it adopts a node that is not a child of the removed one, or was granted outside of what it keeps"
        if isinstance(said, Admit) and not all(named[id] for id in said.ids):
            return "only data is admitted"
        if isinstance(said, Grant) and len(under.path) == LEVELS_MAX:
            return f"the node would be more than {LEVELS_MAX} levels deep"
        if under.role != "admin" and not (isinstance(said, Revoke) and under.name == said.node):
            return f"the node {under.name} has the role {under.role}, expected admin"
        if not is_vote and (bars := self._bars_of_node(under, view.revocations)):
            return f"the node {under.name} was removed by {bars[0].id}"
        return None

    def holdings(self, author: str, view: View) -> tuple[MemberNode, ...]:
        """Return the nodes with which an author may write data in a view, the closest to a founder first. Data belongs if there is one."""
        nodes = self.held_by(author, view)
        for node in nodes:
            if node.role == "read":
                return tuple([each for each in nodes if each.role != "read"])
        return nodes

    def explain_absence(self, author: str, view: View) -> str:
        """Return why an author holds no node in a view with which it may write."""
        nodes = [node for node in self._by_did.get(author, ()) if self._find(node.name, view) is not None]
        if not nodes:
            return f"{author} is no member"
        bars = self._bars_of_node(nodes[-1], view.revocations)
        return f"the node {nodes[-1].name} of {author} " + (f"was removed by {bars[0].id}" if bars else "may only read")

    def held_by(self, author: str, view: View) -> tuple[MemberNode, ...]:
        """Return the nodes that an author holds in a view, whatever their role, the closest to a founder first.

        It allocates nothing if the author holds all of its nodes and no revocation is in the view.
        """
        nodes, (controls, revocations) = self._by_did.get(author, ()), view
        for node in nodes:
            if not (len(node.path) == 1 or self._granted[node.name] in controls):
                nodes = tuple([each for each in nodes if self._find(each.name, view) is not None])
                break
        return tuple([node for node in nodes if not self._bars_of_node(node, revocations)]) if revocations.top else nodes

    # Standing

    def bars_of_node(self, node: MemberNode) -> Bars:
        """Return what removed a node, as of now; empty if it is held."""
        return self._bars_of_node(node, self.everything)

    def bars_of_control(self, control: ControlEntry) -> Bars:
        """Return what makes a control entry void, as of now; empty if it counts."""
        return self._bars_of_control(control, self.everything)

    def bars_of_data(self, id: str, nodes: Iterable[MemberNode], touching: Iterable[ControlEntry]) -> Bars:
        """Return what makes a data entry void, as of now; empty if it counts.

        Args:
            nodes: Its author's `holdings` in its view.
            touching: The revocations of `against(nodes)` whose `keep` does not cover it; those in its view are among them.
        """
        now = self.everything
        lifting = [admit for admit in self._admitted.get(id, ()) if not self._bars_of_control(admit, now)]
        left = [each for each in touching if not any(_lifts(admit, each) for admit in lifting)]
        first: Bars = ()
        for node in nodes:
            bars = self._choose([each for each in left if _reaches(each, node.path)], now)
            if not bars:
                return ()
            first = first or bars
        return first

    def against(self, nodes: Iterable[MemberNode]) -> list[ControlEntry]:
        """Return the revocations, counting or not, that touch entries signed under one of these nodes unless they keep them."""
        found: dict[int, ControlEntry] = {}
        for node in nodes:
            for name in node.path:
                for revocations in self._revoked.get(name, ()):
                    found.update((each.index, each) for each in revocations if _reaches(each, node.path))
        return list(found.values())

    def dids_below(self, revocation: ControlEntry) -> set[str]:
        """Return the dids of the nodes that a revocation touches. O(nodes)."""
        return {node.did for node in self.nodes.values() if _reaches(revocation, node.path)}

    # Change

    def add(self, key: bytes, said: Said, view: View, kept: View) -> ControlEntry:
        """Add a control entry that belongs (see `find_refusal`), after all control entries of its view."""
        under = self.nodes[said.under]
        leaves = isinstance(said, Revoke) and said.node == said.under
        votes = isinstance(said, Revoke) and under.name not in self.nodes[said.node].path
        control = ControlEntry(len(self.controls), self.revocations, key, said, under, view, kept, votes, leaves)
        self.controls.append(control)
        self.by_key[key] = control
        match said:
            case Grant(did, role, _, device):
                name = control.id
                node = MemberNode(name, did, role, (*under.path, name), under.person if device else name)
                self.nodes[name] = node
                self._by_did[did] = tuple(sorted((*self._by_did.get(did, ()), node), key=lambda node: (len(node.path), node.name)))
                self._granted[name] = control.index
            case Revoke(name):
                self.revocations += 1
                self._revoked.setdefault(name, ([], []))[leaves].append(control)
            case Admit(ids):
                for id in ids:
                    self._admitted.setdefault(id, []).append(control)
        return control

    def take_back(self) -> None:
        """Undo the last `add`, after its transaction failed."""
        control = self.controls.pop()
        del self.by_key[control.key]
        match control.said:
            case Grant(did):
                node = self.nodes.pop(control.id)
                del self._granted[node.name]
                self._by_did[did] = tuple([each for each in self._by_did[did] if each is not node])
            case Revoke(name):
                self.revocations -= 1
                self._revoked[name][control.is_leaving].pop()
            case Admit(ids):
                for id in ids:
                    self._admitted[id].pop()
        # Cached answers may contain its number, which another entry will get.
        self._known.clear()

    # Private

    def _find(self, name: str, view: View) -> MemberNode | None:
        node = self.nodes.get(name)
        return node if node is not None and (len(node.path) == 1 or self._granted[name] in view.controls) else None

    def _answers(self, among: IndexSet) -> dict[int | str, Bars]:
        known = self._known.get(among)
        if known is None:
            if len(self._known) >= _SETS_MAX:
                del self._known[next(iter(self._known))]
            known = self._known[among] = {}
        return known

    def _bars_of_node(self, node: MemberNode, among: IndexSet) -> Bars:
        known = self._answers(among)
        if node.name not in known:
            known[node.name] = self._search(node.path, among, -1, is_leaving=False)
        return known[node.name]

    def _bars_of_control(self, control: ControlEntry, among: IndexSet) -> Bars:
        if control.is_vote:
            return ()
        known = self._answers(among)
        if control.index not in known:
            known[control.index] = self._search(control.under.path, among, control.index, is_leaving=control.is_leaving)
        return known[control.index]

    def _search(self, path: tuple[str, ...], among: IndexSet, index: int, *, is_leaving: bool) -> Bars:
        """Find what makes an entry void that is signed under the last node of a path; `index` is a control entry's number, else -1."""
        spared = path[-1] if is_leaving else None
        touching: list[ControlEntry] = []
        for name in path:
            if name in self._revoked:
                for revocations in self._revoked[name][: 1 if name == spared else 2]:
                    touching += [
                        each for each in revocations if each.rank in among and index not in each.kept.controls and _reaches(each, path)
                    ]
        return self._choose(touching, among)

    def _choose(self, touching: Iterable[ControlEntry], among: IndexSet) -> Bars:
        """Return one of these revocations that counts, or the votes of k founders."""
        votes: dict[str, ControlEntry] = {}
        for each in touching:
            if each.is_vote:
                votes[each.under.name] = each
                if len(votes) == self.policy.k:
                    return tuple(votes.values())
            elif not self._bars_of_control(each, among):
                return (each,)
        return ()


def _reaches(revocation: ControlEntry, path: tuple[str, ...]) -> bool:
    """Whether a revocation touches entries signed under the last node of a path, unless it keeps them."""
    said = revocation.said
    assert isinstance(said, Revoke)
    if said.node not in path:
        return False
    below = path.index(said.node) + 1
    return below == len(path) or path[below] not in said.adopt


def _lifts(admit: ControlEntry, revocation: ControlEntry) -> bool:
    """Whether an admission lifts a revocation for the data that it lists."""
    return revocation.index in admit.view.controls and admit.under.name in revocation.under.path
