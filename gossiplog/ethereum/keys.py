"""Ethereum's Keccak, addresses, and recoverable signatures over secp256k1.

Source: the yellow paper, appendix F; EIP-55; ethers 6, `Signature.from` and `computeAddress`.
"""

from __future__ import annotations

import re

import coincurve
from Crypto.Hash import keccak as _keccak

SIGNATURE_BYTES = 65
"""r, s, v."""

ADDRESS = re.compile("0x[0-9a-fA-F]{40}")


def keccak(data: bytes) -> bytes:
    """Return Keccak-256, which is not SHA3-256."""
    return _keccak.new(digest_bits=256, data=data).digest()


def checksummed(raw: bytes) -> str:
    """Return the text of an address of 20 bytes, whose letters' case is the checksum."""
    text = raw.hex()
    digest = keccak(text.encode()).hex()
    return "0x" + "".join(char.upper() if int(nibble, 16) >= 8 else char for char, nibble in zip(text, digest, strict=False))


def is_address(text: str) -> bool:
    """Say whether a text is an address, with letters of one case or with a right checksum."""
    if ADDRESS.fullmatch(text) is None:
        return False
    digits = text[2:]
    return digits in (digits.lower(), digits.upper()) or checksummed(bytes.fromhex(digits)) == text


def uncompressed(public_key: bytes) -> bytes:
    """Return the 64 bytes of a public key, given in either form.

    Raises:
        ValueError: The bytes are not a public key.
    """
    return coincurve.PublicKey(public_key).format(compressed=False)[1:]


def address_of(public_key: bytes) -> bytes:
    """Return the 20 bytes of a public key's address. Raises as `uncompressed`."""
    return keccak(uncompressed(public_key))[12:]


def recover(digest: bytes, signature: bytes) -> bytes | None:
    """Return the address that signed a digest, 20 bytes; None if no key can have made the signature. About 60 µs.

    v may be 0, 1, 27, 28, or EIP-155's, where odd means 27.
    """
    v = signature[64]
    parity = v if v < 2 else v - 27 if v in (27, 28) else 1 - (v & 1)
    try:
        public_key = coincurve.PublicKey.from_signature_and_message(signature[:64] + bytes([parity]), digest, hasher=None)
    except Exception:  # the library raises various errors for numbers that are no signature
        return None
    return keccak(public_key.format(compressed=False)[1:])[12:]


def sign(private_key: bytes, digest: bytes) -> bytes:
    """Return the signature of a digest, 65 bytes, with a v of 27 or 28."""
    signature = coincurve.PrivateKey(private_key).sign_recoverable(digest, hasher=None)
    return signature[:64] + bytes([27 + signature[64]])
