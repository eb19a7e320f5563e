"""What all streams of one log share: the broadcast machine, who is connected, how streams are opened and served."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import trio

from ...broadcast.actions import Action
from ...broadcast.broadcast import Broadcast
from ...broadcast.events import Event
from ...errors import GossipLogError, ProtocolNotSupported
from ...plan import Plan, Resumable
from ...pubsub.types import PeerId
from ...replica.log import Replica
from ..ground.journal import note
from ..reports.figures import Figures
from ..reports.observer import Observer
from ..transport.stream import Stream
from .attached import Attached
from .peers import PeerConnection, ServedPeer

OPEN_S = 10.0
"""How long opening a stream may take."""
_REFUSALS_MAX = 8
"""Reasons that are logged of one peer."""
_RETRY_FIRST_S, _RETRY_MOST_S = 1.0, 60.0


class LogDriver:
    """Drives one log's machine.

    Args:
        act: Carries out one action at once; whatever takes longer it begins.
        tell: Hands an event to the machine, in its turn among those of other logs and of the router.

    Attributes:
        machine: The log's protocol. Others may look at it, and hand it nothing.
        observer: Makes facts of all that happens; None where nobody wants any.
        now: Says what time it is, in seconds of the event loop.
        has_ended: Nothing is handed to the machine any more.
    """

    def __init__(self, log: Replica, machine: Broadcast, act: Callable[[Action], None], tell: Callable[[Event, LogDriver], None]) -> None:
        self.log = log
        self.topic = log.topic
        self.machine = machine
        self.act = act
        self.peers: dict[PeerId, ServedPeer] = {}
        self.counts = Counter[str]()
        self.figures = Figures(log.topic)
        self.observer: Observer | None = None
        self.now = trio.lowlevel.current_clock().current_time  # two calls less than `trio.current_time`
        self.has_ended = False
        self.connections = Attached[PeerConnection]()
        self._tell = tell

    # The machine

    def tell(self, event: Event) -> None:
        """Hand an event to the machine, and carry out what it asks for. Returns at once, raises nothing; of no effect after the end."""
        if not self.has_ended:
            # Connections may outlive the service by a moment where the log's block is cancelled.
            self._tell(event, self)

    def count(self, what: str, number: int = 1) -> None:
        """Count something that happened."""
        self.counts[what] += number

    def on_refusals(self, peer: ServedPeer, reasons: Sequence[str]) -> None:
        """Count messages that are not even looked at, and say why, each reason once a peer."""
        self.count("messages refused", len(reasons))
        peer.count("messages refused", len(reasons))
        for reason in dict.fromkeys(reasons):
            if reason not in peer.refusals and len(peer.refusals) < _REFUSALS_MAX:
                peer.refusals.add(reason)
                self.observed("refused", peer.id, reason=reason)
                note("message refused", level=logging.WARNING, peer=peer.id, reason=reason)

    def observed(self, kind: str, peer: str | None = None, **columns: Any) -> None:
        """Have the observer take a fact, if there is one. See `Witness.tell`."""
        if self.observer is not None:
            self.observer.tell(kind, peer, **columns)

    # Turns of those who bring entries

    def has_to_wait(self, peer: ServedPeer, under_way_max: int) -> bool:
        """Whether a peer's next entry has to wait: so many of its are under way, or it is a stranger from where others offended."""
        return peer.inserting >= under_way_max or self.machine.shared.is_slowed(peer.id, self.now())

    async def wait_turn(self, peer: ServedPeer, entries: int, under_way_max: int | None = None) -> None:
        """Wait until so many entries of a peer may be verified, and less than the maximum of its are under way: not at all, as a rule."""
        while True:
            entries, ready_at = self.machine.shared.take_turn(peer.id, entries, self.now())
            if entries <= 0:
                break
            peer.note_once("slowed", "a stranger is slowed", address=peer.origin, reason="others from there sent what is invalid")
            await trio.sleep_until(ready_at)
        while under_way_max is not None and peer.inserting >= under_way_max:
            if peer.settled.is_set():
                peer.settled = trio.Event()
            await peer.settled.wait()

    # Streams

    def on_detached(self, link: PeerConnection) -> None:
        """Serve a connection no longer."""
        self.connections.remove(link.connection)
        self.figures.on_detached(link.connection)

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
