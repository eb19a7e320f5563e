"""What the service asks of a mesh: to connect, to disconnect and to measure."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Protocol, assert_never

from ...pubsub.actions import Connect, Disconnect, Probe
from ...pubsub.events import ConnectFailed, Probed
from ...pubsub.types import PeerId

__all__ = ["Dialler", "ask_dialler"]


class Dialler(Protocol):
    """Who makes connections for the router. Each call returns at once; the answers come through `Service.tell`."""

    def connect(self, peer: PeerId, record: bytes | None, source: PeerId | None) -> None:
        """Dial a peer that another one may have named, then attach the connection, or tell `ConnectFailed`."""
        ...

    def disconnect(self, peer: PeerId) -> None:
        """The router has no more use for the connection."""
        ...

    def probe(self, peer: PeerId) -> None:
        """Measure the round trip, and tell `Probed`."""
        ...


def ask_dialler(
    dialler: Dialler | None,
    action: Connect | Disconnect | Probe,
    connected: Container[PeerId],
    tell: Callable[[ConnectFailed | Probed], None],
) -> None:
    """Carry out what the router wants of connections; without a mesh nobody can be dialled or measured."""
    match action:
        case Connect(id, record, source):
            if id in connected:
                pass
            elif dialler is None:
                tell(ConnectFailed(id))
            else:
                dialler.connect(id, record, source)
        case Disconnect(id):
            if dialler is not None:
                dialler.disconnect(id)
        case Probe(id):
            if dialler is None:
                tell(Probed(id, None))
            else:
                dialler.probe(id)
        case _:
            assert_never(action)
