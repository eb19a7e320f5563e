"""Plumtree: a broadcast tree over the active view's links; eager links push messages, lazy ones announce them.

Source: "Epidemic Broadcast Trees" (SRDS 2007), algorithms 1 to 3; "Episub" (r1), "Broadcast Protocol", for the announcements'
delay, the one timer for missing messages and the repair on NeighborDown.

Four deviations, for topics with many sources, which one tree serves badly: with 1,000 nodes that published in turn, messages took up to
36 hops and a median of 1.0 s, because only links that fell out of use were ever replaced.
- If a link's announcement came before the message, a smaller advantage in hops (`early_hop_threshold`) makes the link eager: its path is
  not only shorter but quicker, by more than the announcement's delay.
- If a link's announcement came more than `late_max_s` after the message, the link stays lazy, however few its hops: its path is slower, or
  hardly quicker. With 1,000 nodes, more than half of all links were added for announcements that came 40 ms later or more, and 86 % of
  these links brought nothing but duplicates before they were pruned.
- When a lazy link becomes eager, the eager link that it beat is not pruned at once; whichever of the two is slower gets pruned by its
  duplicates. Pruning it at once cut off the nodes that it served from other sources until they asked for missing messages: up to 1.6 s.
- A duplicate prunes its link only if each of the last `useful_messages` messages, or all since the link became eager, came on it as a
  duplicate. Otherwise the link brought a first copy to us, or carried one from us: a prune ends both directions. When only the copies
  brought to us counted, links were lost that others depended on: with 100 nodes and 20 messages a second from all of them p99 was 1.0 s;
  it is 0.18 s now. With a single source this is Plumtree's rule.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from ..actions import SendRpc, SetTimer
from ..base import PubSub
from ..cache import MessageCache
from ..params import EpisubParams
from ..rpc import Message, Rpc, TreeGraft, TreeIHave, TreePrune
from ..types import MessageId, PeerId, TimerToken, Topic

FLUSH = TimerToken("flush")
MISSING = TimerToken("missing")
HOPS_MAX = 255


class Wake:
    """One timer that all topics share. It is set when the first of them needs it, and fires `period_s` later."""

    __slots__ = ("_at", "_core", "_period_s", "_token")

    def __init__(self, core: PubSub, token: TimerToken, period_s: float) -> None:
        self._core = core
        self._token = token
        self._period_s = period_s
        self._at: float | None = None

    def ensure(self) -> None:
        """Set the timer unless it is set."""
        if self._at is None:
            self._at = self._core.now + self._period_s
            self._core.out.append(SetTimer(self._token, self._at))

    def is_due(self) -> bool:
        """Whether the timer has fired, and is not just stale; then it is no longer set."""
        if self._at is None or self._core.now < self._at:
            return False
        self._at = None
        return True


@dataclass(slots=True, eq=False)
class _Missing:
    """A message that was announced and has not come.

    Attributes:
        named_by: The peer that announced it first.
        announcers: The peers that announced it, each with the hops of its copy; the peer that we asked last is at the end.
        touches: How many times the timer has fired since.
    """

    named_by: PeerId
    announcers: deque[tuple[PeerId, int]] = field(default_factory=deque)
    touches: int = 0


@dataclass(slots=True, eq=False)
class _Kept:
    """An accepted message, or one of our own.

    Attributes:
        sender: The peer that brought it; None for our own, and once an announcement has beaten its path.
        number: The count of messages when it came, itself included.
        at_s: When it came, in seconds of the driver's clock.
    """

    rpc: Rpc
    sender: PeerId | None
    number: int
    at_s: float

    @property
    def data(self) -> bytes:
        """The message's data."""
        return self.rpc.messages[0].data


