"""One exchange with a hub: take what it has, give it what it lacks, and stop. It uses neither broadcast nor pubsub.

To give, we announce our heads on a push stream, as every client does, and the hub pulls what it lacks. No log holds an entry without its
ancestors, so the hub has all of our entries once it has all of our heads. We ask for those after each of its sessions.

Source: docs/spec/sync.md, "The sync session" and "Mode A".
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import trio

from ...codec.framing import FrameDecoder, encode_frame
from ...entry.validation import Outcome, Rule, Verdict
from ...errors import (
    CannotConnect,
    ClosedError,
    DecodeError,
    GossipLogError,
    ProtocolNotSupported,
    RemoteProtocolError,
    StoreError,
    StreamReset,
    SyncAborted,
)
from ...log.requests import ReadHeads
from ...plan import ask
from ...pull.machine import Pull, Resumption, Speaks
from ...reconcile import Reconciled, Wishes
from ...replica.log import Replica
from ...sync.refusals import Refused
from ...sync.result import Ending, SyncResult
from ...sync.rpc import HEADS_MAX, GetNode, GetRoot, NodeResponse, Request, Response, RootResponse, Update
from ...sync.server import SyncServer
from ...sync.source import Source
from ...sync.wire import decode_response, encode_event, encode_request
from ...tasks.nursery import open_service_nursery
from ...tree.node import Node
from ..ground.protocol_ids import is_in_parts, is_of_another, push_protocol, sync_protocols
from ..service.peers import new_bucket
from ..service.sessions import ServeSession, Turns, close_in_peace, run_pull
from ..transport.muxed import Connection, Stream
from .client import HubConnections, HubUrl, PlaceAtHub, open_hub_connections

QUIET_S = 10.0
"""How long a hub may leave our heads alone before we give up."""
RESUMPTION = Resumption()
_SAID_S = 1.0
_RULES_MAX = 32
_ANSWERS_S = 10.0
_LOOK_FIRST_S, _LOOK_MOST_S = 0.02, 1.0
_ASKED_AT_ONCE = 256


@dataclass(slots=True)
class Exchange:
    """The result of an exchange.

    Attributes:
        pulled: What we took, over all sessions; None if we only gave.
        pushed: Entries that the hub took.
        sessions: The hub's sessions that took entries from us.
        requests: Requests in the hub's sessions.
        bytes_sent: Our bytes. On a connection of its own they include the muxer's.
        bytes_received: The hub's bytes, counted in the same way.
        seconds: Wall time.
        root: The hub's root at the end.
        is_equal: The hub's root is ours.
        is_taken: The hub has all that we have; None if we only took.
        refused: Our entries that the hub refused, by the rule that they break.
        unserved: Why we ended one of the hub's sessions without an answer; empty if we did not.
        is_reconciled: One reconciliation moved everything.
        rehearsal: What a reconciliation would move; only in a rehearsal.
    """

    pulled: SyncResult | None = None
    pushed: int = 0
    sessions: int = 0
    requests: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    seconds: float = 0.0
    root: Node | None = None
    is_equal: bool = False
    is_taken: bool | None = None
    refused: dict[str, Refused] = field(default_factory=dict)
    unserved: str = ""
    is_reconciled: bool = False
    rehearsal: Reconciled | None = None

    @property
    def moved(self) -> int:
        """Entries that were moved, either way."""
        return self.pushed + (0 if self.pulled is None else self.pulled.entries)

    @property
    def bytes_per_entry(self) -> float | None:
        """Bytes both ways per entry that was moved; None if none was."""
        return (self.bytes_sent + self.bytes_received) / self.moved if self.moved else None


async def exchange(
    log: Replica,
    hub: HubUrl,
    *,
    pulls: bool = True,
    pushes: bool = True,
    on_progress: Callable[[int], None] | None = None,
    on_pause: Callable[[float], None] | None = None,
    is_rehearsal: bool = False,
    connections: HubConnections | None = None,
) -> Exchange:
    """Exchange with a hub what either side lacks, once.

    A cancelled call keeps what was inserted, and can be repeated.

    Args:
        log: An open log; writable if it is to take.
        pulls: Whether to take.
        pushes: Whether to give.
        on_progress: Called with the number of entries that were moved since the last call.
        on_pause: Called before a pause of a second or more, with its seconds.
        is_rehearsal: Move nothing, and find out what would be moved. This needs a hub that reconciles.
        connections: Connections shared with other exchanges; bytes are then counted by stream.

    Raises:
        ProtocolNotSupported: It is a rehearsal, and the hub does not reconcile.
        CannotConnect: The hub cannot be reached, refused, serves another topic, or went away.
        RemoteProtocolError: The hub broke the protocol.
        StoreError: Our store failed.
    """
    session = _Session(log, hub, on_progress or (lambda moved: None), on_pause or (lambda seconds: None))
    started = time.monotonic()
    try:
        async with session.connected(connections):
            await session.pull(Wishes(pulls, pushes, is_rehearsal))
            if not (session.result.is_reconciled or is_rehearsal):
                if pushes:
                    session.result.is_taken = Rule.QUOTA not in session.result.refused and await session.push()
                root = (await session.ask([GetRoot()]))[0]
                if isinstance(root, RootResponse):
                    session.result.root = root.root
                    session.result.is_equal = root.root == await log.root()
    except (StreamReset, ClosedError) as error:
        raise CannotConnect(f"{hub.url} went away: {error}", hint="what was taken is kept; run it again to go on") from None
    if session.result.refused:
        # The hub's count excludes entries that it got twice or never read.
        session.result.pushed = max(refused.taken for refused in session.result.refused.values())
    session.result.seconds = time.monotonic() - started
    return session.result


class _Session:
    """One connection."""

    def __init__(self, log: Replica, hub: HubUrl, on_progress: Callable[[int], None], on_pause: Callable[[float], None]) -> None:
        self.result = Exchange()
        self._log = log
        self._hub = hub
        self._on_progress = on_progress
        self._on_pause = on_pause
        self._connection: Connection
        self._place: PlaceAtHub
        self._nursery: trio.Nursery
        self._push_protocol = push_protocol(log.topic)
        self._sync_protocols = sync_protocols(log.topic)
        self._bucket = new_bucket(trio.current_time())
        self._turns = Turns()
        self._serving = 0
        self._is_hearing = False
        self._heard = trio.Event()
        self._heads: tuple[Stream, bytes] | None = None
        self._moved = trio.Event()

    @asynccontextmanager
    async def connected(self, connections: HubConnections | None) -> AsyncIterator[None]:
        """Connect for the length of a block."""
        handlers = dict.fromkeys(self._sync_protocols, self._serve)
        async with AsyncExitStack() as stack:
            among = await stack.enter_async_context(open_hub_connections()) if connections is None else connections
            using = among.used(self._log.topic, handlers, self._hub)
            self._place = await stack.enter_async_context(using)
            self._connection = self._place.muxed
            try:
                async with open_service_nursery() as self._nursery:
                    yield
            finally:
                connection, topic = self._connection, self._log.topic
                own = [traffic for protocol, traffic in connection.traffic.items() if protocol and not is_of_another(protocol, topic)]
                self.result.bytes_sent = connection.bytes_out if connections is None else sum(each.bytes_out for each in own)
                self.result.bytes_received = connection.bytes_in if connections is None else sum(each.bytes_in for each in own)

    def _hear(self) -> None:
        """Begin to read refusals. The hub keeps them until they are read, so sessions that give nothing never open the stream."""
        if not self._is_hearing:
            self._is_hearing = True
            self._nursery.start_soon(self._hear_refusals)

    async def _hear_refusals(self) -> None:
        await self._place.hear(self._on_refused)
        # The hub sends no refusals, or went away.
        self._heard.set()

    def _on_refused(self, refused: Refused) -> None:
        before = self.result.refused.get(refused.rule)
        if before is not None or len(self.result.refused) < _RULES_MAX:
            self.result.refused[refused.rule] = refused if before is None else before.then(refused)
        self._heard.set()

    async def _wait_heard(self) -> None:
        """Give the hub a second to report why it refused entries."""
        self._hear()
        with trio.move_on_after(_SAID_S):
            await self._heard.wait()

    async def pull(self, wishes: Wishes) -> None:
        """Take what the hub has; in a reconciliation, also give what it lacks.

        Raises:
            ProtocolNotSupported: It is a rehearsal, and the hub does not reconcile.
            SyncAborted: It is a rehearsal, and it is unknown what would be moved.
            StoreError: It is a rehearsal, and the log's sketch is not ready.
        """
        # Proposing only the reconciliation saves a round trip with hubs that speak it.
        pull = Pull(Source(), Speaks(reconciles=True), wishes=wishes, resumption=RESUMPTION)
        connection, open_stream = self._connection, self._open_for_pull
        await run_pull(pull, self._log, connection, open_stream, lambda _: self._insert, close_in_peace, on_pause=self._pause)
        if wishes.is_rehearsal:
            self.result.rehearsal = self._rehearsed(pull)
            return
        if wishes.takes:
            self.result.pulled = pull.result
        outcome = pull.outcome
        if outcome is None:
            return
        if pull.is_reconciled:
            self.result.is_reconciled = True
            self.result.root, self.result.is_equal = outcome.root, outcome.is_equal
            if wishes.gives:
                self.result.pushed = outcome.given - len(outcome.refused)
                self.result.is_taken = outcome.root is not None and not outcome.refused
                if outcome.refused:
                    await self._wait_heard()
            self._on_progress(self.result.pushed)
        elif outcome.fallback and outcome.given:
            # We may be over a quota, and then the hub says so.
            await self._wait_heard()

    def _rehearsed(self, pull: Pull) -> Reconciled:
        if pull.is_unheard:
            raise ProtocolNotSupported(f"{self._hub.url} does not reconcile")
        if pull.outcome is None:
            raise StoreError("the log's sketch is not ready yet", hint="run it again")
        if not pull.is_reconciled or pull.outcome.result.ending is not Ending.COMPLETE:
            raise SyncAborted(f"what would be moved cannot be told: {pull.outcome.fallback or pull.outcome.result.reason}")
        return pull.outcome

    async def _open_for_pull(self, protocols: Sequence[str], wait_s: float | None, is_lazy: bool) -> Stream:
        return await self._open(*protocols, is_lazy=is_lazy)

    def _pause(self, seconds: float) -> None:
        if seconds >= _SAID_S:
            self._on_pause(seconds)

    async def push(self) -> bool:
        """Have the hub pull; return whether it then has everything."""
        heads = await self._log.run(ask(ReadHeads()))
        lacking = await self._lacking(heads)
        if not lacking:
            return True
        self._hear()
        moved = self._moved
        stream = await self._open(self._push_protocol)
        update = encode_frame(encode_event(Update(list(lacking[:HEADS_MAX]))))
        self._heads = stream, update
        await stream.send_all(update)
        async with open_service_nursery() as nursery:
            nursery.start_soon(_ignore, stream)
            is_taken = await self._wait_until_taken(lacking, moved)
        stream.close_sending()
        return is_taken

    async def _wait_until_taken(self, lacking: Sequence[bytes], moved: trio.Event) -> bool:
        """Ask for our heads at growing intervals, and sooner after each session (`moved`): the hub is still inserting then."""
        pause, active_at = _LOOK_FIRST_S, trio.current_time()
        while True:
            with trio.move_on_after(pause) as waiting:
                await moved.wait()
            moved = self._moved
            pause = min(2 * pause, _LOOK_MOST_S) if waiting.cancelled_caught else _LOOK_FIRST_S
            if self._serving or not waiting.cancelled_caught:
                active_at = trio.current_time()
            if self._serving:
                continue
            lacking = await self._lacking(lacking)
            if not lacking:
                return True
            if self.result.refused:
                # The hub would try again after a while, but waiting for that is the caller's choice.
                return False
            if trio.current_time() - active_at > QUIET_S:
                return False

    async def ask(self, requests: Sequence[Request]) -> list[Response]:
        """Send requests to the hub in one sync stream, and return the responses in the same order.

        Raises:
            RemoteProtocolError: A response is malformed, or not all came within 10 s.
        """
        stream = await self._open(self._sync_protocols[-1])
        frames, answers = FrameDecoder(), list[Response]()
        with trio.move_on_after(_ANSWERS_S) as timing:
            try:
                await stream.send_all(b"".join(encode_frame(encode_request(request)) for request in requests))
                while len(answers) < len(requests):
                    data = await stream.receive_some()
                    if not data:
                        raise RemoteProtocolError("the hub ended a session half way", peer=self._hub.url)
                    answers += map(decode_response, frames.take(data))
            except DecodeError as error:
                raise RemoteProtocolError(f"the hub sent what is no answer: {error}", peer=self._hub.url) from None
            finally:
                stream.close_sending()
        if timing.cancelled_caught:
            stream.reset()
            raise RemoteProtocolError(f"the hub did not answer within {_ANSWERS_S:g} s", peer=self._hub.url)
        return answers

    async def _lacking(self, heads: Sequence[bytes]) -> Sequence[bytes]:
        """Return the heads from the first that the hub lacks on; of those behind it, the hub is asked for at most 255."""
        for start in range(0, len(heads), _ASKED_AT_ONCE):
            asked = heads[start : start + _ASKED_AT_ONCE]
            answers = await self.ask([GetNode(0, key) for key in asked])
            for offset, answer in enumerate(answers):
                if not isinstance(answer, NodeResponse) or answer.node is None:
                    return heads[start + offset :]
        return []

    async def _open(self, *protocols: str, is_lazy: bool = False) -> Stream:
        try:
            return await self._connection.open_stream(protocols, is_lazy=is_lazy)
        except GossipLogError as error:
            raise CannotConnect(f"{self._hub.url} does not serve topic {self._log.topic}: {error}") from None

    async def _insert(self, entries: Sequence[tuple[bytes, bytes]]) -> list[Verdict]:
        try:
            verdicts = await self._log.insert_many([value for _, value in entries])
        except GossipLogError as error:
            return [Verdict(Outcome.IGNORE, Rule.STORAGE, str(error))] * len(entries)
        self._on_progress(sum(verdict.is_new for verdict in verdicts))
        return verdicts

    async def _serve(self, connection: Connection, stream: Stream) -> None:
        self._serving += 1
        try:
            server = SyncServer(trio.current_time(), bucket=self._bucket, in_parts=is_in_parts(stream.protocol))
            async with self._log.snapshot() as snapshot:
                try:
                    await ServeSession(self._log, snapshot, stream, server, self._turns).run()
                    if server.is_short and not server.is_aborted and self._heads is not None:
                        # The hub thinks that it has everything; announced again, the heads make it fetch the rest.
                        await self._heads[0].send_all(self._heads[1])
                finally:
                    self.result.unserved = server.fault or self.result.unserved
                    self.result.sessions += 1
                    self.result.requests += server.requests
                    self.result.pushed += server.values
                    self._on_progress(server.values)
        finally:
            self._serving -= 1
            moved, self._moved = self._moved, trio.Event()
            moved.set()


async def _ignore(stream: Stream) -> None:
    """Read and drop the hub's pushes: the same entries come by the sync."""
    try:
        while await stream.receive_some():
            pass
    except StreamReset:
        pass
