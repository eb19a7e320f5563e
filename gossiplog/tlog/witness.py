"""Requests to a witness, and its judgement: it signs only a checkpoint that extends the last one of the same log that it signed.

Source: C2SP tlog-witness and tlog-cosignature; docs/spec/bucket.md, "Witnesses".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import DecodeError
from .merkle import EMPTY_ROOT, is_consistent
from .note import CHECKPOINT_BYTES_MAX, Note, VerifierKey, encode_base64, parse_hashes, parse_number, tree_head

SIZE_TYPE = "text/x.tlog.size"
"""The media type of an answer with the size that the witness signed last."""
WITNESS_REQUEST_BYTES_MAX = CHECKPOINT_BYTES_MAX + 64 * 64


class WitnessRefusal(Exception):
    """Why a witness does not sign.

    Attributes:
        status: The HTTP status: 400, 403, 404, 409 or 422.
        size: The size of the tree that it signed last, if the request named another; else None.
    """

    def __init__(self, status: int, reason: str, size: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.size = size


@dataclass(frozen=True, slots=True)
class AddCheckpoint:
    """A request to sign.

    Attributes:
        old: The size that the witness signed last, as the sender believes; 0 for none.
        proof: Hashes that prove that the tree of this size is the beginning of the checkpoint's tree.
        checkpoint: A signed note.
    """

    old: int
    proof: Sequence[bytes]
    checkpoint: bytes

    def to_bytes(self) -> bytes:
        """Return the request's body."""
        return "\n".join([f"old {self.old}", *map(encode_base64, self.proof), "", ""]).encode() + self.checkpoint

    @classmethod
    def parse(cls, data: bytes) -> AddCheckpoint:
        """Parse a request's body; raise DecodeError if it is malformed."""
        head, blank, checkpoint = data.partition(b"\n\n")
        first, *hashes = head.decode("ascii", "replace").split("\n")
        if not blank or not first.startswith("old "):
            raise DecodeError(f"{first[:80]!r} is no line with the old size")
        return cls(parse_number(first[4:]), parse_hashes(hashes), checkpoint)


def judge(request: AddCheckpoint, key_of: Callable[[str], VerifierKey | None], last_of: Callable[[str], Note | None]) -> Note:
    """Return the checkpoint that may be signed, with its log's signature and no other.

    The caller must keep the signed checkpoint durably before it answers, and judge no other request in between.

    Args:
        key_of: Returns the key of the log with an origin; None if the witness does not know the log.
        last_of: Returns the last checkpoint of it that was signed; None before the first.

    Raises:
        WitnessRefusal: The checkpoint may not be signed.
    """
    try:
        note = Note.parse(request.checkpoint)
        origin, size, root = tree_head(note.text)
    except DecodeError as error:
        raise WitnessRefusal(400, str(error)) from None
    if size == 0 and root != EMPTY_ROOT:
        raise WitnessRefusal(400, "no entries have another root")
    key = key_of(origin)
    if key is None:
        raise WitnessRefusal(404, "this witness does not know the log")
    if not note.is_signed(key):
        raise WitnessRefusal(403, "the log's key has not signed this")
    if request.old > size:
        raise WitnessRefusal(400, f"the old size {request.old} is beyond the checkpoint's, {size}")
    last = last_of(origin)
    _, last_size, last_root = tree_head(last.text) if last is not None else (origin, 0, b"")
    if request.old != last_size:
        raise WitnessRefusal(409, f"{last_size} entries were signed last", last_size)
    if last is not None and last_size == size and last_root != root:
        raise WitnessRefusal(409, f"another tree of {size} entries was signed before")
    if not (is_consistent(request.old, last_root, size, root, request.proof) if request.old else not request.proof):
        raise WitnessRefusal(422, "the proof does not show that the tree has only grown")
    own = [line for line in note.signatures if (line.name, line.key_id) == (key.name, key.key_id)]
    return Note(note.text, tuple(own[:1]))
