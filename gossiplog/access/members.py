"""Members: the tree of grants, and what belongs to a log and counts in it, as functions of the log's control entries alone.

Theory of operation. Control entries are added in any causal order, and numbered as they come. Each brings its view: the numbers of those
before it (`views.py`). A question is asked of a set of revocations, which is a view's, or all there are; nothing else of a view matters to
it, and its answers are remembered for as long as that set is among the last that were asked about. So a new grant costs nothing that was
found out before, and an entry whose view another one had costs two look-ups.

Whether a revocation counts in a set depends only on those of the set whose node lies on the path of its `under`: they are signed further
up, or are leavings of that node, which depend on those further up alone. The search therefore ends after two steps for each level.

Invariants:
    1. Nodes and control entries are only added. A node's path never changes.
    2. Everything that is added belongs: `find_refusal` was asked, with the same view, and said nothing.
    3. What is remembered for a set of revocations never changes, since no later entry is in the set.
    4. No answer depends on the numbers, and so none on the order of arrival.

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
"""Nodes on a path, the founder's among them."""
_SETS_MAX = 64
"""Sets of revocations whose answers are remembered."""


@dataclass(frozen=True, slots=True)
class MemberNode:
    """A place in the tree.

    Attributes:
        name: A founder's did, or the id of the grant.
        role: `read`, `write` or `admin`.
        path: The names from the founder's node to this one.
        person: The name of the first node of the same person: itself, unless it was granted as another device of its parent's.
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
        rank: How many revocations came before it, which is its number among them if it is one.
        key: 20 bytes.
        under: The node that it is signed under.
        view: The members as the entry's ancestors make them.
        kept: Of a revocation: what is kept, as a view.
        is_vote: Whether it is a founder's vote.
        is_leaving: Whether its node leaves.
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
        """The view of an entry whose only parent this one is."""
        controls = self.view.controls.with_number(self.index)
        revokes = isinstance(self.said, Revoke)
        return View(controls, self.view.revocations.with_number(self.rank) if revokes else self.view.revocations)

    @property
    def id(self) -> str:
        """The entry's id."""
        return encode_id(self.key)


Bars: TypeAlias = tuple[ControlEntry, ...]
"""Why an entry is void: one revocation that counts, or the votes of k founders; empty if it is not."""