class BroadcastTree:
    """One topic's tree, as one node sees it. Every neighbour of the active view is either eager or lazy.

    Attributes:
        eager: Neighbours that messages are pushed to.
        lazy: Neighbours that messages are announced to.
    """

    def __init__(self, core: PubSub, topic: Topic, params: EpisubParams, flush: Wake, missing: Wake) -> None:
        self.eager: dict[PeerId, None] = {}
        self.lazy: dict[PeerId, None] = {}
        self._core = core
        self._topic = topic
        self._params = params
        self._count = 0  # messages so far
        self._used: dict[PeerId, int] = {}  # for each neighbour the number of the last message for which the link was of use to either end
        self._copied: dict[PeerId, int] = {}  # for each neighbour the number of the last message of which it brought a duplicate
        self._queue: list[tuple[MessageId, int]] = []
        self._missing: dict[MessageId, _Missing] = {}
        self._named = Counter[PeerId]()  # how many of them each peer announced first
        self._flush = flush
        self._touch = missing
        self._cache = MessageCache[_Kept](params.recent_ticks, params.cache_ticks, params.cache_max, params.cache_bytes_max)
        self.shift = self._cache.shift
        """Begin a new window of the cache and forget the oldest, once a heartbeat."""

    # Neighbours

    def neighbor_up(self, peer: PeerId) -> None:
        """Add a link of the active view as eager, and announce recent messages on it."""
        self._make_eager(peer)
        kept, recent = self._cache.kept, self._cache.window(self._topic)[: self._params.recent_max]
        if recent:
            self._core.draft(peer).overlay.append(TreeIHave(self._topic, tuple([(each, kept[each].rpc.hops) for each in recent])))

    def neighbor_down(self, peer: PeerId) -> None:
        """Remove a link. If it was eager, make every lazy link eager; duplicates will prune the superfluous ones."""
        self._used.pop(peer, None)
        self._copied.pop(peer, None)
        if peer in self.lazy:
            del self.lazy[peer]
        else:
            del self.eager[peer]
            for other in list(self.lazy):
                self._graft(other, ())

    # Messages

    def on_new(self, message: Message, sender: PeerId, hops: int) -> None:
        """Handle the first copy of a message: its link becomes eager, and so does that of an earlier announcement with far fewer hops."""
        missing = self._take_missing(message.id)
        self._count += 1
        if sender in self.lazy:
            self._make_eager(sender)
        if sender in self.eager:
            self._used[sender] = self._count
        if missing is not None and missing.touches < 2:  # else it was asked for
            announcer, announced = min(missing.announcers, key=lambda entry: entry[1])
            if hops - announced >= self._params.early_hop_threshold:
                self._add_link(announcer)

    def on_copy(self, sender: PeerId, message_id: MessageId) -> None:
        """Handle a duplicate: prune its link unless that was of use lately."""
        if sender not in self.eager:
            return
        kept = self._cache.kept.get(message_id)
        number = self._count if kept is None else kept.number
        if number > self._copied[sender] + 1:  # it brought no duplicate of the message before
            self._used[sender] = max(self._used.get(sender, 0), number - 1)
        self._copied[sender] = max(self._copied[sender], number)
        if sender not in self._used or number - self._used[sender] >= self._params.useful_messages:
            self._prune(sender)

    def keep(self, message: Message, rpc: Rpc, sender: PeerId | None) -> None:
        """Queue a message's announcement, and keep the RPC that forwards it. `sender` is the peer that brought it, None if it is ours."""
        if message.id in self._cache.kept:
            return
        if sender is None:
            self._count += 1
        self._cache.put(message, _Kept(rpc, sender, self._count, self._core.now))
        self._flush.ensure()
        self._queue.append((message.id, rpc.hops))

    # What neighbours say

    def on_ihave(self, peer: PeerId, summary: tuple[tuple[MessageId, int], ...]) -> None:
        """Note announced messages that are missing; make the link eager if a message that came took a far longer path.

        At most a quarter of `missing_max` may be named by one peer, so that one that invents messages leaves room for others.
        """
        if peer not in self.eager and peer not in self.lazy:
            return
        seen, params = self._core.seen.entries, self._params
        for message_id, hops in summary:
            if message_id in seen:
                kept = self._cache.kept.get(message_id)
                if kept is not None and self._is_far_shorter(hops, kept):
                    self._add_link(peer)
                    kept.sender = None  # one link is enough
                continue
            missing = self._missing.get(message_id)
            if missing is None:
                if len(self._missing) >= params.missing_max or self._named[peer] >= max(1, params.missing_max // 4):
                    continue
                self._missing[message_id] = missing = _Missing(peer)
                self._named[peer] += 1
            if len(missing.announcers) < params.announcers_max and all(peer != other for other, _ in missing.announcers):
                missing.announcers.append((peer, hops))
        if self._missing:
            self._touch.ensure()

    def on_graft(self, peer: PeerId, ids: tuple[MessageId, ...]) -> None:
        """Push to the peer from now on, and send the messages that it asks for."""
        if peer in self.lazy:
            self._make_eager(peer)
        for message_id in ids[: self._params.missing_max]:
            kept, count = self._cache.get_for(message_id, peer)
            if kept is not None and count <= self._params.retransmissions:
                self._core.out.append(SendRpc((peer,), kept.rpc))

    def on_prune(self, peer: PeerId) -> None:
        """Only announce to the peer from now on."""
        if peer in self.eager:
            del self.eager[peer]
            self.lazy[peer] = None

    # Timers

    def flush(self) -> None:
        """Announce the queued messages, in one RPC for all lazy neighbours."""
        if not self._queue:
            return
        summary, self._queue = tuple(self._queue), []
        if self.lazy:
            self._core.out.append(SendRpc(tuple(self.lazy), Rpc(overlay=(TreeIHave(self._topic, summary),)), True))

    def touch(self) -> None:
        """Ask for the messages that were missing at the last touch already, each from its next announcer."""
        params, wanted = self._params, dict[PeerId, list[MessageId]]()
        for message_id, missing in list(self._missing.items()):
            missing.touches += 1
            if missing.touches < 2:
                continue
            announcers = missing.announcers
            for _ in range(len(announcers)):
                if announcers[0][0] in self._core.peers:
                    break
                announcers.popleft()
            if not announcers or missing.touches > params.graft_attempts + 1:
                self._take_missing(message_id)
                continue
            wanted.setdefault(announcers[0][0], []).append(message_id)
            announcers.rotate(-1)
        for peer, ids in wanted.items():
            self._graft(peer, tuple(ids))
        if self._missing:
            self._touch.ensure()

    def sizes(self) -> tuple[int, int]:
        """Return how many messages are missing, and how many are kept."""
        return len(self._missing), len(self._cache)

    # Private

    def _graft(self, peer: PeerId, ids: tuple[MessageId, ...]) -> None:
        if peer in self.lazy:
            self._make_eager(peer)
        self._core.draft(peer).overlay.append(TreeGraft(self._topic, ids))

    def _make_eager(self, peer: PeerId) -> None:
        if peer in self.lazy:
            del self.lazy[peer]
            if self._queue:  # these were not pushed to it, and `flush` will not announce them to it
                self._core.draft(peer).overlay.append(TreeIHave(self._topic, tuple(self._queue)))
        self.eager[peer] = None
        self._copied[peer] = self._count

    def _is_far_shorter(self, hops: int, kept: _Kept) -> bool:
        """Whether an announcement that arrives now shows a path far shorter, and not slower, than the kept message's."""
        is_late = self._core.now - kept.at_s > self._params.late_max_s
        return kept.sender in self.eager and not is_late and kept.rpc.hops - 1 - hops >= self._params.hop_threshold

    def _add_link(self, announcer: PeerId) -> None:
        """Make a lazy link with a shorter path eager, and count it as just used: it may lose the first races."""
        if announcer in self.lazy:
            self._graft(announcer, ())
            self._used[announcer] = self._count

    def _prune(self, peer: PeerId) -> None:
        self.on_prune(peer)
        self._core.draft(peer).overlay.append(TreePrune(self._topic))

    def _take_missing(self, message_id: MessageId) -> _Missing | None:
        """Stop looking for a message, and return what is known of it."""
        missing = self._missing.pop(message_id, None)
        if missing is not None:
            self._named[missing.named_by] -= 1
            if not self._named[missing.named_by]:
                del self._named[missing.named_by]
        return missing
