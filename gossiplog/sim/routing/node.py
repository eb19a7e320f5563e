"""A simulated node and a link between two of them: what the driver knows, none of what the router knows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from ...pubsub.actions import Action
from ...pubsub.events import Event
from ...pubsub.router import Router
from ...pubsub.types import PeerId

__all__ = ["Handle", "Lane", "Node", "SimLink"]

Handle: TypeAlias = Callable[[Event, float], list[Action]]
"""A router's one door."""


class Lane:
    """One direction of a link: all that handling an RPC on arrival needs, in one object.

    Attributes:
        link: The link.
        node: The receiver.
        handle: Of the receiver's router, which is handed what arrives; None unless its driver holds the connection open.
        latency_s: One way.
        is_plain: Nothing can happen to what is sent but its latency: no loss, no queue, no jitter.
        last_s: When the last RPC that is kept in order arrives.
        departures: When the RPCs that wait in its queue leave it; made when first needed.
    """

    __slots__ = ("departures", "handle", "is_plain", "last_s", "latency_s", "link", "node")

    def __init__(self, link: SimLink, node: Node, latency_s: float, *, is_plain: bool) -> None:
        self.link = link
        self.node = node
        self.handle: Handle | None = None
        self.latency_s = latency_s
        self.is_plain = is_plain
        self.last_s = 0.0
        self.departures: deque[float] | None = None


class SimLink:
    """One connection.

    Attributes:
        dialler: The node that dialled.
        dialled: The node that was dialled.
        dialler_epoch: How often the dialler had started when it dialled; another number says that it crashed since.
        there: The lane from the dialler to the dialled.
        back: The lane from the dialled to the dialler.
        is_cut: A partition runs across it.
        bandwidth: Bytes a second in each direction; 0: no limit.
        released: Nodes whose routers have no more use for the connection.
    """

    __slots__ = ("back", "bandwidth", "dialled", "dialler", "dialler_epoch", "is_cut", "released", "there")

    def __init__(self, dialler: Node, dialled: Node, latency_s: float, *, is_plain: bool, bandwidth: float) -> None:
        self.dialler = dialler
        self.dialled = dialled
        self.dialler_epoch = dialler.epoch
        self.there = Lane(self, dialled, latency_s, is_plain=is_plain)
        self.back = Lane(self, dialler, latency_s, is_plain=is_plain)
        self.is_cut = False
        self.bandwidth = bandwidth
        self.released: list[int] = []

    @property
    def latency_s(self) -> float:
        """Seconds, one way."""
        return self.there.latency_s

    @property
    def key(self) -> tuple[int, int]:
        """The two nodes' numbers, ascending."""
        a, b = self.dialler.id, self.dialled.id
        return (a, b) if a < b else (b, a)

    def to(self, node: Node) -> Lane:
        """The lane that ends at one of the two nodes."""
        return self.there if node is self.dialled else self.back

    def other(self, node: Node) -> Node:
        """The node at the other end."""
        return self.dialler if node is self.dialled else self.dialled

    def set_plain(self, is_plain: bool) -> None:
        """Say for both directions whether anything but latency can happen."""
        self.there.is_plain = self.back.is_plain = is_plain


class Node:
    """One node.

    Attributes:
        id: Its number.
        peer_id: The same number as routers see it: they only hash and compare peer ids.
        router: None while it is down.
        handle: The router's; one object for all lanes that end here.
        lanes: To each peer that this side holds a connection with.
        timers: When each of the router's timers fires, by token, on the node's own clock.
        epoch: How often it has started.
        rate: How fast its clock runs; 1.0 is right.
        offset_s: What its clock shows at 0.
        address: Its IP address.
        bandwidth: Bytes a second of each of its links; 0: no limit. For slow nodes.
        uplink_free_s: When what it has sent so far will have left it, where its whole uplink is limited.
    """

    __slots__ = (
        "address",
        "bandwidth",
        "epoch",
        "handle",
        "id",
        "lanes",
        "offset_s",
        "peer_id",
        "rate",
        "router",
        "timers",
        "uplink_free_s",
    )

    def __init__(self, number: int, address: str) -> None:
        self.id = number
        self.peer_id: PeerId = number  # type: ignore[assignment]
        self.router: Router | None = None
        self.handle: Handle | None = None
        self.lanes: dict[PeerId, Lane] = {}
        self.timers: dict[str, float] = {}
        self.epoch = 0
        self.rate = 1.0
        self.offset_s = 0.0
        self.address = address
        self.bandwidth = 0.0
        self.uplink_free_s = 0.0
