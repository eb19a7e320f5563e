"""A broadcast machine over a log in memory whose questions are answered at once, and what it asked for otherwise."""

from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any

from gossiplog.broadcast.actions import AskLog, EntriesAppended, EntryDecided, InsertEntry, Push, StartSync
from gossiplog.broadcast.broadcast import LOG_TIMERS
from gossiplog.broadcast.events import Connected, LogAnswered, PeerKind, PushOpened, PushReceived, StartBroadcast, SyncFinished
from gossiplog.broadcast.shared_router import SharedRouter
from gossiplog.broadcast.spreading import Spreading
from gossiplog.codec import pcf
from gossiplog.entry.message import Entry
from gossiplog.entry.signing import Ed25519Signer
from gossiplog.entry.validation import Verdict, validate
from gossiplog.log.access import AccessRule, Void
from gossiplog.log.commit import AppendPayloads, InsertEntries, LogRules, commit
from gossiplog.log.requests import WriteCursor, WriteEntries, WriteQuarantine
from gossiplog.plan import run_plan
from gossiplog.pubsub.actions import AnotherSource, SendRpc, SetTimer, Validate
from gossiplog.pubsub.events import AppScored, RpcReceived, SendFailed, Start, TimerFired
from gossiplog.pubsub.params import FloodsubParams
from gossiplog.pubsub.router import Router
from gossiplog.pubsub.routers.floodsub import Floodsub
from gossiplog.pubsub.rpc import Message, Rpc, Subscription
from gossiplog.store.memory.state import MemoryState
from gossiplog.sync.result import Ending, SyncResult
from gossiplog.sync.rpc import Insert as InsertMessage
from gossiplog.sync.rpc import Update
from gossiplog.sync.wire import decode_event, encode_event

TOPIC = "app.example.com"
PROTOCOL = "/floodsub/1.0.0"
ALICE, BOB = (Ed25519Signer(bytes([number]) * 32) for number in (1, 2))
COMPLETE = SyncResult(ending=Ending.COMPLETE)
FRUITFUL = SyncResult(ending=Ending.COMPLETE, entries=1)


class Log:
    """A log without a store around it."""

    def __init__(self) -> None:
        self.state = MemoryState()
        self.rule: AccessRule | None = None
        self._void = Void()

    def run(self, plan: Any) -> Any:
        writes: list[Any] = []

        def answer(request: Any) -> Any:
            if isinstance(request, WriteEntries | WriteQuarantine | WriteCursor):
                writes.append(request)
                return None
            return self.state.answer(request)

        result = run_plan(self._void.complete(plan), answer)
        for request in writes:
            self.state.write(request)
        return result

    def append(self, payload: Any, signer: Ed25519Signer = ALICE) -> Entry:
        work = AppendPayloads([pcf.encode(payload)], signer)
        return self.run(commit([work], LogRules(TOPIC), now=0.0)).entries[0][1]

    def insert(self, entry: Entry) -> Verdict:
        return self.run(commit([InsertEntries([entry])], LogRules(TOPIC, self.rule, self._void), now=0.0)).outcomes[0][0]

    def take(self, key: bytes, value: bytes) -> Verdict:
        verdict = validate(value, topic=TOPIC, key=key)
        return self.insert(verdict.entry) if verdict.accepted else verdict


