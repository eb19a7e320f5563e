"""More bugs, in routers, in what is told when, and in the timing of answers and ends; planted as those of `planted_bugs`.

`python tests/sim/planted_router_bugs.py [SEEDS]` looks for the first seed that catches each, and prints the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planted_bugs import PlantedBug, around, instead, look, nothing

from gossiplog.broadcast.pushes import Pushes
from gossiplog.broadcast.questions import HeadsCheck, Questions
from gossiplog.broadcast.wanted_syncs import WantedSyncs
from gossiplog.log.requests import ReadHeads
from gossiplog.plan import ask
from gossiplog.pubsub.cache import MessageCache
from gossiplog.pubsub.gossip.gossip import Gossip
from gossiplog.pubsub.gossip.mesh import GraftBackoff, TopicMeshes
from gossiplog.pubsub.overlay.hyparview import MembershipViews
from gossiplog.pubsub.overlay.plumtree import BroadcastTree, Wake
from gossiplog.pubsub.routers.choke import Choke
from gossiplog.pubsub.routers.meshsub import Meshsub
from gossiplog.pubsub.rpc import Draft
from gossiplog.sync.rpc import HEADS_MAX


def never(*_: Any) -> bool:
    return False


def take_any_end(on_finished: Any) -> Any:
    def broken(self: Any, peer: Any, result: Any, token: int) -> None:
        need = self._needs.get(peer)
        on_finished(self, peer, result, token if need is None else need.token)

    return broken


def drop_deferred_needs(self: Any) -> None:
    for peer, need in list(self._needs.items()):
        until = need.deferred_until
        if until is None:
            continue
        if self.now >= until:
            need.deferred_until = None
            self._begin(self._schedule.want(peer, None, self.now))
        elif need.named and not self._is_covered(need.named):
            need.deferred_until, need.keys = None, {}


def forget_neighbour(self: Any, peer: Any) -> None:
    self._used.pop(peer, None)
    self._copied.pop(peer, None)
    self.eager.pop(peer, None)
    self.lazy.pop(peer, None)


def join_the_read_under_way(self: Any, peers: Any) -> None:
    if self._reading_for:
        self._reading_for.update(dict.fromkeys(peers))
        return
    self._waiting.update(dict.fromkeys(peers))
    if self._waiting:
        self._reading_for, self._waiting = self._waiting, {}
        self._ask(ask(ReadHeads(HEADS_MAX)), self._on_heads, None)


def drop_updates_while_checking(on_update: Any) -> Any:
    def broken(self: Any, peer: Any, heads: Any) -> None:
        if not peer.is_checking:
            on_update(self, peer, heads)

    return broken


def link_on_prune(on_prune: Any) -> Any:
    def broken(self: Any, peer: Any, prunes: Any) -> None:
        for prune in prunes:
            self.backoff.add(prune.topic, peer.id, prune.backoff_s or 60, self._core.now)

    return broken


def answer_nobody(recipients: Any) -> Any:
    return lambda self, message, source: [*recipients(self, message, source), source]


def forget_on_shift(shift: Any) -> Any:
    def broken(self: Any) -> None:
        shift(self)
        for window in self._windows:
            self._forget(window)

    return broken


def forward_to_most(recipients: Any) -> Any:
    return lambda self, message, source: recipients(self, message, source)[1:]


def fire_once(self: Any) -> bool:
    return self._at is not None and self._core.now >= self._at


def refuse_in_silence(on_graft: Any) -> Any:
    def broken(self: Any, peer: Any, topics: Any) -> None:
        self._say_prune = nothing
        try:
            on_graft(self, peer, topics)
        finally:
            del self._say_prune

    return broken


def keep_choked(on_pruned: Any) -> Any:
    return lambda self, topic, peer: None


ROUTER_BUGS: Sequence[PlantedBug] = (
    PlantedBug(0, "dead peers stay in the mesh", "who left is pushed to for ever", instead(TopicMeshes, "remove_peer", nothing)),
    PlantedBug(2, "any end will do", "an old session's end is taken for the new one's", around(WantedSyncs, "on_finished", take_any_end)),
    PlantedBug(37, "deferred needs are dropped", "when the sync for them fails", instead(WantedSyncs, "_undefer", drop_deferred_needs)),
    PlantedBug(9, "requests are not answered", "IWANT brings nothing", instead(Gossip, "on_iwant", nothing)),
    PlantedBug(4, "trees are not mended", "a lost neighbour is forgotten", instead(BroadcastTree, "neighbor_down", forget_neighbour)),
    PlantedBug(
        9,
        "heads are read too early",
        "whoever is to be told joins the read under way",
        instead(Pushes, "heads", join_the_read_under_way),
    ),
    PlantedBug(0, "prunes are not heeded", "a link that the other end ended stays", around(TopicMeshes, "on_prune", link_on_prune)),
    PlantedBug(0, "back-offs are ignored", "grafts come too early", instead(GraftBackoff, "is_active", never)),
    PlantedBug(0, "refusals are silent", "whoever grafts in vain is not told", around(TopicMeshes, "on_graft", refuse_in_silence)),
    PlantedBug(0, "meshes are not refilled", "a mesh that shrank stays small", instead(TopicMeshes, "_fill", nothing)),
    PlantedBug(9, "announcements are ignored", "IHAVE brings no IWANT", instead(Gossip, "on_ihave", nothing)),
    PlantedBug(76, "nothing is announced", "peers outside the mesh hear of nothing", instead(Gossip, "emit", nothing)),
    PlantedBug(9, "the cache is emptied", "at each heartbeat", around(MessageCache, "shift", forget_on_shift)),
    PlantedBug(0, "messages go back", "to whom they came from", around(Meshsub, "_recipients", answer_nobody)),
    PlantedBug(0, "one peer is left out", "the first of the mesh is not forwarded to", around(Meshsub, "_recipients", forward_to_most)),
    PlantedBug(13, "trees announce nothing", "lazy links carry nothing", instead(BroadcastTree, "flush", nothing)),
    PlantedBug(4, "the timer for missing messages fires once", "and is never set again", instead(Wake, "is_due", fire_once)),
    PlantedBug(2, "answers come for the gone", "a peer's questions outlive it", instead(Questions, "on_left", nothing)),
    PlantedBug(25, "choking outlives the link", "a pruned peer stays choked", around(Choke, "_on_pruned", keep_choked)),
    PlantedBug(4, "tree prunes are not heeded", "duplicates go on", instead(BroadcastTree, "on_prune", nothing)),
    PlantedBug(9, "unwanted copies are sent", "IDONTWANT is not heeded", instead(Gossip, "on_idontwant", nothing)),
    PlantedBug(4, "neighbours are not dropped", "an overlay keeps who left", instead(MembershipViews, "on_gone", nothing)),
    PlantedBug(33, "what failed is not repeated", "a GRAFT that met a full queue is lost", instead(Draft, "add_failed", never)),
    PlantedBug(
        14,
        "updates are missed",
        "those that come while the last one is looked at",
        around(HeadsCheck, "on_update", drop_updates_while_checking),
    ),
)


if __name__ == "__main__":
    look(ROUTER_BUGS)
