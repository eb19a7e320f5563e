"""Reliable causal broadcast as one sans-IO machine: a pubsub router, the push of heads, and the choice of syncs."""

from .actions import Action, Ask, Ban, ClosePush, InsertEntry, OpenPush, Push, StartSync, Unwelcome
from .certain_entries import CertainEntries
from .events import (
    Answered,
    Appended,
    Connected,
    Disconnected,
    Event,
    Foreseen,
    Inserted,
    Misbehaved,
    PeerKind,
    PubsubChanged,
    PushClosed,
    PushDropped,
    PushOpened,
    PushReceived,
    Start,
    SyncFinished,
    SyncServed,
)
from .machine import Broadcast
from .state import BroadcastState

__all__ = [
    "Action",
    "Answered",
    "Appended",
    "Ask",
    "Ban",
    "Broadcast",
    "BroadcastState",
    "CertainEntries",
    "ClosePush",
    "Connected",
    "Disconnected",
    "Event",
    "Foreseen",
    "InsertEntry",
    "Inserted",
    "Misbehaved",
    "OpenPush",
    "PeerKind",
    "PubsubChanged",
    "Push",
    "PushClosed",
    "PushDropped",
    "PushOpened",
    "PushReceived",
    "Start",
    "StartSync",
    "SyncFinished",
    "SyncServed",
    "Unwelcome",
]
