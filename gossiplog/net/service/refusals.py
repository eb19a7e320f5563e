"""The stream on which a hub tells a client which of its entries were refused. Only peers of this project speak it.

The client opens the stream; the hub writes frames on it and reads nothing. Each entry is named once.

Source: docs/spec/sync.md, "Refusals".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

import trio

from ...codec.framing import FrameDecoder
from ...entry.message_id import encode_id
from ...entry.validation import Rule, Verdict
from ...errors import ClosedError, StreamReset
from ...limits import keep_newest
from ...sync.refusals import REFUSAL_BYTES_MAX, TEXT_CHARS_MAX, Refused, decode_refusal, encode_refusal
from ...tasks.nursery import open_service_nursery
from ..transport.muxed import Stream

STREAMS_A_LOG = 4
"""Streams that either side may open for each log beyond the connection's first: refusals, push, presence and a sync."""
_RULES_MAX = 16
_TOLD_MAX = 4_096
_UNTOLD = frozenset({Rule.PARENTS, Rule.STORAGE})
"""Entries refused by these rules come in later without the client: an orphan by a sync, the rest when our fault is fixed."""


class RefusalBox:
    """The refusals that one client has yet to be told. Bounded, even if the client never listens.

    Attributes:
        taken: How many new entries of the client were accepted.
    """

    def __init__(self) -> None:
        self.taken = 0
        self._waiting: dict[str, Refused] = {}
        self._told: OrderedDict[bytes, None] = OrderedDict()
        self._more = trio.lowlevel.ParkingLot()

    def add(self, key: bytes, verdict: Verdict) -> None:
        """Note the verdict on an entry from the client."""
        if verdict.accepted:
            self.taken += verdict.is_new
        elif verdict.rule is not None and verdict.rule not in _UNTOLD and key not in self._told:
            keep_newest(self._told, key, None, _TOLD_MAX)
            reason = (verdict.reason or "")[:TEXT_CHARS_MAX].encode("utf-8", "replace").decode()
            refused = Refused(verdict.rule, reason, (encode_id(key),), 1, self.taken)
            before = self._waiting.get(refused.rule)
            if before is not None or len(self._waiting) < _RULES_MAX:
                self._waiting[refused.rule] = refused if before is None else before.then(refused)
                self._more.unpark_all()

    async def take(self) -> Refused:
        """Wait for a refusal and take it out."""
        while not self._waiting:
            await self._more.park()
        return self._waiting.pop(next(iter(self._waiting)))


async def write_refusals(stream: Stream, box: RefusalBox) -> None:
    """Accept the stream, and tell a client its refusals until the client ends the stream."""
    async with open_service_nursery() as nursery:
        nursery.start_soon(_write, stream, box)
        with suppress(StreamReset):
            while await stream.receive_some():
                pass


async def _write(stream: Stream, box: RefusalBox) -> None:
    with suppress(StreamReset, ClosedError):
        await stream.send_all(b"")
        while True:
            await stream.send_all(encode_refusal(await box.take()))


async def read_refusals(stream: Stream, on_refused: Callable[[Refused], None]) -> None:
    """Read a hub's refusals until the stream ends.

    Raises:
        DecodeError: A field has an impossible value.
    """
    frames = FrameDecoder(REFUSAL_BYTES_MAX)
    with suppress(StreamReset, ClosedError):
        while data := await stream.receive_some():
            for frame in frames.take(data):
                on_refused(decode_refusal(frame))
