"""What all streams of one log share: the broadcast machine and how it is driven, who is connected, how streams are opened and served.

Whatever happens goes through `tell`, and what the machine asks for is carried out in order, never one action within another.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from ...broadcast import Action, Broadcast, Event, SharedEvent
from ...errors import GossipLogError, ProtocolNotSupported, StreamReset
from ...plan import Plan, Resumable
from ...pubsub.actions import AnotherSource, Validate
from ...pubsub.types import PeerId
from ...replica.log import Replica
from ..ground.journal import note
from ..reports.figures import Figures
from ..reports.observer import Observer
from ..transport.stream import Connection, Handler, Stream
from .peers import Peer, PeerConnection

__all__ = ["OPEN_S", "LogDriver", "read_patiently"]

OPEN_S = 10.0
"""How long opening a stream may take."""
ATTACH_S = 5.0
_RETRY_FIRST_S, _RETRY_MOST_S = 1.0, 60.0


class LogDriver:
    """Drives one log's machine.

    Args:
        log: The log.
        machine: Its protocol.
        act: Carries out one action at once; whatever takes longer it begins.

    Attributes:
        log: The log.
        topic: The log's.
        machine: Its protocol.
        shared: The router.
        peers: Who is connected.
        counts: What has happened since the start, by name.
        figures: What it has done so far, by way and outcome.
        observer: Makes facts of all that happens; None where nobody wants any.
        now: Says what time it is, in seconds of the event loop.
        has_ended: Nothing is handed to the machine any more.
    """

    def __init__(self, log: Replica, machine: Broadcast, act: Callable[[Action], None]) -> None:
        self.log = log
        self.topic = log.topic
        self.machine = machine
        self.shared = machine.shared
        self.peers: dict[PeerId, Peer] = {}
        self.counts = Counter[str]()
        self.figures = Figures()
        self.observer: Observer | None = None
        self.now = trio.lowlevel.current_clock().current_time  # two calls less than `trio.current_time`
        self.has_ended = False
        self._act = act
        self._todo: deque[Action] = deque()
        self._is_acting = False
        self._links: dict[Connection, PeerConnection] = {}
        # Set and replaced when a connection is attached.
        self._attached = trio.Event()

    # The machine

    def tell(self, event: Event) -> None:
        """Hand an event to the machine, and carry out what it asks for. Returns at once, raises nothing; of no effect after the end."""
        self._tell(self.machine, event)

    def tell_router(self, event: SharedEvent) -> None:
        """Hand an event to the router, in the same way."""
        self._tell(self.shared, event)

    def _take(self, machine: Any, event: Event | SharedEvent) -> None:
        """Note what an event leads to, with the log's answers in the places of what the router asks of it."""
        try:
            actions = machine.handle(event, self.now())
            if self.observer is not None:
                self.observer.on_event(event, actions)
        except Exception as error:
            _note_fault(error, event)
            return
        for action in actions:
            if type(action) is Validate or type(action) is AnotherSource:
                self._take(self.machine, action)
            else:
                self._todo.append(action)

    def _tell(self, machine: Any, event: Event | SharedEvent) -> None:
        if self.has_ended:
            # Connections may outlive the service by a moment where the log's block is cancelled.
            return
        self._take(machine, event)
        if self._is_acting:
            return
        self._is_acting = True
        while self._todo:
            action = self._todo.popleft()
            try:
                self._act(action)
            except Exception as error:
                _note_fault(error, action)
        self._is_acting = False

    def count(self, what: str, number: int = 1) -> None:
        """Count something that happened."""
        self.counts[what] += number

    def observed(self, kind: str, peer: str | None = None, **columns: Any) -> None:
        """Have the observer take a fact, if there is one. See `Tell`."""
        if self.observer is not None:
            self.observer.tell(kind, peer, **columns)

    # Turns of those who bring entries

    def has_to_wait(self, peer: Peer, under_way_max: int) -> bool:
        """Whether a peer's next entry has to wait: so many of its are under way, or it is a stranger from where others offended."""
        return peer.inserting >= under_way_max or self.shared.is_slowed(peer.id, self.now())

    async def wait_turn(self, peer: Peer, entries: int, under_way_max: int | None = None) -> None:
        """Wait until so many entries of a peer may be verified, and less than the maximum of its are under way: not at all, as a rule."""
        while True:
            entries, ready_at = self.shared.take_turn(peer.id, entries, self.now())
            if entries <= 0:
                break
            peer.note_once("slowed", "a stranger is slowed", address=peer.origin, reason="others from there sent what is invalid")
            await trio.sleep_until(ready_at)
        while under_way_max is not None and peer.inserting >= under_way_max:
            if peer.settled.is_set():
                peer.settled = trio.Event()
            await peer.settled.wait()

    # Streams

    def on_attached(self, link: PeerConnection) -> None:
        """Serve a connection from now on."""
        self._links[link.connection] = link
        attached, self._attached = self._attached, trio.Event()
        attached.set()

    def on_detached(self, link: PeerConnection) -> None:
        """Serve a connection no longer."""
        del self._links[link.connection]
        self.figures.on_detached(link.connection)

    def handler(self, serve: Callable[[PeerConnection, Stream], Awaitable[None]]) -> Handler:
        """Have a function serve streams that peers open, once their connection is attached."""

        async def handle(connection: Connection, stream: Stream) -> None:
            await serve(await self._link(connection), stream)

        return handle

    async def _link(self, connection: Connection) -> PeerConnection:
        with trio.move_on_after(ATTACH_S):
            while (link := self._links.get(connection)) is None:
                await self._attached.wait()
            return link
        raise StreamReset("the connection is not in use")

    async def open_stream(
        self, link: PeerConnection, protocols: Sequence[str], wait_s: float = OPEN_S, *, is_lazy: bool = False
    ) -> Stream | None:
        """Open a stream of ours; None, and the reason is logged, where that does not work in time."""
        with trio.move_on_after(min(wait_s, OPEN_S)):
            try:
                return await link.connection.open_stream(protocols, is_lazy=is_lazy)
            except ProtocolNotSupported as error:
                if "topic" not in link.peer.told:
                    self.observed("ignored", link.peer.id, type=protocols[-1], reason=str(error))
                link.peer.note_once("topic", "protocol not served there", level=logging.WARNING, reason=str(error))
            except GossipLogError as error:
                note("stream not opened", level=logging.DEBUG, peer=link.peer.id, protocol=protocols[-1], reason=str(error))
        return None


async def read_patiently(log: Replica, plan: Plan[Any]) -> Any:
    """Run a plan that reads, and return its answer; again, after 1 s to 60 s, where the store fails it or holds what cannot be read.

    The machine waits for its answers however long they take. Any part of the plan may see a later state of the log than the part before it.
    """
    resumable, pause = Resumable(plan), _RETRY_FIRST_S
    while True:
        try:
            return await log.run(resumable.run())
        except GossipLogError as error:
            note("the log does not answer", level=logging.ERROR, reason=str(error))
        await trio.sleep(pause)
        pause = min(2 * pause, _RETRY_MOST_S)


def _note_fault(error: Exception, cause: Event | SharedEvent | Action) -> None:
    """Log a fault of ours, which must end neither the connection of whoever brought it to light, nor the log's writer."""
    note("fault in the protocol", level=logging.ERROR, error=error, cause=type(cause).__name__)
