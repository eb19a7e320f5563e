"""What the streams of one log share: the broadcast machine, the peers, and how entries take turns and streams are opened."""

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
from ..transport.muxed import Stream
from .peers import Attached, PeerConnection, ServedPeer

OPEN_S = 10.0
"""How long opening a stream may take."""
_REFUSALS_MAX = 8
"""Reasons that are logged of one peer."""
_RETRY_FIRST_S, _RETRY_MOST_S = 1.0, 60.0


class LogDriver:
    """Drives one log's machine.

    Args:
        act: Carries out an action without waiting; anything longer it only starts.
        tell: Hands an event to the machine, in turn with the events of other logs and of the router.

    Attributes:
        machine: The log's protocol. Others may read it, but hand it nothing.
        observer: Turns what happens into facts; None if nobody wants them.
        now: Returns the time of the event loop, in seconds.
        has_ended: The machine takes no more events.
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
        self.now = trio.lowlevel.current_clock().current_time  # two calls fewer than `trio.current_time`
        self.has_ended = False
        self.connections = Attached[PeerConnection]()
        self._tell = tell

    def tell(self, event: Event) -> None:
        """Hand an event to the machine and carry out its actions. Returns at once and raises nothing; does nothing after the end."""
        if not self.has_ended:
            # Connections may outlive the service for a moment when the log's block is cancelled.
            self._tell(event, self)

    def count(self, what: str, number: int = 1) -> None:
        """Count something that happened."""
        self.counts[what] += number

    def on_refusals(self, peer: ServedPeer, reasons: Sequence[str]) -> None:
        """Count messages that were refused unread, and log each reason once a peer."""
        self.count("messages refused", len(reasons))
        peer.count("messages refused", len(reasons))
        for reason in dict.fromkeys(reasons):
            if reason not in peer.refusals and len(peer.refusals) < _REFUSALS_MAX:
                peer.refusals.add(reason)
                self.observed("refused", peer.id, reason=reason)
                note("message refused", level=logging.WARNING, peer=peer.id, reason=reason)

    def observed(self, kind: str, peer: str | None = None, **columns: Any) -> None:
        """Give a fact to the observer, if there is one. See `Witness.tell`."""
        if self.observer is not None:
            self.observer.tell(kind, peer, **columns)

    def has_to_wait(self, peer: ServedPeer, under_way_max: int) -> bool:
        """Whether a peer's next entry has to wait: too many are under way, or the peer is new and others from its address offended."""
        return peer.inserting >= under_way_max or self.machine.shared.is_slowed(peer.id, self.now())

    async def wait_turn(self, peer: ServedPeer, entries: int, under_way_max: int | None = None) -> None:
        """Wait until so many entries of a peer may be verified and fewer than the maximum are under way. Usually that is at once."""
        while True:
            entries, ready_at = self.machine.shared.take_turn(peer.id, entries, self.now())
            if entries <= 0:
                break
            peer.note_once("slowed", "a stranger is slowed", address=peer.origin, reason="others from this address sent invalid messages")
            await trio.sleep_until(ready_at)
        while under_way_max is not None and peer.inserting >= under_way_max:
            await peer.settled.park()

    async def open_stream(
        self, link: PeerConnection, protocols: Sequence[str], wait_s: float | None = None, is_lazy: bool = False
    ) -> Stream | None:
        """Open a stream of ours. If that fails or takes more than `wait_s`, at most 10 s, return None; a failure is logged."""
        with trio.move_on_after(min(wait_s or OPEN_S, OPEN_S)):
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
    """Run a plan that reads, and return its answer. If the store fails or a row is damaged, retry after 1 s, doubled up to 60 s.

    The machine waits for its answers however long they take. Later parts of the plan may see a later state of the log.
    """
    resumable, pause = Resumable(plan), _RETRY_FIRST_S
    while True:
        try:
            return await log.run(resumable.run())
        except GossipLogError as error:
            note("the log does not answer", level=logging.ERROR, reason=str(error))
        await trio.sleep(pause)
        pause = min(2 * pause, _RETRY_MOST_S)
