"""The frames by which a hub tells a client which of its entries it refuses and why, and how many it has stored.

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
    """Entries that a hub refused under one rule.

    Attributes:
        rule: The rule that they break: `unwelcome`, `quota`, `access`, or one of validation.
        reason: The reason for the latest of them, in words.
        taken: New entries that the hub has stored from this connection so far.
    """

    rule: str
    reason: str
    ids: tuple[str, ...]
    count: int
    taken: int

    def then(self, later: Refused) -> Refused:
        """Combine with a later refusal."""
        ids = tuple(dict.fromkeys(self.ids + later.ids))[:IDS_MAX]
        return Refused(later.rule, later.reason, ids, self.count + later.count, later.taken)


def encode_refusal(refused: Refused) -> bytes:
    """Encode a frame, length prefix included."""
    return encode_frame(json.dumps(asdict(refused)).encode())


def decode_refusal(frame: bytes) -> Refused:
    """Decode a frame without its length prefix. Unprintable characters of its texts become `?`.

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
