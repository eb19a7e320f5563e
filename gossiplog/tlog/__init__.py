"""Transparency logs as others read them: RFC 6962 trees in tiles, signed notes, checkpoints, proofs, and segments of VALUEs.

Source: docs/spec/bucket.md; C2SP signed-note, tlog-checkpoint, tlog-tiles, tlog-cosignature, tlog-proof, tlog-policy; RFC 6962 and 9162.
"""

from .growth import Growth
from .note import Checkpoint, Note, Origin, VerifierKey, parse_checkpoint, publisher_of, signed_checkpoint
from .proof import Evidence, Proof, check_proof
from .tiles import Tile, Tiles, edge_tiles

__all__ = [
    "Checkpoint",
    "Evidence",
    "Growth",
    "Note",
    "Origin",
    "Proof",
    "Tile",
    "Tiles",
    "VerifierKey",
    "check_proof",
    "edge_tiles",
    "parse_checkpoint",
    "publisher_of",
    "signed_checkpoint",
]
