"""Bugs that show only where a router has several topics on its connections, planted as those of `planted_bugs`.

`python tests/sim/planted_room_bugs.py [SEEDS]` looks for the first seed that catches each, and prints the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planted_bugs import PlantedBug, around, instead, look

from gossiplog.pubsub.base import PubSub
from gossiplog.pubsub.gossip.fanout import Fanout


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


ROOM_BUGS: Sequence[PlantedBug] = (
    PlantedBug(38, "fan-out has no peers", "what is published from outside goes nowhere", instead(Fanout, "use", lambda *_: {})),
    PlantedBug(30, "one topic is told", "peers do not hear of those joined later", around(PubSub, "_on_subscribe", announce_the_first)),
    PlantedBug(14, "a topic that is left stays", "peers are told, and it goes on", instead(PubSub, "_on_unsubscribe", leave_in_thought)),
)

if __name__ == "__main__":
    look(ROOM_BUGS)
