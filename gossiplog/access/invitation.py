"""Codes that are read out or typed, and the keys that are made from them: an invitation is a grant to such a key.

Whoever has the code can sign with the key until the grant is revoked. The key's did is in the log, so the code is as long as it takes that
nobody finds it by trying: 80 bits.

Source: docs/spec/access.md, "Invitations".
"""

from __future__ import annotations

from hashlib import sha256

from ..entry.signing import Ed25519Signer
from ..errors import LocalProtocolError

CODE_BYTES = 10
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base32: what looks alike is read alike."""
_READ = str.maketrans("OIL", "011", " -")
_DOMAIN = "gossiplog-invitation/1\n"


def encode_code(random: bytes) -> str:
    """Write 10 random bytes as a code of four groups of four characters."""
    number = int.from_bytes(random)
    digits = "".join(_ALPHABET[number >> shift & 31] for shift in range(75, -1, -5))
    return "-".join(digits[at : at + 4] for at in range(0, 16, 4))


def invitation_signer(code: str, topic: str) -> Ed25519Signer:
    """Make the key of a code for one log, from what somebody typed: case, spaces and hyphens do not matter, O is 0, and I and L are 1.

    Raises:
        LocalProtocolError: It is no code.
    """
    digits = code.upper().translate(_READ)
    if len(digits) != 16 or not set(digits) <= set(_ALPHABET):
        raise LocalProtocolError(f"{code[:40]!r} is no code: 16 letters and digits, such as {encode_code(bytes(CODE_BYTES))}")
    return Ed25519Signer.from_seed(sha256(f"{_DOMAIN}{topic}\n{digits}".encode()).digest())
