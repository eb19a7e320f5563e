"""What a hub tells a client of entries that it does not take: which, why, and how many it has taken. Only ours speak this.

The client opens one stream for it; the hub writes frames on it, each a JSON object, and reads nothing. Each entry is told of once.

Source: docs/spec/sync.md, "Refusals".
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import trio

from ...codec import plain_json
from ...codec.framing import FrameDecoder, encode_frame
from ...entry.message_id import encode_id, is_id
from ...entry.validation import Rule, Verdict
from ...errors import ClosedError, DecodeError, GossipLogError, StreamReset
from ..ground.journal import note
from ..ground.protocol_ids import refusals_protocol
from ..transport.stream import Connection, Stream

__all__ = ["RefusalBox", "Refused", "hear_refusals", "read_refusals", "write_refusals"]

IDS_MAX = 64
_FRAME_BYTES_MAX = 16 * 1024
_TEXT_CHARS_MAX = 512
_RULES_MAX = 16
_TOLD_MAX = 4_096
_COUNT_MAX = 2**53
_UNTOLD = frozenset({Rule.PARENTS, Rule.STORAGE})
"""An orphan is synced for, and a fault of ours is mended: both come in later by themselves."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Entries that a hub did not take, for one reason.

    Attributes:
        rule: Which rule of the hub's they break: `unwelcome`, `quota`, `access`, or one of validation's.
        reason: In words, of the latest of them.
        ids: The first of them.
        count: The number of such entries.
        taken: New entries that the hub has taken from this connection so far.
    """

    rule: str
    reason: str
    ids: tuple[str, ...]
    count: int
    taken: int

    def then(self, later: Refused) -> Refused:
        """Add what was told later."""
        ids = tuple(dict.fromkeys(self.ids + later.ids))[:IDS_MAX]
        return Refused(later.rule, later.reason, ids, self.count + later.count, later.taken)


class RefusalBox:
    """What waits to be told to one client: bounded, whether it listens or not.

    Attributes:
        taken: New entries of its that were taken.
    """

    def __init__(self) -> None:
        self.taken = 0
        self._waiting: dict[str, Refused] = {}
        self._told: OrderedDict[bytes, None] = OrderedDict()
        self._more = trio.Event()

    def add(self, key: bytes, verdict: Verdict) -> None:
        """Take the outcome for an entry that the client brought."""
        if verdict.accepted:
            self.taken += verdict.is_new
        elif verdict.rule is not None and verdict.rule not in _UNTOLD and key not in self._told:
            self._told[key] = None
            if len(self._told) > _TOLD_MAX:
                self._told.popitem(last=False)
            reason = (verdict.reason or "")[:_TEXT_CHARS_MAX].encode("utf-8", "replace").decode()
            refused = Refused(verdict.rule, reason, (encode_id(key),), 1, self.taken)
            before = self._waiting.get(refused.rule)
            if before is not None or len(self._waiting) < _RULES_MAX:
                self._waiting[refused.rule] = refused if before is None else before.then(refused)
                self._more.set()

    async def take(self) -> Refused:
        """Wait until there is something to tell, and take it."""
        while not self._waiting:
            self._more = trio.Event()
            await self._more.wait()
        return self._waiting.pop(next(iter(self._waiting)))


async def write_refusals(stream: Stream, box: RefusalBox) -> None:
    """Tell a client what is not taken, for as long as the stream lasts."""
    while True:
        refused = await box.take()
        told = {"rule": refused.rule, "reason": refused.reason, "ids": refused.ids, "count": refused.count, "taken": refused.taken}
        try:
            await stream.send_all(encode_frame(json.dumps(told).encode()))
        except (StreamReset, ClosedError):
            return


async def hear_refusals(connection: Connection, topic: str, on_refused: Callable[[Refused], None]) -> None:
    """Hear what a hub does not take, if it is one that says so, until it says no more."""
    with suppress(GossipLogError):
        stream = await connection.open_stream([refusals_protocol(topic)])
        try:
            await read_refusals(stream, on_refused)
        except DecodeError as error:
            note("malformed refusals", level=logging.WARNING, peer=connection.peer, reason=str(error))


async def read_refusals(stream: Stream, on_refused: Callable[[Refused], None]) -> None:
    """Hear what a hub does not take, until the stream ends.

    Raises:
        DecodeError: It says what it cannot mean.
    """
    frames = FrameDecoder(_FRAME_BYTES_MAX)
    try:
        while data := await stream.receive_some():
            for frame in frames.take(data):
                on_refused(_decode(frame))
    except (StreamReset, ClosedError):
        return
    except GossipLogError:
        stream.reset()
        raise


def _decode(frame: bytes) -> Refused:
    match plain_json.decode(frame):
        case {"rule": str() as rule, "reason": str() as reason, "ids": list() as ids, "count": int() as count, "taken": int() as taken}:
            is_whole = all(type(number) is int and 0 <= number < _COUNT_MAX for number in (count, taken))
            if is_whole and len(ids) <= IDS_MAX and all(isinstance(id, str) and is_id(id) for id in ids):
                return Refused(_shown(rule), _shown(reason), tuple(ids), count, taken)
        case _:
            pass
    raise DecodeError("a refusal of another form")


def _shown(text: str) -> str:
    """What a terminal may show of it."""
    return "".join(character if character.isprintable() else "?" for character in text[:_TEXT_CHARS_MAX])
