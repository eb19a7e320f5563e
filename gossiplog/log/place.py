"""Where a follower from outside has got to in a log, in a form that it can keep, and that shows when the log has been replaced.

An insertion number alone does not: a file that was put back to an older state gives the same numbers to other entries, and a follower
that asks for what comes after the last one it saw would miss them without a word.
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
        generation: Of the log; None where it was not noted.
        key: Of the entry at `seq`; None where there is none, or it was not noted.
    """

    seq: int
    generation: str | None = None
    key: bytes | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {"seq": self.seq, "generation": self.generation, "id": None if self.key is None else encode_id(self.key)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> LogPlace:
        """Read what `to_json` returned, or `{"seq": N}`, which is what was noted before there were generations.

        Raises:
            DecodeError: It is neither.
        """
        seq, generation, id = record.get("seq"), record.get("generation"), record.get("id")
        if type(seq) is not int or not isinstance(generation, str | None) or not isinstance(id, str | None):
            raise DecodeError(f"{dict(record)!r} is no place in a log")
        return cls(seq, generation, None if id is None else decode_id(id))


def find_place(seq: int) -> Plan[LogPlace]:
    """Return the place with this insertion number, or the log's last one if it has not got so far."""
    found = yield from ask(ReadPlace(seq))
    if seq > found.last:
        found, seq = (yield from ask(ReadPlace(found.last))), found.last
    return LogPlace(seq, found.generation, found.key)


def check_place(place: LogPlace, location: str) -> Plan[Place]:
    """Check that a place is in this log, and return what stands there.

    An entry that a repair has taken away since is no reason to doubt: its number is not used again.

    Raises:
        LogReplaced: The log is another one, has not got so far, or has another entry there.
    """
    found = yield from ask(ReadPlace(place.seq))
    hint = "begin anew, or put the log back to what was followed; entries that were read are known by their ids"
    if place.generation is not None and place.generation != found.generation:
        raise LogReplaced(f"{location} is not the log that was followed: generation {found.generation}, not {place.generation}", hint=hint)
    if place.seq > found.last:
        was_read = f"it was read up to insertion number {place.seq:,}, and ends at {found.last:,}"
        raise LogReplaced(f"{location} was put back to an older state: {was_read}", hint=hint)
    if place.key is not None and found.key is not None and found.key != place.key:
        other = f"entry {encode_id(found.key)} has insertion number {place.seq:,}, which {encode_id(place.key)} had"
        raise LogReplaced(f"{location} was put back to an older state: {other}", hint=hint)
    return found
