"""The law of applications in simulated replicas: the application of each replica, the entries that `apply` raises on, and the access rule.

The access rule is a question about the past: an entry that refers to another must come after it. The rule is in force when a `Stranger`,
which does not have it, takes part. An application's behaviour is a function of its replica's did, and whether `apply` raises is a function
of the entry. So applications never change the course of a run: an `apply` changes nothing that a peer could see.

Source: docs/spec/applications.md, "The law".
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from hashlib import sha256
from typing import Any

from ...entry.message import Entry, Message
from ...errors import Reject
from ...log.access import AccessRule
from ...log.application import Application
from ...log.past import Past

NAME = "check"


class Role(Enum):
    """The application of a replica."""

    WHOLE = "whole"
    """A correct one."""
    HASTY = "hasty"
    """A correct one that looks at all entries before it applies the first."""
    BROKEN = "broken"
    """One that raises on every entry except its replica's own."""
    CHANGING = "changing"
    """A correct one at the first start, none at the second, and so on in turn."""
    ABSENT = "absent"
    """None. No replica can apply some of the entries that such a replica writes."""


_ROLES = (Role.WHOLE, Role.WHOLE, Role.HASTY, Role.BROKEN, Role.CHANGING, Role.CHANGING, Role.ABSENT, Role.ABSENT)


@lru_cache(maxsize=1_024)
def role_of(did: str) -> Role:
    """Return the role of the replica with this did."""
    return _ROLES[sha256(did.encode()).digest()[0] % len(_ROLES)]


def make_application(did: str, epoch: int) -> Application | None:
    """Make the application of a starting replica. `epoch` counts its starts and stops, so it is 1, 3, 5, …"""
    role = role_of(did)
    if role is Role.ABSENT or (role is Role.CHANGING and epoch % 4 == 3):
        return None

    def apply(entries: Sequence[Entry], tx: Any) -> None:
        for entry in list(entries) if role is Role.HASTY else entries:
            reason = find_poison(entry) or ("it is broken" if role is Role.BROKEN and entry.author != did else None)
            if reason is not None:
                raise Reject(reason, id=entry.id) if entry.key[-2] % 2 else ValueError(reason)
            tx.execute("INSERT INTO applied VALUES ($1)", [entry.key])

    def undo(entries: Sequence[Entry], tx: Any) -> None:
        for entry in entries:
            tx.execute("DELETE FROM applied WHERE key = $1", [entry.key])

    return Application(NAME, 1, apply, order_free=True, undo=undo)


def find_poison(entry: Entry) -> str | None:
    """Return why an entry cannot be applied; None if it can."""
    payload = entry.payload
    if isinstance(payload, bytes):
        return "bytes"
    if isinstance(payload, dict) and "poison" in payload:
        return "its payload says so"
    if entry.key[-1] % 4 == 0 and role_of(entry.author) is Role.ABSENT:
        return "its author has no application that could refuse it"
    return None


def authorize(message: Message, did: str, past: Past) -> bool:
    """Return whether the entry that a message refers to is in its past; the author does not matter."""
    reference = reference_of(message.payload)
    return reference is None or (past.get(reference) is not None and past.is_ancestor(reference))


RULE = AccessRule(authorize, asks_past=True)


def reference_of(payload: Any) -> str | None:
    """Return the id that an entry refers to; None if it refers to none."""
    return payload.get("re") if isinstance(payload, dict) else None
