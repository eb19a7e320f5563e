"""Facts from the events and actions of a broadcast machine and of the router, for the service and for the simulator's replicas alike.

The machine is not involved. Its driver adds the facts that only a driver knows: syncs, their entries, and dials.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..broadcast.actions import Action, Ban, ClosePush, EntriesAppended, EntryDecided, InsertBatch, InsertEntry, Push, Unwelcome
from ..broadcast.events import Connected, Disconnected, Event, PushDropped, PushReceived, StartBroadcast
from ..broadcast.shared_router import SharedEvent
from ..broadcast.spreading import PUBLISHED_MAX
from ..entry.message import Entry
from ..entry.message_id import encode_id
from ..entry.validation import Rule, Verdict
from ..errors import DecodeError
from ..limits import keep_newest
from ..pubsub.actions import Connect, SendRpc, SlowPeer, Validate
from ..pubsub.events import ConnectFailed, RpcReceived
from ..pubsub.rpc import Message, Rpc, TreeGraft, TreeIHave, TreePrune
from ..pubsub.types import MessageId, PeerId
from ..sync.rpc import Insert, Update
from ..sync.wire import UnknownMessage, decode_event
from .fact import TEXT_CHARS_MAX, Fact, Ring

EACH_MAX = 16
"""A send to more peers, or an announcement of more ids, becomes one fact with their number, because a hub has hundreds of clients."""
_KNOWN_MAX = 20_000
_REASON_CHARS_MAX = 300


class _Came(NamedTuple):
    """How an entry came here."""

    peer: PeerId
    way: str


class Witness:
    """Adds facts about one log's machine, and about that log's topic in the router, to a ring.

    Args:
        node: The node that the facts are about: a peer id, or a replica of the simulator.
        now: Returns the time, in the seconds of `Fact.time_s`.
    """

    def __init__(self, ring: Ring, node: str, topic: str, router: str, now: Callable[[], float]) -> None:
        self._ring = ring
        self._node = node
        self._topic = topic
        self._router = router
        self._now = now
        # By the insert's token, whose number the machine bounds; entries that wait for parents, by key.
        self._under_way: dict[int, tuple[bytes, _Came]] = {}
        self._waiting: OrderedDict[bytes, _Came] = OrderedDict()
        # Entry ids by pubsub's message ids, which are hashes of messages.
        self._ids: OrderedDict[MessageId, str | None] = OrderedDict()
        self._posted: OrderedDict[bytes, bool] = OrderedDict()

    def tell(
        self,
        kind: str,
        peer: str | None = None,
        *,
        type: str | None = None,
        message: str | None = None,
        count: int | None = None,
        size: int | None = None,
        way: str | None = None,
        rule: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Add a fact. `size` is the column `bytes`; the other arguments have the columns' names."""
        where, now = (self._topic, self._router, self._ring.next), self._now()
        # The reason may name a file, whose name need not be Unicode.
        reason = None if reason is None else reason[:TEXT_CHARS_MAX].encode("utf-8", "replace").decode()
        self._ring.add(Fact(*where, now, kind, self._node, peer, type, message, count, size, None, way, rule, reason))

    def tell_verdict(self, verdict: Verdict, key: bytes, peer: str | None, way: str) -> None:
        """Add the outcome for an entry: it is new, was here already, waits for its parents, or is refused."""
        id = encode_id(key)
        if verdict.accepted:
            self.tell("deliver" if verdict.is_new else "duplicate", peer, message=id, way=way)
        elif verdict.rule == Rule.PARENTS:
            self.tell("waiting", peer, message=id, way=way, rule=verdict.rule, reason=short(verdict.reason))
        else:
            reason = short(verdict.reason)
            self.tell("verdict", peer, type=verdict.outcome.value, message=id, way=way, rule=verdict.rule, reason=reason)

    def on_event(self, event: Event | SharedEvent, actions: Sequence[Action]) -> None:
        """Add the facts of an event, and of the actions that the machine returned for it."""
        way = None
        match event:
            case RpcReceived():
                self._on_rpc(event, {action.message.id for action in actions if type(action) is Validate})
            case Validate(message, source):
                way = "gossip"
                if not any(type(action) is InsertEntry for action in actions):
                    self.tell("verdict", source, type="ignore", message=self._entry_of(message), way=way)
            case PushReceived(peer, data):
                way = "push"
                if not any(type(action) is InsertEntry for action in actions):
                    self._on_push(peer, data)
            case Connected():
                self.tell("connect", event.peer, type=event.kind.value, reason=event.protocol)
            case Disconnected(peer):
                self.tell("disconnect", peer)
            case PushDropped(peer):
                self.tell("drop", peer, type="push", reason="queue full")
            case ConnectFailed(peer):
                self.tell("dial-failed", peer)
            case StartBroadcast():
                self.tell("start")
            case _:
                pass
        for action in actions:
            self._on_action(action, way)

    def _on_action(self, action: Action, way: str | None) -> None:
        match action:
            case Push(peers, data):
                self._on_pushed(peers, data)
            case InsertEntry(token, key, _, source, _):
                came = _Came(source, way) if way is not None else self._waiting.pop(key, None)
                self._under_way[token] = key, came or _Came(source, "push")
            case EntryDecided(entry, verdict):
                self._on_decided(entry.token, verdict)
            case EntriesAppended(entries):
                self._on_appended(entries)
            case InsertBatch(_, verdicts, "post"):
                for verdict in verdicts:
                    if verdict.entry is not None:
                        keep_newest(self._posted, verdict.entry.key, True, _KNOWN_MAX)
            case SendRpc(peers, rpc, _):
                self._on_sent(peers, rpc)
            case Ban(peer, _, reason, _):
                self.tell("ban", peer, reason=short(reason))
            case Unwelcome(peer, reason, is_blamed):
                if not is_blamed:
                    self.tell("refused", peer, reason=short(reason))
            case ClosePush(peer, reason):
                self.tell("refused", peer, type="push", reason=short(reason))
            case Connect(peer, _, _):
                self.tell("dial", peer)
            case SlowPeer(peer, dropped):
                self.tell("drop", peer, type="rpc", count=dropped, reason="queue full")
            case _:
                pass

    # Incoming

    def _on_appended(self, entries: Sequence[Entry]) -> None:
        is_import = len(entries) > PUBLISHED_MAX
        for entry in entries:
            posted = self._posted.pop(entry.key, False)
            way = "http" if posted else "import" if is_import else "append"
            self.tell("publish" if way == "append" else "deliver", message=entry.id, way=way)

    def _on_decided(self, token: int, verdict: Verdict) -> None:
        found = self._under_way.pop(token, None)
        if found is None:
            return
        key, came = found
        if verdict.rule == Rule.PARENTS and not verdict.accepted:
            keep_newest(self._waiting, key, came, _KNOWN_MAX)
        self.tell_verdict(verdict, key, came.peer, came.way)

    def _on_push(self, peer: PeerId, data: bytes) -> None:
        try:
            event = decode_event(data)
        except (DecodeError, UnknownMessage):
            return
        if isinstance(event, Insert):
            # The machine did not look at it: its peer has too many entries under way, or it was rejected before.
            self.tell("verdict", peer, type="ignore", message=encode_id(event.key), way="push", reason="not looked at")
        elif isinstance(event, Update):
            self._on_heard(peer, [encode_id(key) for key in event.heads[:EACH_MAX]], len(event.heads), "push")

    def _on_rpc(self, event: RpcReceived, taken: set[MessageId]) -> None:
        peer, rpc = event.peer, self._about_topic(event.rpc)
        for message in rpc.messages:
            is_known = message.id in self._ids
            id = self._entry_of(message)
            if message.id not in taken:
                self.tell("duplicate" if is_known else "verdict", peer, type=None if is_known else "ignore", message=id, way="gossip")
        control = rpc.control
        if control is not None:
            for topic_ids in control.ihave:
                self._on_announced(peer, topic_ids.ids)
            for _ in control.graft:
                self.tell("graft", peer, type="theirs")
            for _ in control.prune:
                self.tell("prune", peer, type="theirs")
        for part in rpc.overlay:
            match part:
                case TreeGraft():
                    self.tell("graft", peer, type="theirs")
                case TreePrune():
                    self.tell("prune", peer, type="theirs")
                case TreeIHave(_, summary):
                    self._on_announced(peer, [id for id, _ in summary])
                case _:
                    pass

    def _on_announced(self, peer: PeerId, ids: Iterable[MessageId]) -> None:
        """Add announcements of messages that we lack. Their entries are not known yet, so each is named by its message id in hex."""
        new = [id for id in ids if id not in self._ids]
        for id in new[:EACH_MAX]:
            self.tell("ihave", peer, type=id.hex(), count=1, way="gossip")
        if len(new) > EACH_MAX:
            self.tell("ihave", peer, count=len(new) - EACH_MAX, way="gossip")

    def _on_heard(self, peer: PeerId, ids: Sequence[str], count: int, way: str) -> None:
        for id in ids:
            self.tell("ihave", peer, type="heads", message=id, count=1, way=way)
        if count > len(ids):
            self.tell("ihave", peer, type="heads", count=count - len(ids), way=way)

    def _entry_of(self, message: Message) -> str | None:
        if message.id in self._ids:
            return self._ids[message.id]
        key: bytes | None = None
        try:
            event = decode_event(message.data)
            key = event.key if isinstance(event, Insert) else None
        except (DecodeError, UnknownMessage):
            pass
        id = None if key is None else encode_id(key)
        keep_newest(self._ids, message.id, id, _KNOWN_MAX)
        return id

    # Outgoing

    def _on_pushed(self, peers: Sequence[PeerId], data: bytes) -> None:
        event = decode_event(data)
        if isinstance(event, Insert):
            self._sent(peers, "push", len(data), message=encode_id(event.key))
        else:
            self._sent(peers, "heads", len(data), count=len(event.heads))

    def _about_topic(self, rpc: Rpc) -> Rpc:
        """Return the parts of an RPC about our topic; parts with ids alone, such as IWANT, stay, as they have no topic."""
        topic, control = self._topic, rpc.control
        return Rpc(
            tuple(message for message in rpc.messages if message.topic == topic),
            tuple(subscription for subscription in rpc.subscriptions if subscription.topic == topic),
            control
            and replace(
                control,
                ihave=tuple(ihave for ihave in control.ihave if ihave.topic == topic),
                graft=tuple(graft for graft in control.graft if graft == topic),
                prune=tuple(prune for prune in control.prune if prune.topic == topic),
            ),
            tuple(part for part in rpc.overlay if part.topic == topic),
        )

    def _on_sent(self, peers: Sequence[PeerId], rpc: Rpc) -> None:
        rpc = self._about_topic(rpc)
        for message in rpc.messages:
            self._sent(peers, "message", len(message.data), message=self._entry_of(message))
        if rpc.subscriptions:
            self._sent(peers, "subscription", count=len(rpc.subscriptions))
        for part in rpc.overlay:
            self._sent(peers, _OVERLAY.get(type(part), "overlay"), count=1)
            if isinstance(part, TreeGraft | TreePrune):
                self._peering(peers, "graft" if isinstance(part, TreeGraft) else "prune")
        control = rpc.control
        if control is None:
            return
        counts = {
            "ihave": sum(len(ihave.ids) for ihave in control.ihave),
            "iwant": len(control.iwant),
            "graft": len(control.graft),
            "prune": len(control.prune),
            "idontwant": len(control.idontwant),
            "choke": len(control.choke),
            "unchoke": len(control.unchoke),
        }
        for type_, count in counts.items():
            if count:
                self._sent(peers, type_, count=count)
        if control.graft:
            self._peering(peers, "graft")
        if control.prune:
            self._peering(peers, "prune")

    def _peering(self, peers: Sequence[PeerId], kind: str) -> None:
        for peer in peers:
            self.tell(kind, peer, type="ours")

    def _sent(
        self, peers: Sequence[PeerId], type: str, size: int | None = None, *, message: str | None = None, count: int | None = None
    ) -> None:
        if len(peers) > EACH_MAX:
            self.tell("send", type=type, message=message, count=len(peers), size=size)
            return
        for peer in peers:
            self.tell("send", peer, type=type, message=message, count=count, size=size)


_OVERLAY: dict[type, str] = {TreeGraft: "tree-graft", TreePrune: "tree-prune", TreeIHave: "tree-ihave"}


def short(reason: str | None) -> str | None:
    """Shorten a reason for a fact; None without one."""
    return reason[:_REASON_CHARS_MAX] if reason else None
