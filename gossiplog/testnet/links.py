"""The links of a test network: a relay for every connection between two of its processes, which can delay, cut and slow it.

The relay knows the two ends of each connection. Every process dials from an address of its own (`serve --dial-from`), and it dials a
listener of the relay, because servers announce no other address. So nothing gets around a cut.

A lossy link behaves as TCP does: nothing is lost or overtaken, but a lost segment arrives late, and everything behind it waits. If three
segments follow a lost one, their acknowledgements show the loss, which costs a round trip. If fewer follow, the sender waits for a time-out
of 200 ms plus a round trip, which doubles with each further loss.

Source: RFC 5681, section 3.2; RFC 6298, sections 2 and 5 (the floor of 200 ms is Linux's).
"""

from __future__ import annotations

import contextlib
import math
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import trio

_SEGMENT_BYTES = 1_460
_RTO_S = 0.2
_DUPLICATES = 3
_PIECES_MAX = 32
_PIECE_BYTES = 16_384
_TRIES_MAX = 8
_DIAL_S = 5.0
_RESET = struct.pack("ii", 1, 0)


@dataclass
class Conditions:
    """The conditions of all links.

    Attributes:
        latency: Seconds one way between two members, by their numbers.
        jitter: A piece takes its link's latency times U[1, 1 + jitter].
        loss: The probability that a segment is lost.
        bandwidth: The most bytes per second that a member sends over all its links together; 0: no limit.
    """

    latency: Callable[[int, int], float] = lambda a, b: 0.0
    jitter: float = 0.0
    loss: float = 0.0
    bandwidth: float = 0.0


@dataclass
class Link:
    """The state of the link between two members.

    Attributes:
        silent_until: While the link is cut, neither end notices until then: bytes that are sent wait. Then connections and dials are reset.
        bandwidth: The most bytes per second in each direction; 0: no limit.
        bytes: Bytes carried so far, in both directions.
        connections: Connections that are open now.
        changed: Set, and replaced, whenever one of the first three changes.
    """

    is_cut: bool = False
    silent_until: float = 0.0
    bandwidth: float = 0.0
    bytes: int = 0
    connections: int = 0
    changed: trio.Event = field(default_factory=trio.Event)

    def change(self, *, is_cut: bool, silent_s: float = 0.0) -> None:
        """Cut or heal the link."""
        self.is_cut, self.silent_until = is_cut, trio.current_time() + silent_s
        self._tell()

    def limit(self, bandwidth: float) -> None:
        """Limit the bytes per second from now on, including bytes that wait already."""
        self.bandwidth = bandwidth
        self._tell()

    def _tell(self) -> None:
        changed, self.changed = self.changed, trio.Event()
        changed.set()

    async def wait_sent(self, size: float) -> None:
        """Wait for as long as this many bytes take under the limit, which may change meanwhile."""
        while size > 0 and self.bandwidth:
            begun, bandwidth = trio.current_time(), self.bandwidth
            with trio.move_on_after(size / bandwidth) as left:
                await self.changed.wait()
            size = 0 if left.cancelled_caught else size - (trio.current_time() - begun) * bandwidth

    async def wait_open(self) -> bool:
        """Wait while the link is silently cut. Return whether it is open then."""
        while self.is_cut and trio.current_time() < self.silent_until:
            with trio.move_on_at(self.silent_until):
                await self.changed.wait()
        return not self.is_cut


