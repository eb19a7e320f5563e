"""What a hub tells a client of entries that it does not take, as frames: which, why, and how many it has taken.

Source: docs/spec/sync.md, "Refusals".
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from ..codec import plain_json
from ..codec.framing import encode_frame
from ..entry.message_id import is_id
from ..errors import DecodeError

IDS_MAX = 64
REFUSAL_BYTES_MAX = 16 * 1024
TEXT_CHARS_MAX = 512
_COUNT_MAX = 2**53


@dataclass(frozen=True, slots=True)
class Refused:
    """Entries that a hub did not take, for one reason.

    Attributes:
        rule: Which rule of the hub's they break: `unwelcome`, `quota`, `access`, or one of validation's.
        reason: In words, of the latest of them.
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


def encode_refusal(refused: Refused) -> bytes:
    """Encode a frame, prefix included."""
    return encode_frame(json.dumps(asdict(refused)).encode())


def decode_refusal(frame: bytes) -> Refused:
    """Decode a frame without its prefix. What a terminal may not show of its text is left out.

    Raises:
        DecodeError: A field has an impossible value.
    """
    match plain_json.decode(frame):
        case {"rule": str() as rule, "reason": str() as reason, "ids": list() as ids, "count": int() as count, "taken": int() as taken}:
            is_whole = all(type(number) is int and 0 <= number < _COUNT_MAX for number in (count, taken))
            if is_whole and len(ids) <= IDS_MAX and all(isinstance(id, str) and is_id(id) for id in ids):
                return Refused(_shown(rule), _shown(reason), tuple(ids), count, taken)
        case _:
            pass
    raise DecodeError("a refusal of another form")


def _shown(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text[:TEXT_CHARS_MAX])
