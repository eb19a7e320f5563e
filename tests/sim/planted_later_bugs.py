"""Bugs that an earlier checker passed over, and more than thirty others, planted as those of `planted_bugs`.

`python tests/sim/planted_later_bugs.py [SEEDS]` looks for the first seed that catches each, and prints the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from planted_bugs import PlantedBug, around, instead, look, nothing

from gossiplog.broadcast import offences as offences_module
from gossiplog.broadcast import spreading as spreading_module
from gossiplog.broadcast.offences import Blame, Offences
from gossiplog.broadcast.orphans import Orphans
from gossiplog.broadcast.pushes import NOBODY, Pushes
from gossiplog.broadcast.spreading import Spreading
from gossiplog.broadcast.wanted_syncs import WantedSyncs
from gossiplog.entry.validation import Outcome, Rule, Verdict
from gossiplog.log import applying as applying_module
from gossiplog.log import writing as writing_module
from gossiplog.log.access import Void
from gossiplog.log.past import Behind
from gossiplog.log.requests import ReadApplications
from gossiplog.plan import Plan, ask
from gossiplog.pubsub.base import PubSub
from gossiplog.pubsub.events import Outcome as PubsubOutcome
from gossiplog.pubsub.gossip.mesh import GraftBackoff, TopicMeshes
from gossiplog.pubsub.overlay.plumtree import BroadcastTree
from gossiplog.pubsub.routers.choke import Choke
from gossiplog.pubsub.rpc import Draft
from gossiplog.pubsub.seen import Seen
from gossiplog.reconcile import client as client_module
from gossiplog.reconcile import server as server_module
from gossiplog.sketch import Sketch
from gossiplog.sync import schedule as schedule_module

# Those that were passed over


def say_unchoke_alone(choked: Any) -> Any:
    return lambda self: ((), choked(self)[1])


def read_every_window_as_the_first(unpack: Any) -> Any:
    return lambda data, start, count, most: unpack(data, 0, count, most)


def skip_within_a_commit(catch_up: Any) -> Any:
    def broken(application: Any, behind: int, end: int | None, *rest: Any) -> Any:
        if end is None:
            return (yield from catch_up(application, behind, end, *rest))
        return None, []

    return broken


def repeat_stale_grafts(add_retry: Any) -> Any:
    def broken(self: Any, failed: Any, is_joined: Any, is_grafted: Any) -> None:
        add_retry(self, failed, is_joined, is_grafted)
        self.graft.update(failed.graft)

    return broken


def remember_for(seconds: float) -> Any:
    def make(init: Any) -> Any:
        return lambda self, ttl_s, size_max: init(self, seconds, size_max)

    return make


def ask_once(on_checked: Any) -> Any:
    def broken(self: Any, *answer: Any) -> None:
        self._check = nothing
        on_checked(self, *answer)
        del self._check

    return broken


def both(*plants: Callable[[], AbstractContextManager[None]]) -> Callable[[], AbstractContextManager[None]]:
    @contextmanager
    def planted() -> Iterator[None]:
        with ExitStack() as stack:
            for plant in plants:
                stack.enter_context(plant())
            yield

    return planted


MISSED_BUGS: Sequence[PlantedBug] = (
    PlantedBug(26, "chokes are silent", "peers that are choked are not told", around(Draft, "_choked", say_unchoke_alone)),
    PlantedBug(
        22,
        "windows are read as the first",
        "symbols after the first are read with wrong offsets",
        around(client_module.messages, "unpack", read_every_window_as_the_first),
    ),
    PlantedBug(
        185, "what a disk refused is forgotten", "it was passed on, and is not fetched", instead(spreading_module, "LATER", frozenset())
    ),
    PlantedBug(
        27,
        "commits do not catch up",
        "what another process stored is not applied",
        around(applying_module, "catch_up", skip_within_a_commit),
    ),
    PlantedBug(143, "stale grafts are repeated", "of links that have ended since", around(Draft, "add_retry", repeat_stale_grafts)),
    PlantedBug(3, "seen is forgotten", "after 15 s", around(Seen, "__init__", remember_for(15.0))),
    PlantedBug(4, "orphans are looked for once", "those that come meanwhile are not", around(Orphans, "_on_checked", ask_once)),
    PlantedBug(
        116,
        "children of the refused wait",
        "for ever",
        both(around(Void, "complete", lambda complete: lambda self, plan: plan), instead(spreading_module, "OUT_FOR_GOOD", frozenset())),
    ),
)


# Others


def push_what_came(insert: Any) -> Any:
    return lambda self, data, kinds, owners: insert(self, data, kinds, owners) if owners else None


def publish_what_came(publish: Any) -> Any:
    return lambda self, data, owners: publish(self, data, owners) if owners else None


def publish_our_own(publish: Any) -> Any:
    return lambda self, data, owners: None if owners else publish(self, data, owners)


def owe_nothing_to_who_came_back(others: Any) -> Any:
    def broken(self: Any, owners: Any = NOBODY, **kinds: Any) -> Any:
        return [peer for peer in others(self, **kinds) if peer not in owners]

    return broken


def tell_the_first(heads: Any) -> Any:
    return lambda self, peers: heads(self, list(peers)[:1])


def count_pushed_for_ever(on_decided: Any) -> Any:
    def broken(self: Any, pending: Any, verdict: Any) -> None:
        if self._pending.has(pending) and pending.pusher is not None:
            pending.pusher.pushed += 1
        on_decided(self, pending, verdict)

    return broken


def drop_what_is_missing_still(conclude: Any) -> Any:
    return lambda self, peer, need, result, absent: conclude(self, peer, need, result, [])


def forget_who_leaves(on_left: Any) -> Any:
    def broken(self: Any, peer: Any) -> None:
        on_left(self, peer)
        self.peers._counts.pop(peer.id, None)

    return broken


def blame_nobody_for_syncs(on_finished: Any) -> Any:
    def broken(self: Any, event: Any) -> None:
        self._blame = nothing
        on_finished(self, event)
        del self._blame

    return broken


def take_what_the_disk_refused(on_decided: Any) -> Any:
    def broken(self: Any, token: Any, verdict: Any) -> None:
        if verdict.rule == Rule.STORAGE:
            verdict = Verdict(Outcome.ACCEPT, entry=verdict.entry, is_new=True)
        on_decided(self, token, verdict)

    return broken


def leave_nothing_behind(running: Any, last: int) -> Plan[Any]:
    return {applied.name: applied for applied in (yield from ask(ReadApplications())) if running.get(applied.name) == applied.version}


def leave_one_more_behind(leave_behind: Any) -> Any:
    return lambda versions, last: leave_behind(versions, max(0, last - 1))


def no_path_through_new_ones(init: Any) -> Any:
    return lambda self, entries, new: init(self, [key for key in entries if key not in new], new)


def back_off_briefly(add: Any) -> Any:
    return lambda self, topic, peer, seconds, now: add(self, topic, peer, seconds / 10, now)


def prune_in_words(self: Any, topic: Any, peer: Any, backoff_s: float, *, with_px: bool = True) -> None:
    self._say_prune(topic, peer, backoff_s, with_px=with_px)


def penalise_grafts(link: Any) -> Any:
    def broken(self: Any, topic: Any, peer: Any) -> None:
        link(self, topic, peer)
        self._scoring.penalise(peer.id, 3)

    return broken


def choke_to_the_last(on_pruned: Any) -> Any:
    def broken(self: Any, topic: Any, peer: Any) -> None:
        self.choked.get(topic, {}).pop(peer, None)
        self.choked_by_us.get(topic, {}).pop(peer, None)

    return broken


def say_choke_alone(choked: Any) -> Any:
    return lambda self: (choked(self)[0], ())


def serve_without_a_link(self: Any, peer: Any, ids: Any) -> None:
    return None


def keep_lazy(make_eager: Any) -> Any:
    def broken(self: Any, peer: Any) -> None:
        was_lazy = peer in self.lazy
        make_eager(self, peer)
        if was_lazy:
            self.lazy[peer] = None

    return broken


def announce_no_topic(on_connected: Any) -> Any:
    def broken(self: Any, event: Any) -> None:
        on_connected(self, event)
        self.draft(event.peer).subscriptions.clear()

    return broken


def remember_few(init: Any) -> Any:
    return lambda self, ttl_s, size_max: init(self, ttl_s, 48)


def claim_to_stand_still(result: Any) -> Any:
    return lambda root, has_moved, left_out: result(root, False, left_out)


def leave_bytes_behind(self: Any, key: bytes) -> None:
    self._tried.pop(key, 0)


LATER_BUGS: Sequence[PlantedBug] = (
    PlantedBug(1, "own appends are not pushed", "to clients and hubs", around(Pushes, "insert", push_what_came)),
    PlantedBug(0, "own appends are not published", "the mesh hears of them by heads", around(Spreading, "_publish", publish_what_came)),
    PlantedBug(1, "a client's pushes are not published", "the mesh hears of them by heads", around(Spreading, "_publish", publish_our_own)),
    PlantedBug(
        11, "bringers are owed nothing", "though they crashed since and came back", around(Pushes, "others", owe_nothing_to_who_came_back)
    ),
    PlantedBug(0, "one peer is told heads", "of all that are to be told", around(Pushes, "heads", tell_the_first)),
    PlantedBug(1, "pushes count for ever", "and after 64 each is synced for", around(Spreading, "_on_decided", count_pushed_for_ever)),
    PlantedBug(0, "orphans leave their bytes", "and the room for them gets smaller", instead(Orphans, "on_retried", leave_bytes_behind)),
    PlantedBug(
        18,
        "broken syncs are not taken up",
        "what is missing still is forgotten",
        around(WantedSyncs, "_conclude", drop_what_is_missing_still),
    ),
    PlantedBug(9, "syncs without end", "more than four at a time", instead(schedule_module, "ACTIVE_MAX", 100)),
    PlantedBug(
        9,
        "offenders are suffered",
        "ten offences are too many, not five",
        instead(offences_module, "OFFENCES_MAX", 10),
    ),
    PlantedBug(9, "bans are short", "one minute", instead(offences_module, "BAN_S", 60.0)),
    PlantedBug(9, "bans are for show", "who is banned may come again", instead(Offences, "banned_until", nothing)),
    PlantedBug(164, "leaving wipes the slate", "offences end with a connection", around(Blame, "on_left", forget_who_leaves)),
    PlantedBug(46, "lies in syncs are free", "nobody is blamed", around(Spreading, "_on_sync_finished", blame_nobody_for_syncs)),
    PlantedBug(
        28, "what a disk refused is passed on", "as if it were stored", around(Spreading, "_on_decided", take_what_the_disk_refused)
    ),
    PlantedBug(
        17,
        "nobody is left behind",
        "what another process stored is not noted",
        instead(writing_module, "leave_behind", leave_nothing_behind),
    ),
    PlantedBug(
        27, "catching up begins too early", "an entry is applied twice", around(writing_module, "leave_behind", leave_one_more_behind)
    ),
    PlantedBug(6, "new ancestors are none", "of entries of the same commit", around(Behind, "__init__", no_path_through_new_ones)),
    PlantedBug(16, "descendants of the refused", "are judged on their own", instead(Void, "__contains__", lambda self, key: False)),
    PlantedBug(45, "meshes are not trimmed", "they grow beyond D_hi", instead(TopicMeshes, "_trim", nothing)),
    PlantedBug(0, "back-offs are short", "a tenth", around(GraftBackoff, "add", back_off_briefly)),
    PlantedBug(9, "prunes in words", "the link stays", instead(TopicMeshes, "_prune", prune_in_words)),
    PlantedBug(0, "grafts cost", "who is grafted is penalised", around(TopicMeshes, "_link", penalise_grafts)),
    PlantedBug(
        0,
        "orphans cost",
        "the router takes IGNORE for REJECT",
        instead(spreading_module, "_OUTCOMES", {**dict(spreading_module._OUTCOMES), Outcome.IGNORE: PubsubOutcome.REJECT}),
    ),
    PlantedBug(37, "all may be choked", "when a link that was not ends", around(Choke, "_on_pruned", choke_to_the_last)),
    PlantedBug(37, "unchokes are silent", "peers that are unchoked are not told", around(Draft, "_choked", say_choke_alone)),
    PlantedBug(4, "tree grafts bring nothing", "what is missing is not sent", instead(BroadcastTree, "on_graft", serve_without_a_link)),
    PlantedBug(4, "links are eager and lazy", "what is pushed is announced too", around(BroadcastTree, "_make_eager", keep_lazy)),
    PlantedBug(0, "topics are not announced", "on a new connection", around(PubSub, "_on_peer_connected", announce_no_topic)),
    PlantedBug(3, "few messages are remembered", "48 of them", around(Seen, "__init__", remember_few)),
    PlantedBug(2, "reconciliation gives up", "at the first guess", instead(client_module, "FUTILE_SYMBOLS", 0)),
    PlantedBug(2, "servers claim to stand still", "while their log grows", around(server_module, "Result", claim_to_stand_still)),
    PlantedBug(32, "sketches are shared", "a session's grows under it", instead(Sketch, "copy", lambda self: self)),
)
"""A `seed` below 300 catches each of them."""


if __name__ == "__main__":
    look((*MISSED_BUGS, *LATER_BUGS))
