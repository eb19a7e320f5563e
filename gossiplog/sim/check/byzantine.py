"""Replicas that do not follow the protocol: they speak it well enough to be heard, and use it against the others.

A stranger follows the protocol but does not have the log's access rule. It stores, extends and forwards entries that others refuse.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any

from ...broadcast.actions import Action, InsertEntry
from ...broadcast.events import PeerKind
from ...codec import pcf
from ...codec.framing import FrameDecoder, encode_frame
from ...entry.envelope import build_value, signed_bytes
from ...entry.message import Entry
from ...entry.message_id import KEY_BYTES, encode_id, message_key
from ...entry.rules import next_clock
from ...entry.signing import Ed25519Signer, sign_entry
from ...limits import TokenBucket
from ...log.requests import ReadHeads
from ...plan import Request
from ...pubsub.rpc import (
    Control,
    ForwardJoin,
    GetNodes,
    IHave,
    Leaving,
    Message,
    Neighbor,
    NeighborKind,
    Nodes,
    OverlayMessage,
    PeerRecord,
    Prune,
    Rpc,
    Shuffle,
    Subscription,
    TreeGraft,
    TreeIHave,
    TreePrune,
    WalkJoin,
)
from ...pubsub.types import MessageId, PeerId, Topic
from ...store.memory.state import MemoryState
from ...sync.rpc import AbortResponse, ChildrenResponse, Insert, Response, RootResponse, Update, ValuesResponse
from ...sync.server import SyncServer
from ...sync.wire import decode_response, encode_event, encode_response
from ...tree.memory import MemoryTree
from ...tree.node import Node, ReadNodes, ReadRoot, ReadRuns
from .cheating import cheat
from .observer import Stream
from .replica import SimReplica
from .sessions import END, Receive, SimulatedSession
from .world import SimWire

PERIOD_S = 0.7
REPLAYS_MAX = 50
HEARD_MAX = 500
SPAM_MAX = 12
"""The most RPCs of spam sent to one peer at a time."""
ECHO_SHARE = 0.5
CHEAT_SHARE = 0.7
ECHOES_MAX = 5


class Vice(Enum):
    """One way not to follow the protocol."""

    EQUIVOCATE = "equivocate"
    """Sign two entries with the same parents and send one to each half of the peers."""
    FORGE = "forge"
    """Send entries that break a rule."""
    CENSOR = "censor"
    """Send something else under the key of an entry that is spreading."""
    REPLAY = "replay"
    """Send messages again that were sent before."""
    WITHHOLD = "withhold"
    """Send entries and withhold their parents."""
    INVENT = "invent"
    """Announce heads that do not exist."""
    GARBAGE = "garbage"
    """Send random bytes."""
    LIE = "lie"
    """Change answers in a sync."""
    GAPS = "gaps"
    """Serve a well-formed tree that lacks ancestors of some of its entries."""
    MUTE = "mute"
    """Never answer in a sync, or end it at once."""
    ECHO = "echo"
    """Send received messages back to their sender, and to others, as if they were new."""
    SPAM = "spam"
    """Send well-formed but useless control messages: grafts, prunes, announcements, requests, unknown ids."""
    FICKLE = "fickle"
    """Keep ending all links in a mesh, for a second each time."""


class Byzantine(SimReplica):
    """A replica with vices. Apart from them it takes part like any other.

    Attributes:
        on_lie: Called with each stream on which a changed answer was sent.
    """

    vices: Sequence[Vice] = ()
    on_lie: Callable[[Stream], None]

    def corrupt(self, vices: Sequence[Vice], on_lie: Callable[[Stream], None]) -> None:
        """Set its vices. To be called before `start`."""
        self.vices = vices
        self.on_lie = on_lie
        self._evil = random.Random(f"evil {self.process.seed} {self.spec.number}")
        self._heard: list[bytes] = []
        self._met: deque[MessageId] = deque(maxlen=HEARD_MAX)
        # In a log with members it also has a key that no other member has let in.
        self._keys = (self.signer, Ed25519Signer(random.Random(f"second key {self.process.seed} {self.spec.number}").randbytes(32)))

    def start(self) -> None:
        """Start, and begin to misbehave."""
        super().start()
        self.world.after(PERIOD_S, self._misbehave, self.epoch)

    # Sending

    def _misbehave(self, epoch: int) -> None:
        if epoch != self.epoch:
            return
        self.world.after(PERIOD_S * (0.5 + self._evil.random()), self._misbehave, epoch)
        peers = list(self.wires)
        if not peers:
            return
        if self.log.membership is not None and self._evil.random() < CHEAT_SHARE:
            entry = cheat(self._evil, self._keys, self.topic, self.state)
            self.watch.on_signed([entry])
            self._inject(self._evil.sample(peers, self._evil.randint(1, len(peers))), _insert(entry))
            if self._evil.random() < ECHO_SHARE:
                # Unless its own log refuses the entry, others hear of it from now on, and get it by syncs.
                self.log.insert([entry], lambda _: None)
            return
        match self._evil.choice(self.vices):
            case Vice.EQUIVOCATE:
                for index in (0, 1):
                    self._inject(peers[index::2], _insert(self._sign(self._evil.randbytes(6))))
            case Vice.FORGE:
                self._inject([self._evil.choice(peers)], self._forge())
            case Vice.REPLAY:
                if self._heard:
                    self._inject([self._evil.choice(peers)], self._evil.choice(self._heard))
            case Vice.WITHHOLD:
                parent = self._sign(self._evil.randbytes(6))
                self._inject(peers, _insert(self._sign(b"child", [parent.key])))
            case Vice.INVENT:
                peer = self._evil.choice(peers)
                for number in range(4):
                    self.world.after(0.15 * number, self._invent, epoch, peer)
            case Vice.GARBAGE:
                data = self._evil.randbytes(self._evil.randrange(1, 60))
                self._inject([self._evil.choice(peers)], data)
            case Vice.SPAM:
                self._spam([peer for peer in peers if self.wires[peer].kind_for(self) is PeerKind.MESH])
            case Vice.FICKLE:
                for wire in [wire for wire in self.wires.values() if wire.kind_for(self) is PeerKind.MESH]:
                    self.world.send_rpc(wire, self, Rpc(control=Control(prune=(Prune(Topic(self.topic), (), 1),))))
            case Vice.ECHO | Vice.CENSOR | Vice.LIE | Vice.GAPS | Vice.MUTE:
                pass

    def _spam(self, peers: Sequence[PeerId]) -> None:
        has_overlay = self.shared.router.state().router == "episub"
        for peer in peers:
            for _ in range(self._evil.randint(1, SPAM_MAX)):
                rpc = spam(self._evil, Topic(self.topic), peers, self._met, has_overlay=has_overlay)
                self.world.send_rpc(self.wires[peer], self, rpc)

    def on_rpc_handled(self, rpc: Rpc) -> None:
        """Take part in the protocol, and spread received messages as its own."""
        super().on_rpc_handled(rpc)
        if not rpc.messages:
            return
        self._met.extend(message.id for message in rpc.messages)
        if Vice.ECHO in self.vices and self._evil.random() < ECHO_SHARE:
            for other in list(self.wires.values())[:ECHOES_MAX]:
                if other.kind_for(self) is PeerKind.MESH:
                    self.world.send_rpc(other, self, Rpc(rpc.messages))

    def _invent(self, epoch: int, peer: PeerId) -> None:
        if epoch == self.epoch and peer in self.wires:
            heads = [bytes([1 + self._evil.randrange(40)]) + self._evil.randbytes(19) for _ in range(self._evil.randint(1, 5))]
            self._push_raw(peer, encode_event(Update(heads)))

    def act(self, action: Action) -> None:
        """Take part in the protocol, and remember entries of others."""
        if isinstance(action, InsertEntry):
            self._overhear(action)
        super().act(action)

    def _overhear(self, action: InsertEntry) -> None:
        if Vice.REPLAY in self.vices and len(self._heard) < REPLAYS_MAX:
            self._heard.append(encode_event(Insert(action.key, action.value)))
        if Vice.CENSOR in self.vices and self._evil.random() < 0.1:
            other = self._sign(self._evil.randbytes(6))
            self._inject(list(self.wires), encode_event(Insert(action.key, other.value)))

    def _inject(self, peers: Sequence[PeerId], data: bytes) -> None:
        """Send a message without its own machine: by pubsub to servers, by push to others."""
        message = Message.of(Topic(self.topic), data)
        for peer in peers:
            wire = self.wires[peer]
            if wire.kind_for(self) is PeerKind.MESH and self._evil.random() < 0.8:
                self.world.send_rpc(wire, self, Rpc((message,)))
            else:
                self._push_raw(peer, data)

    def _push_raw(self, peer: PeerId, data: bytes) -> None:
        stream = self._push_streams.get(peer)
        if stream is not None:
            self.world.send(self.wires[peer], self, stream, data)

    def _sign(self, payload: bytes, parents: Sequence[bytes] | None = None) -> Entry:
        """Make a genuine entry without storing or sending it."""
        if parents is None:
            parents = self.state.answer(ReadHeads(8))
        entry = sign_entry(self.signer, self.topic, next_clock(parents), parents, pcf.encode(payload))
        self.watch.on_signed([entry])
        return entry

    def _forge(self) -> bytes:
        """Make an insert that breaks one rule."""
        evil = self._evil
        parents: list[bytes] = self.state.answer(ReadHeads(3))
        clock, payload = next_clock(parents), pcf.encode(evil.randbytes(6))
        flavour = evil.randrange(7)
        codec, topic, key = "dag-cbor", self.topic, None
        if flavour == 0:
            clock += 1 + evil.randrange(3)
        elif flavour == 1:
            topic = "other.example.com"
        elif flavour == 2:
            # 1.0 as a float, which JavaScript would write as the integer 1.
            payload = bytes.fromhex("fb3ff0000000000000")
        elif flavour == 3:
            payload += b"\x00"
        elif flavour == 4:
            key = evil.randbytes(20)
        did, signer = self.signer.did, self.signer
        if flavour == 5:
            # Claim an author without having that author's key.
            did = Ed25519Signer(evil.randbytes(32)).did
        signature = signer.sign(signed_bytes(codec, topic, clock, parents, payload))
        if flavour == 6:
            signature = signature[:63] + bytes([signature[63] ^ 1])
        value = build_value(codec, did, signature, topic, clock, parents, payload)
        return encode_event(Insert(key or message_key(clock, value), value))

    # Serving

    def make_server(self, wire: SimWire, stream: Stream, bucket: TokenBucket) -> Receive:
        """Serve a peer badly."""
        choices = [vice for vice in self.vices if vice in (Vice.LIE, Vice.GAPS, Vice.MUTE)]
        if not choices:
            return super().make_server(wire, stream, bucket)
        chosen, snapshot = self._evil.choice(choices), None
        send: Receive = partial(self.syncs.reply, wire, stream)
        if chosen is Vice.MUTE:
            return _mute(partial(self.world.send, wire, self, stream), aborts=self._evil.random() < 0.5)
        if chosen is Vice.GAPS:
            snapshot = _doctored(self.state, self._evil)
        else:
            send = _Liar(send, self._evil, partial(self.on_lie, stream)).send
        server, done = SyncServer(self.local_now(), bucket=bucket), partial(self.syncs.end, stream)
        session = SimulatedSession(self, wire.other(self).id, server, send, done, snapshot)
        session.start()
        return session.receive


def _insert(entry: Entry) -> bytes:
    return encode_event(Insert(entry.key, entry.value))


def _mute(send: Callable[[bytes], None], *, aborts: bool) -> Receive:
    """Make a server that never answers, or ends the session at the first request."""

    def receive(data: bytes | None) -> None:
        if data and aborts:
            send(encode_frame(encode_response(AbortResponse(0))))
            send(END)

    return receive


class _Liar:
    """Changes some of the answers of an honest session on their way out."""

    def __init__(self, send: Callable[[bytes | None], None], evil: random.Random, on_lie: Callable[[], None]) -> None:
        self._send = send
        self._evil = evil
        self._on_lie = on_lie
        self._frames = FrameDecoder()

    def send(self, data: bytes | None) -> None:
        """Take the session's output."""
        if not data:
            self._send(data)
            return
        self._frames.feed(data)
        out = bytearray()
        while (message := self._frames.next()) is not None:
            response = decode_response(message)
            lie = self._twist(response) if self._evil.random() < 0.4 else None
            if lie is not None and lie != response:
                self._on_lie()
                out += encode_frame(encode_response(lie))
            else:
                out += encode_frame(message)
        self._send(bytes(out))

    def _twist(self, response: Response) -> Response | None:
        evil = self._evil
        match response:
            case RootResponse(root) if root.level:
                return RootResponse(Node(root.level + evil.randrange(2), None, evil.randbytes(16)))
            case ChildrenResponse(children) if len(children) > 1:
                at = evil.randrange(1, len(children))
                changed = list(children)
                match evil.randrange(3):
                    case 0:
                        del changed[at]
                    case 1:
                        changed[at] = Node(changed[at].level, changed[at].key, evil.randbytes(16))
                    case _:
                        changed[at - 1], changed[at] = changed[at], changed[at - 1]
                return ChildrenResponse(changed)
            case ValuesResponse(values) if values:
                return ValuesResponse([evil.randbytes(100), *values[1:]] if evil.random() < 0.5 else values[:-1])
            case _:
                return None


