"""Signature schemes, found by the multicodec of a did:key; Ed25519 is built in.

Registering a scheme makes this process able to verify it. Which schemes a log accepts is the log's own decision, and the default is
Ed25519 alone, as in the reference.

Source: spec/entries.md, "Signature".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..codec.did import ED25519_CODE, decode_did
from ..errors import DecodeError, LocalProtocolError
from . import ed25519

__all__ = ["DEFAULT_SCHEMES", "ED25519", "SignatureScheme", "register_scheme", "scheme_of", "verify_signature"]


@dataclass(frozen=True, slots=True)
class SignatureScheme:
    """A way to sign, as far as verifying goes.

    Attributes:
        name: Unique, like `ed25519`.
        code: The multicodec that its did:key begins with.
        verify_signed: Takes a raw public key, and a signature with the signed bytes right behind it, both of any length; says whether
            the signature is valid. Raises nothing, keeps no state, and may run on any thread.
        signature_bytes: The length of a signature, which is where the signed bytes begin.
    """

    name: str
    code: int
    verify_signed: Callable[[bytes, bytes], bool]
    signature_bytes: int


ED25519 = SignatureScheme("ed25519", ED25519_CODE, ed25519.verify_signed, ed25519.SIGNATURE_BYTES)
DEFAULT_SCHEMES: frozenset[str] = frozenset({ED25519.name})
"""What a log accepts unless it says otherwise."""

_SCHEMES: dict[int, SignatureScheme] = {ED25519.code: ED25519}


def register_scheme(scheme: SignatureScheme) -> None:
    """Make a scheme known to this process; registering the same one again does nothing.

    Raises:
        LocalProtocolError: Another scheme has its multicodec or its name.
    """
    for known in _SCHEMES.values():
        if known != scheme and (known.code == scheme.code or known.name == scheme.name):
            raise LocalProtocolError(f"signature scheme {known.name} ({known.code:#x}) is registered already")
    _SCHEMES[scheme.code] = scheme


def scheme_of(did: str) -> tuple[SignatureScheme, bytes]:
    """Return the scheme of a did:key, and the raw public key.

    Raises:
        DecodeError: The did is malformed, or its multicodec is no registered scheme's.
    """
    code, public_key = decode_did(did)
    scheme = _SCHEMES.get(code)
    if scheme is None:
        raise DecodeError(f"no signature scheme is registered for multicodec {code:#x}")
    return scheme, public_key


def verify_signature(did: str, signature: bytes, signed_bytes: bytes) -> bool:
    """Say whether `signature` over `signed_bytes` is valid under the key that a did:key names.

    A did that is malformed or of an unknown scheme, and a signature of the wrong length, make it False. About 50 µs for Ed25519, and
    300 µs where libsodium refuses and the whole rule decides. Releases the interpreter's lock.

    A key of small order has signatures that are valid for any message: never grant rights to one.
    """
    try:
        scheme, public_key = scheme_of(did)
    except DecodeError:
        return False
    return len(signature) == scheme.signature_bytes and scheme.verify_signed(public_key, signature + signed_bytes)