@dataclass
class Harness:
    """A log's machine and the router, which it shares with no other log.

    Attributes: `actions` of the last `tell`, less what was answered at once. With `holds` nothing is answered at once."""

    log: Log = field(default_factory=Log)
    now: float = 0.0
    holds: bool = False
    params: FloodsubParams = field(default_factory=FloodsubParams)

    def __post_init__(self) -> None:
        self.actions: list[Any] = []
        self.timers: dict[str, float] = {}
        self.sessions: dict[str, int] = {}
        self.begin(Floodsub(self.params, Random(1)))

    def begin(self, router: Router) -> None:
        """Begin, or begin anew with another router."""
        self.shared = SharedRouter(router)
        self.machine = Spreading(self.shared, TOPIC, Random(2))
        self.tell(Start("me"))
        self.tell(StartBroadcast())

    def tell(self, event: Any) -> list[Any]:
        is_shared = isinstance(event, Start | RpcReceived | SendFailed | AppScored)
        is_shared |= isinstance(event, TimerFired) and event.token not in LOG_TIMERS
        todo, self.actions = (self.shared if is_shared else self.machine).handle(event, self.now), []
        while todo:
            action = todo.pop(0)
            if isinstance(action, Validate | AnotherSource):
                todo += self.machine.handle(action, self.now)
            elif not self.holds and isinstance(action, AskLog):
                todo += self.answer(action)
            elif not self.holds and isinstance(action, InsertEntry):
                todo += self.verdict(action)
            else:
                if isinstance(action, SetTimer):
                    self.timers[action.token] = action.at
                elif isinstance(action, StartSync):
                    self.sessions[action.peer] = action.token
                self.actions.append(action)
        return self.actions

    def wait(self, token: str) -> None:
        """Let the time of a timer come."""
        self.now = self.timers.pop(token)
        self.tell(TimerFired(token))

    def answer(self, action: AskLog) -> list[Any]:
        return self.machine.handle(LogAnswered(action.token, self.log.run(action.plan)), self.now)

    def verdict(self, action: InsertEntry) -> list[Any]:
        return self.machine.handle(EntryDecided(action, self.log.take(action.key, action.value)), self.now)

    def connect(self, peer: str, kind: PeerKind = PeerKind.MESH, *, outbound: bool = False, push: bool = True) -> list[Any]:
        self.tell(Connected(peer, kind, outbound, PROTOCOL if kind is PeerKind.MESH else None))
        if kind is PeerKind.MESH:
            self.tell(RpcReceived(peer, Rpc(subscriptions=(Subscription(TOPIC, True),))))
        return self.tell(PushOpened(peer)) if push else []

    def append(self, payload: Any = "mine") -> Entry:
        entry = self.log.append(payload)
        self.tell(EntriesAppended([entry]))
        return entry

    def receive(self, peer: str, data: bytes | Entry) -> list[Any]:
        """A message of the mesh."""
        data = insert_of(data) if isinstance(data, Entry) else data
        return self.tell(RpcReceived(peer, Rpc((message_of(data),))))

    def push(self, peer: str, data: bytes | Entry) -> list[Any]:
        return self.tell(PushReceived(peer, insert_of(data) if isinstance(data, Entry) else data))

    def announce(self, peer: str, *heads: bytes) -> list[Any]:
        return self.tell(PushReceived(peer, encode_event(Update(list(heads)))))

    def finish(self, peer: str, result: SyncResult = COMPLETE) -> list[Any]:
        return self.tell(SyncFinished(peer, result, self.sessions.get(peer, 0)))

    def of(self, kind: type) -> list[Any]:
        return [action for action in self.actions if isinstance(action, kind)]

    def started(self) -> list[str]:
        return [action.peer for action in self.of(StartSync)]

    def forwarded_to(self) -> list[str]:
        return sorted(peer for action in self.of(SendRpc) if action.rpc.messages for peer in action.peers)

    def pushed(self) -> dict[str, list[Any]]:
        """What was pushed, by peer: lists of heads, and keys of entries."""
        found: dict[str, list[Any]] = {}
        for action in self.of(Push):
            event = decode_event(action.data)
            for peer in action.peers:
                found.setdefault(peer, []).append(event.heads if isinstance(event, Update) else event.key)
        return found

    def sizes(self) -> dict[str, int]:
        state = self.machine.state()
        for name, size in state.sizes.items():
            assert size <= state.sizes_max[name], name
        return dict(state.sizes)


def insert_of(entry: Entry) -> bytes:
    return encode_event(InsertMessage(entry.key, entry.value))


def message_of(data: bytes) -> Message:
    return Message(sha256(data).digest(), TOPIC, data)


def chain(length: int, *, signer: Ed25519Signer = BOB, start: str = "theirs") -> list[Entry]:
    """Entries of somebody else's log, each the parent of the next."""
    log = Log()
    return [log.append(f"{start} {number}", signer) for number in range(length)]


def forged(entry: Entry) -> Entry:
    """The same entry with a signature that does not verify, under the key that follows from it."""
    value = bytearray(entry.value)
    value[80] ^= 1
    return Entry.decode(bytes(value))