def _doctored(log: MemoryState, evil: random.Random) -> Callable[[Request[Any]], Any]:
    """Make a snapshot of a log that lacks some entries in its tree, but has their values."""
    values = log.snapshot()
    tree = MemoryTree.build([leaf for leaf in values.tree.leaves() if evil.random() < 0.8])
    return lambda request: (tree if isinstance(request, ReadRoot | ReadNodes | ReadRuns) else values).answer(request)


WRITE_PERIOD_S = 0.8
ANSWERS_SHARE = 0.7


class Stranger(SimReplica):
    """A replica without the access rule. Nobody may blame it, because it cannot know better. Its first entries happen to obey the rule.

    Attributes:
        until_s: When it writes its last entry.
    """

    until_s = 0.0

    def start(self) -> None:
        """Start, and begin to write."""
        super().start()
        self._whim = random.Random(f"stranger {self.process.seed} {self.spec.number}")
        self._lawful_s = self.until_s * (0.2 + 0.6 * self._whim.random())
        self.world.after(WRITE_PERIOD_S, self._write)

    def _write(self) -> None:
        if self.world.now > self.until_s:
            return
        self.world.after(WRITE_PERIOD_S * (0.5 + self._whim.random()), self._write)
        if self.world.now < self._lawful_s:
            append_answer(self, self._whim)
        elif self._whim.random() < ANSWERS_SHARE:
            self._append_unheard()
        else:
            self._refer_ahead()

    def _append_unheard(self) -> None:
        """Append a reference to an entry that does not exist."""
        self.append([pcf.encode({"re": encode_id(b"\1" + self._whim.randbytes(KEY_BYTES - 1))})])

    def _refer_ahead(self) -> None:
        """Append a reference to an entry that all others have but that is not in the new entry's past."""
        keys = sorted(Entry.stored(value).key for value in self.state.values)
        if len(keys) < 2:
            return
        low, high = sorted(self._whim.sample(range(len(keys)), 2))
        payload = pcf.encode({"re": encode_id(keys[high])})
        entry = sign_entry(self.signer, self.topic, next_clock([keys[low]]), [keys[low]], payload)
        self.watch.on_signed([entry])
        self.log.insert([entry], lambda _: None)


