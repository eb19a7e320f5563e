"""Invitations: codes for people to read out and type, and the keys derived from them. An invitation is a grant to such a key.

Anyone with the code can sign with the key until the grant is revoked. The key's did is in the log, so guesses can be tested offline; the
code's 80 bits are too many to try.

Source: docs/spec/access.md, "Invitations".
"""

from __future__ import annotations

from hashlib import sha256

from ..entry.signing import Ed25519Signer
from ..errors import LocalProtocolError

CODE_BYTES = 10
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base32, in which characters that look alike mean the same."""
_READ = str.maketrans("OIL", "011", " -")
_DOMAIN = "gossiplog-invitation/1\n"


def encode_code(random: bytes) -> str:
    """Write 10 random bytes as a code of four groups of four characters."""
    number = int.from_bytes(random)
    digits = "".join(_ALPHABET[number >> shift & 31] for shift in range(75, -1, -5))
    return "-".join(digits[at : at + 4] for at in range(0, 16, 4))


def invitation_signer(code: str, topic: str) -> Ed25519Signer:
    """Make the key of a code for one log. In the code, case, spaces and hyphens do not matter, O is 0, and I and L are 1.

    Raises:
        LocalProtocolError: The text is no code.
    """
    digits = code.upper().translate(_READ)
    if len(digits) != 16 or not set(digits) <= set(_ALPHABET):
        raise LocalProtocolError(f"{code[:40]!r} is no code: 16 letters and digits, such as {encode_code(bytes(CODE_BYTES))}")
    return Ed25519Signer.from_seed(sha256(f"{_DOMAIN}{topic}\n{digits}".encode()).digest())
