"""What is true only now of those who have a log open: signed, told to whoever is there, and never stored.

`PresenceRoom` is the pure machine of one log: `handle(event, now)` returns its actions. It decides which state of whom is the newest, when
it is over, who is told, and who tells too much.

Source: docs/spec/presence.md.
"""

from .messages import (
    FRAME_BYTES_MAX,
    SESSION_BYTES,
    TTL_MS_MAX,
    Departed,
    Statement,
    decode_frame,
    sign_statement,
)
from .room import (
    FaultyPeer,
    FrameReceived,
    MembersRead,
    PeerBlocked,
    PeerEntered,
    PeerGone,
    PresenceChanged,
    PresenceRoom,
    RoomEvent,
    SendFrames,
    StatementMade,
    TimePassed,
)

__all__ = [
    "FRAME_BYTES_MAX",
    "SESSION_BYTES",
    "TTL_MS_MAX",
    "Departed",
    "FaultyPeer",
    "FrameReceived",
    "MembersRead",
    "PeerBlocked",
    "PeerEntered",
    "PeerGone",
    "PresenceChanged",
    "PresenceRoom",
    "RoomEvent",
    "SendFrames",
    "Statement",
    "StatementMade",
    "TimePassed",
    "decode_frame",
    "sign_statement",
]
