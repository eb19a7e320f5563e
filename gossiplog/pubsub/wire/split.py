"""Cutting an RPC into smaller ones, each of which other implementations accept as one frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import chain

from ..rpc import Control, IHave, Prune, Rpc
from ..types import MessageId

_CHUNK_IDS = 512
_LISTS = [row.name for row in fields(Control) if row.name != "extensions"]
"""The fields of control that are tuples."""


@dataclass(frozen=True, slots=True)
class Room:
    """The limits of one RPC."""

    bytes_max: int
    control_bytes_max: int
    messages_max: int


def split(rpc: Rpc, room: Room, weigh: Callable[[Rpc], int]) -> Iterator[Rpc]:
    """Cut an RPC into ones that fit into `room`, in order, each filled as far as possible.

    A PRUNE that is too large loses some of the peers that it offers. A message that is too large on its own is left out.

    Args:
        weigh: Returns the bytes that an RPC takes.
    """
    parts: list[Rpc] = []
    used = control_used = messages = 0
    for part in _atoms(rpc, room, weigh):
        size = weigh(part)
        if size > room.bytes_max:
            continue
        control_size, count = size if part.control is not None or part.subscriptions else 0, len(part.messages)
        is_full = (
            used + size > room.bytes_max or control_used + control_size > room.control_bytes_max or messages + count > room.messages_max
        )
        if parts and is_full:
            yield _merge(parts)
            parts, used, control_used, messages = [], 0, 0, 0
        parts.append(part)
        used, control_used, messages = used + size, control_used + control_size, messages + count
    if parts:
        yield _merge(parts)


def _atoms(rpc: Rpc, room: Room, weigh: Callable[[Rpc], int]) -> Iterator[Rpc]:
    """Yield the smallest RPCs that an RPC can be cut into, in order; extensions go first, as only the first frame may announce them."""
    if rpc.control is not None and rpc.control.extensions is not None:
        yield Rpc(control=Control(extensions=rpc.control.extensions))
    for subscription in rpc.subscriptions:
        yield Rpc(subscriptions=(subscription,))
    for message in rpc.messages:
        yield Rpc((message,), hops=rpc.hops)
    control = rpc.control or Control()
    for ihave in control.ihave:
        for ids in _chunks(ihave.ids, room):
            yield Rpc(control=Control(ihave=(IHave(ihave.topic, ids),)))
    for ids in _chunks(control.iwant, room):
        yield Rpc(control=Control(iwant=ids))
    for topic in control.graft:
        yield Rpc(control=Control(graft=(topic,)))
    for prune in control.prune:
        yield _prune(prune, room, weigh)
    for ids in _chunks(control.idontwant, room):
        yield Rpc(control=Control(idontwant=ids))
    for topic in control.choke:
        yield Rpc(control=Control(choke=(topic,)))
    for topic in control.unchoke:
        yield Rpc(control=Control(unchoke=(topic,)))
    for overlay in rpc.overlay:
        yield Rpc(overlay=(overlay,))
    if rpc.is_test:
        yield Rpc(is_test=True)


def _chunks(ids: tuple[MessageId, ...], room: Room) -> Iterator[tuple[MessageId, ...]]:
    """Yield ids in groups that fit into half of the room for control; the other half is for the topic."""
    if not ids:
        return
    longest = max(map(len, ids)) + 3
    count = max(1, min(_CHUNK_IDS, room.control_bytes_max // 2 // longest))
    for start in range(0, len(ids), count):
        yield ids[start : start + count]


def _prune(prune: Prune, room: Room, weigh: Callable[[Rpc], int]) -> Rpc:
    """Return a PRUNE that fits, halving the peers that it offers until it does."""
    most = min(room.bytes_max, room.control_bytes_max)
    whole = Rpc(control=Control(prune=(prune,)))
    peers = prune.peers
    while peers and weigh(whole) > most:
        peers = peers[: len(peers) // 2]
        whole = Rpc(control=Control(prune=(Prune(prune.topic, peers, prune.backoff_s),)))
    return whole


def _merge(parts: list[Rpc]) -> Rpc:
    """Join atoms into one RPC. It is never larger than they were together, since they share their wrappers."""
    controls = [part.control for part in parts if part.control is not None]
    control = None
    if controls:
        joined = {name: tuple(chain.from_iterable(getattr(one, name) for one in controls)) for name in _LISTS}
        control = Control(**joined, extensions=next((one.extensions for one in controls if one.extensions is not None), None))
    return Rpc(
        tuple(chain.from_iterable(part.messages for part in parts)),
        tuple(chain.from_iterable(part.subscriptions for part in parts)),
        control,
        tuple(chain.from_iterable(part.overlay for part in parts)),
        max(part.hops for part in parts),
        any(part.is_test for part in parts),
    )
