"""The place up to which an outside follower has read a log, in a form that it can store and that reveals a replaced log.

An insertion number alone is not enough. A file that was restored to an older state gives the same numbers to other entries, and a follower
that continues after its last number would silently miss these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..entry.message_id import decode_id, encode_id
from ..errors import DecodeError, LogReplaced
from ..plan import Plan, ask
from .requests import Place, ReadPlace


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A place in the order of insertion: everything up to and including `seq` has been read.

    Attributes:
        generation: The log's; None if it was not noted.
        key: The key of the entry at `seq`; None if there is no entry, or it was not noted.
    """

    seq: int
    generation: str | None = None
    key: bytes | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the place as JSON values."""
        return {"seq": self.seq, "generation": self.generation, "id": None if self.key is None else encode_id(self.key)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> LogPlace:
        """Read the result of `to_json`, or `{"seq": N}`, which was the form before there were generations.

        Raises:
            DecodeError: The record has neither form.
        """
        seq, generation, id = record.get("seq"), record.get("generation"), record.get("id")
        if type(seq) is not int or not isinstance(generation, str | None) or not isinstance(id, str | None):
            raise DecodeError(f"{dict(record)!r} is no place in a log")
        return cls(seq, generation, None if id is None else decode_id(id))


def find_place(seq: int) -> Plan[LogPlace]:
    """Return the place with this insertion number, or the last place of a log that is shorter."""
    found = yield from ask(ReadPlace(seq))
    if seq > found.last:
        found, seq = (yield from ask(ReadPlace(found.last))), found.last
    return LogPlace(seq, found.generation, found.key)


def check_place(place: LogPlace, location: str) -> Plan[Place]:
    """Check that a place is in this log, and return what is there now.

    If a repair has since removed the entry, the place is still good: its number is not used again.

    Raises:
        LogReplaced: This is another log, or it is shorter, or it has another entry there.
    """
    found = yield from ask(ReadPlace(place.seq))
    hint = "start from the beginning, or restore the log that was followed; entries keep their ids"
    if place.generation is not None and place.generation != found.generation:
        raise LogReplaced(f"{location} is not the log that was followed: generation {found.generation}, not {place.generation}", hint=hint)
    if place.seq > found.last:
        was_read = f"it was read up to insertion number {place.seq:,}, and ends at {found.last:,}"
        raise LogReplaced(f"{location} was put back to an older state: {was_read}", hint=hint)
    if place.key is not None and found.key is not None and found.key != place.key:
        other = f"entry {encode_id(found.key)} has insertion number {place.seq:,}, which {encode_id(place.key)} had"
        raise LogReplaced(f"{location} was put back to an older state: {other}", hint=hint)
    return found