def append_answer(writer: SimReplica, rng: random.Random, *, is_poison: bool = False) -> None:
    """Append an entry that refers to another of the log, which is in its past as long as the log has few heads."""
    values: Sequence[bytes] = writer.state.values
    payload: dict[str, bool | str] = {"poison": True} if is_poison else {}
    if values:
        payload["re"] = Entry.stored(rng.choice(values)).id
    if writer.is_up:
        writer.append([pcf.encode(payload)])


IDS_MAX = 60
GHOSTS = 8


def spam(rng: random.Random, topic: Topic, peers: Sequence[PeerId], heard: Sequence[MessageId], *, has_overlay: bool) -> Rpc:
    """Make one RPC of spam. It is well-formed and useless, and meant to fill memory, waste time, or turn a router against its peers.

    Args:
        peers: Real peers, to make false claims about.
        has_overlay: Whether the receiver understands episub's messages.
    """
    ghosts = [PeerId(f"ghost {rng.randrange(10**6)}") for _ in range(GHOSTS)]
    ids = tuple(MessageId(rng.randbytes(32)) for _ in range(rng.randint(1, IDS_MAX)))
    real = tuple(rng.choices(heard, k=min(IDS_MAX, len(heard)))) if heard else ()
    if has_overlay:
        return Rpc(overlay=tuple(_overlay(rng, topic, ghosts, peers, ids, real) for _ in range(rng.randint(1, 6))))
    prune = Prune(topic, tuple(PeerRecord(ghost) for ghost in ghosts), rng.choice((None, 0, 1, 60, 10**6)))
    match rng.randrange(6):
        case 0:
            control = Control(graft=(topic,) * 5)
        case 1:
            control = Control(prune=(prune,) * 5)
        case 2:
            control = Control(ihave=(IHave(topic, ids),))
        case 3:
            control = Control(iwant=real + ids)
        case 4:
            control = Control(idontwant=real + ids)
        case _:
            others = [Subscription(Topic(ghost), True) for ghost in ghosts]
            return Rpc(subscriptions=(*others, Subscription(topic, False), Subscription(topic, True)))
    return Rpc(control=control)


def _overlay(
    rng: random.Random,
    topic: Topic,
    ghosts: Sequence[PeerId],
    peers: Sequence[PeerId],
    ids: tuple[MessageId, ...],
    real: tuple[MessageId, ...],
) -> OverlayMessage:
    ghost, victim = rng.choice(ghosts), rng.choice(peers)
    said: tuple[OverlayMessage, ...] = (
        WalkJoin(topic, ghost, rng.randrange(300)),
        ForwardJoin(topic, ghost, rng.randrange(300)),
        Leaving(topic, victim, rng.randrange(300)),
        Neighbor(topic, rng.choice(list(NeighborKind)), rng.random() < 0.5, rng.randrange(9), tuple(ghosts)),
        Shuffle(topic, victim, tuple(ghosts), rng.randrange(300)),
        Nodes(topic, tuple(ghosts)),
        GetNodes(topic),
        TreeIHave(topic, tuple((message_id, rng.randrange(256)) for message_id in ids)),
        TreeGraft(topic, real),
        TreePrune(topic),
    )
    return rng.choice(said)
