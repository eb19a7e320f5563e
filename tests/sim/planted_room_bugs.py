"""Bugs that show only where several logs share a router and its connections, planted as those of `planted_bugs`.

`python tests/sim/planted_room_bugs.py [SEEDS]` looks for the first seed that catches each, and prints the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planted_bugs import PlantedBug, around, instead, look

from gossiplog.broadcast.shared_router import SharedRouter
from gossiplog.pubsub.base import PubSub
from gossiplog.pubsub.gossip.fanout import Fanout
from gossiplog.pubsub.gossip.mesh import TopicMeshes
from gossiplog.pubsub.rpc import Prune


def announce_the_first(on_subscribe: Any) -> Any:
    def broken(self: Any, topic: Any) -> None:
        if not self.joined:
            on_subscribe(self, topic)
        else:
            self.joined[topic] = None
            self._on_joined(topic)

    return broken


def leave_in_thought(self: Any, topic: Any) -> None:
    if topic in self.joined:
        for peer in self.peers:
            self.draft(peer).subscriptions[topic] = False


def part_at_once(self: Any, topic: Any, id: Any, now: float) -> Any:
    known = self._peers.get(id)
    peer = None if known is None else known.pop(topic, None)
    return [] if peer is None else self._part(peer, now)


def know_the_last(attach: Any) -> Any:
    def broken(self: Any, topic: Any, peer: Any, protocol: Any, now: float) -> Any:
        self._peers.pop(peer.id, None)
        return attach(self, topic, peer, protocol, now)

    return broken


def prune_all(on_prune: Any) -> Any:
    def broken(self: Any, peer: Any, prunes: Any) -> None:
        backoff_s = prunes[0].backoff_s
        on_prune(self, peer, [Prune(topic, (), backoff_s) for topic in self.links])

    return broken


def leave_all(on_unsubscribe: Any) -> Any:
    def broken(self: Any, topic: Any) -> None:
        on_unsubscribe(self, topic)
        for other in self.joined:
            self._on_left(other)
            self._on_joined(other)

    return broken


ROOM_BUGS: Sequence[PlantedBug] = (
    PlantedBug(46, "fan-out has no peers", "what is published from outside goes nowhere", instead(Fanout, "use", lambda *_: {})),
    PlantedBug(6, "one topic is told", "peers do not hear of those joined later", around(PubSub, "_on_subscribe", announce_the_first)),
    PlantedBug(22, "a topic that is left stays", "peers are told, and it goes on", instead(PubSub, "_on_unsubscribe", leave_in_thought)),
    PlantedBug(22, "who leaves a log is gone", "for the others that know it too", instead(SharedRouter, "detach", part_at_once)),
    PlantedBug(22, "who comes into a log has left the others", "the router too, later", around(SharedRouter, "attach", know_the_last)),
    PlantedBug(22, "a prune is of all topics", "not of one", around(TopicMeshes, "on_prune", prune_all)),
    PlantedBug(102, "a log that is left ends all links", "those of other logs too", around(PubSub, "_on_unsubscribe", leave_all)),
)

if __name__ == "__main__":
    look(ROOM_BUGS)