class Links:
    """All links, and the listeners in front of the members that are dialled."""

    def __init__(self, conditions: Conditions, rng: Random, nursery: trio.Nursery) -> None:
        self.conditions = conditions
        self._rng = rng
        self._nursery = nursery
        self._links: dict[tuple[int, int], Link] = {}
        self._free_at: dict[int, float] = {}

    def between(self, a: int, b: int) -> Link:
        """Return the link between two numbers, in either order."""
        return self._links.setdefault((min(a, b), max(a, b)), Link())

    def all(self) -> list[tuple[tuple[int, int], Link]]:
        """Return the pairs and links that were ever used, cut or slowed, in the order of pairs."""
        return sorted(self._links.items())

    @property
    def cut_pairs(self) -> list[tuple[int, int]]:
        """The pairs whose links are cut, in order."""
        return sorted(pair for pair, link in self._links.items() if link.is_cut)

    def cut(self, a: int, b: int, silent_s: float = 0.0) -> None:
        """Cut the link between two numbers.

        Args:
            silent_s: For this long, bytes that are sent only wait, as on a dead line; then connections are reset.
        """
        self.between(a, b).change(is_cut=True, silent_s=silent_s)

    def heal(self, a: int, b: int) -> None:
        """Heal the link between two numbers; bytes that wait are carried on."""
        self.between(a, b).change(is_cut=False)

    async def stand_for(
        self, number: int, place: tuple[str, int], ours: tuple[str, int], who: Callable[[str], tuple[int, str] | None]
    ) -> None:
        """Listen in a member's place from now on, and relay to it.

        Args:
            place: Host and port that the member listens on.
            ours: Host and port to listen on.
            who: Returns the number of the member that dials from an address, and the address to dial on from; None for a stranger, whose
                connection is closed.

        Raises:
            OSError: The port is taken.
        """
        listeners = await trio.open_tcp_listeners(ours[1], host=ours[0])

        async def serve(stream: trio.SocketStream) -> None:
            with contextlib.suppress(OSError):
                dialler = who(str(stream.socket.getpeername()[0]))
                if dialler is not None:
                    await self._serve(stream, dialler, number, place)

        self._nursery.start_soon(trio.serve_listeners, serve, listeners)

    async def _serve(self, dialler: trio.SocketStream, who: tuple[int, str], number: int, place: tuple[str, int]) -> None:
        link = self.between(who[0], number)
        if not await link.wait_open():
            _reset(dialler)
            return
        try:
            with trio.fail_after(_DIAL_S):
                dialled = await trio.open_tcp_stream(*place, local_address=who[1])
        except (OSError, trio.TooSlowError):
            _reset(dialler)
            return
        link.connections += 1
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_at_cut, link, nursery.cancel_scope)
                async with trio.open_nursery() as carrying:
                    carrying.start_soon(self._carry, dialler, dialled, who[0], number, link)
                    carrying.start_soon(self._carry, dialled, dialler, number, who[0], link)
                nursery.cancel_scope.cancel()
        finally:
            link.connections -= 1
            _reset(dialler)
            _reset(dialled)

    async def _end_at_cut(self, link: Link, scope: trio.CancelScope) -> None:
        while await link.wait_open():
            await link.changed.wait()
        scope.cancel()

    async def _carry(self, source: trio.SocketStream, target: trio.SocketStream, a: int, b: int, link: Link) -> None:
        """Carry one direction of a connection until it ends. If it breaks, both directions end."""
        send, receive = trio.open_memory_channel[tuple[float, bytes]](_PIECES_MAX)

        async def take() -> None:
            due = free_at = 0.0
            async with send:
                while data := await source.receive_some(_PIECE_BYTES):
                    now = trio.current_time()
                    free_at = self._sent_at(a, len(data), max(now, free_at))
                    latency_s = self.conditions.latency(a, b) * (1 + self.conditions.jitter * self._rng.random())
                    due = max(due, free_at + latency_s + late_by(len(data), latency_s, self.conditions.loss, self._rng))
                    await send.send((due, bytes(data)))

        async def give() -> None:
            async for due, data in receive:
                await trio.sleep_until(due)
                await link.wait_sent(len(data))
                await link.wait_open()
                await target.send_all(data)
                link.bytes += len(data)
            await target.send_eof()

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(take)
                nursery.start_soon(give)
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            _reset(source)
            _reset(target)

    def _sent_at(self, number: int, size: int, now: float) -> float:
        """Return when the last of these bytes has left the sender: at once, unless its bandwidth is limited."""
        if not self.conditions.bandwidth:
            return now
        free_at = self._free_at[number] = max(now, self._free_at.get(number, 0.0)) + size / self.conditions.bandwidth
        return free_at


def late_by(size: int, latency_s: float, loss: float, rng: Random) -> float:
    """Return how much later than without losses the last of some bytes arrives, in seconds.

    Args:
        loss: The probability that a segment is lost, each time it is sent.
    """
    if not loss:
        return 0.0
    count = math.ceil(size / _SEGMENT_BYTES)
    latest_s = 0.0
    for number in range(count):
        late_s, wait_s = 0.0, _RTO_S + 2 * latency_s
        for tried in range(_TRIES_MAX):
            if rng.random() >= loss:
                break
            if tried == 0 and count - number > _DUPLICATES:
                late_s += 2 * latency_s
            else:
                late_s += wait_s
                wait_s *= 2
        latest_s = max(latest_s, late_s)
    return latest_s


def _reset(stream: trio.SocketStream) -> None:
    """Reset a connection: the other side notices at once, and bytes under way are lost."""
    with contextlib.suppress(OSError):
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    stream.socket.close()
