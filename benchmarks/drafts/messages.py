"""What the drafts add to control. Nothing here travels: the simulator hands it on as it is and weighs it as protobuf would.

Source: the drafts of gossipsub v1.4 and v2.0, libp2p/specs pull requests 654 (and 706) and 653.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gossiplog.pubsub.types import MessageId, Topic
from gossiplog.sim.measure.sizes import UnwiredControl, field_bytes, number_bytes

__all__ = ["DraftControl"]


@dataclass(slots=True)
class DraftControl(UnwiredControl):
    """Control with what the drafts add. Treat it as frozen.

    Attributes:
        preamble: Topic, id and bytes of messages that come next (v1.4).
        imreceiving: Ids and bytes of messages that are on their way to the sender, who needs no other copy (v1.4).
        iannounce: Ids of messages that the sender has and pushes only if they are asked for (v2.0).
        ineed: Ids of such messages that the sender asks for (v2.0).
    """

    preamble: tuple[tuple[Topic, MessageId, int], ...] = ()
    imreceiving: tuple[tuple[MessageId, int], ...] = ()
    iannounce: tuple[MessageId, ...] = ()
    ineed: tuple[MessageId, ...] = ()

    def further_bytes(self) -> int:
        """Count what protobuf would take."""
        size = sum(field_bytes(field_bytes(len(topic)) + field_bytes(len(each)) + number_bytes(n)) for topic, each, n in self.preamble)
        size += sum(field_bytes(field_bytes(len(each)) + number_bytes(length)) for each, length in self.imreceiving)
        return size + sum(field_bytes(len(each)) for each in (*self.iannounce, *self.ineed))

    def further_parts(self) -> Iterator[tuple[str, int]]:
        """Name each addition with how many ids it has."""
        for kind in ("preamble", "imreceiving", "iannounce", "ineed"):
            if count := len(getattr(self, kind)):
                yield kind, count
