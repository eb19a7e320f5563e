"""What the drafts add to control. Nothing here travels: the simulator hands it on as it is and weighs it as protobuf would.

Source: the drafts of gossipsub v1.4 and v2.0, libp2p/specs pull requests 654 (and 706) and 653.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...pubsub.rpc import Control
from ...pubsub.types import MessageId, Topic

__all__ = ["DraftControl"]


@dataclass(slots=True)
class DraftControl(Control):
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