class Members:
    """What the control entries of a log, as far as they were added, come to.

    Attributes:
        nodes: By their names, in the order in which they came.
        controls: What was added, by number.
        by_key: The same by key.
        revocations: How many of them revoke.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.nodes = {did: MemberNode(did, did, "admin", (did,), did) for did in policy.founders}
        self.controls: list[ControlEntry] = []
        self.by_key: dict[bytes, ControlEntry] = {}
        self.revocations = 0
        # The nodes of each did, the closest to a founder first: not in the order of arrival, since an application is told the first.
        self._by_did: dict[str, tuple[MemberNode, ...]] = {did: (node,) for did, node in self.nodes.items()}
        # The number of the grant of each node; a founder's is before everything.
        self._granted = dict.fromkeys(policy.founders, -1)
        # For each node that is revoked its removals, and its leavings, which touch no leavings of it.
        self._revoked: dict[str, tuple[list[ControlEntry], list[ControlEntry]]] = {}
        # Admissions by the data that they name.
        self._admitted: dict[str, list[ControlEntry]] = {}
        # For each of the last sets of revocations: why a control entry, by number, or what a node would sign, by name, is void.
        self._known: dict[IndexSet, dict[int | str, Bars]] = {}

    @property
    def everything(self) -> IndexSet:
        """The set of all revocations: by it is judged what counts now."""
        return IndexSet(self.revocations, 0)

    # Belonging

    def find_stranger(self, said: Said, author: str, view: View) -> str | None:
        """Say why an author may not sign under the node that a control entry names; a part of `find_refusal` that asks for nothing."""
        under = self._find(said.under, view)
        if under is None or under.did != author:
            return f"{author} does not hold the node {said.under[:80]} before this entry"
        return None

    def find_refusal(self, said: Said, author: str, view: View, kept: View, named: Mapping[str, bool]) -> str | None:
        """Say why a control entry does not belong; None if it does.

        Args:
            view: Of its ancestors: the union over its parents.
            kept: What a revocation keeps, as a view: the union over the ids of its `keep`, each with itself; else its own view.
            named: Of the ids that `named_in` lists those that are ancestors, and whether each is data.
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
                return "who leaves adopts nothing"
            for child in map(self.nodes.get, said.adopt):
                if child is None or child.path[:-1] != node.path or self._granted[child.name] not in kept.controls:
                    return "it adopts what is no child of the node granted within what it keeps"
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
        """Return the nodes by which an author may write data in a view, the closest to a founder first; data belongs if there is one."""
        nodes = self.held_by(author, view)
        for node in nodes:
            if node.role == "read":
                return tuple([each for each in nodes if each.role != "read"])
        return nodes

    def explain_absence(self, author: str, view: View) -> str:
        """Say why an author holds no node in a view by which to write."""
        nodes = [node for node in self._by_did.get(author, ()) if self._find(node.name, view) is not None]
        if not nodes:
            return f"{author} is no member"
        bars = self._bars_of_node(nodes[-1], view.revocations)
        return f"the node {nodes[-1].name} of {author} " + (f"was removed by {bars[0].id}" if bars else "may only read")

    def held_by(self, author: str, view: View) -> tuple[MemberNode, ...]:
        """Return the nodes of an author that are held in a view, whatever their role, the closest to a founder first.

        It makes no object where all of them are held and no revocation is in the view.
        """
        nodes, (controls, revocations) = self._by_did.get(author, ()), view
        for node in nodes:
            if not (len(node.path) == 1 or self._granted[node.name] in controls):
                nodes = tuple([each for each in nodes if self._find(each.name, view) is not None])
                break
        return tuple([node for node in nodes if not self._bars_of_node(node, revocations)]) if revocations.top else nodes

    # Standing

    def bars_of_node(self, node: MemberNode) -> Bars:
        """Say by what a node was removed, as things are now; nothing if it is held."""
        return self._bars_of_node(node, self.everything)

    def bars_of_control(self, control: ControlEntry) -> Bars:
        """Say by what a control entry is void, as things are now; nothing if it counts."""
        return self._bars_of_control(control, self.everything)

    def bars_of_data(self, id: str, nodes: Iterable[MemberNode], touching: Iterable[ControlEntry]) -> Bars:
        """Say by what a data entry is void, as things are now; nothing if it counts.

        Args:
            nodes: Its author's `holdings` in its view.
            touching: Those of `against(nodes)` within whose `keep` it is not; those in its view are among them.
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
        """Return the revocations that touch what is signed under one of these nodes and not kept, whether or not they count."""
        found: dict[int, ControlEntry] = {}
        for node in nodes:
            for name in node.path:
                for revocations in self._revoked.get(name, ()):
                    found.update((each.index, each) for each in revocations if _reaches(each, node.path))
        return list(found.values())

    def dids_below(self, revocation: ControlEntry) -> set[str]:
        """Return who holds a node that a revocation touches. O(nodes)."""
        return {node.did for node in self.nodes.values() if _reaches(revocation, node.path)}

    # Change

    def add(self, key: bytes, said: Said, view: View, kept: View) -> ControlEntry:
        """Add a control entry that belongs, after all that its view has; see `find_refusal`."""
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
        """Undo the last `add`: the transaction that it was part of came to nothing."""
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
        # What is remembered may speak of its number, which another one gets.
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
        """Find by what is void what is signed at the end of a path; with a control entry's number, unless that is kept."""
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
        """Of revocations that touch an entry, find one that counts, or the votes of k founders."""
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
    """Whether a revocation touches what is signed at the end of a path, unless it is kept."""
    said = revocation.said
    assert isinstance(said, Revoke)
    if said.node not in path:
        return False
    below = path.index(said.node) + 1
    return below == len(path) or path[below] not in said.adopt


def _lifts(admit: ControlEntry, revocation: ControlEntry) -> bool:
    """Whether an admission lifts a revocation for the data that it names."""
    return revocation.index in admit.view.controls and admit.under.name in revocation.under.path
