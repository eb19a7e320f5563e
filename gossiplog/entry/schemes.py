"""Signature schemes, found by the multicodec of a did:key and the codec of the signed bytes; Ed25519 is built in.

Registering a scheme enables this process to verify it. Each log decides which schemes it accepts; the default is Ed25519 alone, as in the
reference.

Source: docs/spec/entries.md, "Signature".
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ..codec import pcf
from ..codec.did import ED25519_CODE, decode_did
from ..errors import DecodeError, LocalProtocolError
from . import ed25519
from .rules import SNAPSHOT_CODEC

CODECS = frozenset({"dag-cbor", "dag-json"})
"""The encodings of the bytes under a signature, for schemes without one of their own."""


@dataclass(frozen=True, slots=True)
class SignatureScheme:
    """The verifying half of a signature scheme.

    Attributes:
        name: Such as `ed25519`. Schemes that a log accepts together share a name.
        code: The multicodec that the scheme's did:keys begin with.
        verify_signed: Takes a raw public key of any length, and a signature with the signed bytes right after it. Returns whether the
            signature is valid; None makes the entry unsupported rather than invalid. It raises nothing, keeps no state, and may run on
            any thread.
        signature_bytes: The length of a signature, and so the offset of the signed bytes.
        codecs: The codecs of the scheme's signatures. The signed bytes come in dag-json under `dag-json`, in dag-cbor under any other.
    """

    name: str
    code: int
    verify_signed: Callable[[bytes, bytes], bool | None]
    signature_bytes: int
    codecs: frozenset[str] = CODECS


_NO_KEY = -1
"""Stands for the multicodec of an empty did."""


def _is_snapshot(public_key: bytes, signed: bytes) -> bool:
    """Verify a message under `SNAPSHOT_CODEC`, without did and signature."""
    try:
        message = pcf.decode_shared(signed, depth_max=pcf.DEPTH_MAX + 1)
    except DecodeError:
        return False
    match message:
        case {"clock": 0, "topic": str(topic), "payload": {"type": "snapshot"}}:
            return ":" in topic
        case _:
            return False


SNAPSHOT = SignatureScheme("canvas-snapshot", _NO_KEY, _is_snapshot, 0, frozenset({SNAPSHOT_CODEC}))
"""Proves nothing: a snapshot is named by its hash in the topic, which a log cannot check."""
ED25519 = SignatureScheme("ed25519", ED25519_CODE, ed25519.verify_signed, ed25519.SIGNATURE_BYTES)
DEFAULT_SCHEMES: frozenset[str] = frozenset({ED25519.name})
"""The schemes that a log accepts by default; see `accept_schemes`."""

_accepted = DEFAULT_SCHEMES

_SCHEMES: dict[tuple[int, str], SignatureScheme] = {
    **{(ED25519.code, codec): ED25519 for codec in CODECS},
    (SNAPSHOT.code, SNAPSHOT_CODEC): SNAPSHOT,
}
_EXTRAS = {"canvas-action-eip712": ("eip712", "ethereum"), "canvas-session-eip712": ("eip712", "ethereum")}


def register_scheme(scheme: SignatureScheme) -> None:
    """Register a scheme in this process; registering the same one again does nothing.

    Raises:
        LocalProtocolError: Another scheme shares one of its codecs and also its multicodec or its name.
    """
    for known in _SCHEMES.values():
        if known != scheme and known.codecs & scheme.codecs and (known.code == scheme.code or known.name == scheme.name):
            raise LocalProtocolError(f"signature scheme {known.name} ({known.code:#x}) is registered already")
    for codec in scheme.codecs:
        _SCHEMES[scheme.code, codec] = scheme


def scheme_of(did: str, codec: str = "dag-cbor") -> tuple[SignatureScheme, bytes]:
    """Return the scheme of a did:key under a codec, and the raw public key; a snapshot has neither did nor key.

    Raises:
        DecodeError: The did is malformed, or no scheme is registered for its multicodec and this codec.
    """
    code, public_key = (_NO_KEY, b"") if codec == SNAPSHOT_CODEC and not did else decode_did(did)
    scheme = _SCHEMES.get((code, codec))
    if scheme is None:
        raise DecodeError(f"no signature scheme is registered for multicodec {code:#x} and codec {codec[:32]}")
    return scheme, public_key


def check_schemes(names: Collection[str]) -> None:
    """Refuse names of schemes that are neither registered nor of an extra of this package.

    Raises:
        LocalProtocolError: There is such a name.
    """
    known = {scheme.name for scheme in _SCHEMES.values()} | {name for name, _ in _EXTRAS.values()}
    if unknown := set(names) - known:
        hint = f"there are {', '.join(sorted(known))}, and those that `register_scheme` adds"
        raise LocalProtocolError(f"no signature scheme is named {min(unknown)!r}", hint=hint)


def accept_schemes(names: Collection[str]) -> None:
    """Set the schemes that this process accepts by default; initially `DEFAULT_SCHEMES`. Raises as `check_schemes`."""
    global _accepted  # noqa: PLW0603
    check_schemes(names)
    _accepted = frozenset(names)


def accepted_schemes() -> frozenset[str]:
    """Return the schemes that this process accepts by default."""
    return _accepted


def usable_schemes(names: Collection[str]) -> frozenset[str]:
    """Return those of these schemes that are registered, whose signatures can be verified."""
    return frozenset(scheme.name for scheme in _SCHEMES.values() if scheme.name in names)


def is_codec(codec: str) -> bool:
    """Say whether a registered scheme has a codec."""
    return codec in CODECS or any(codec == known for _, known in _SCHEMES)


def extra_of(codec: str) -> tuple[str, str] | None:
    """Return the scheme of a codec and the extra of this package that provides it; None if none does."""
    return _EXTRAS.get(codec)


def is_ours(scheme: str) -> bool:
    """Say whether this package, or an extra of it, provides a scheme."""
    return scheme == SNAPSHOT.name or any(scheme == name for name, _ in _EXTRAS.values())


def verify_signature(did: str, signature: bytes, signed_bytes: bytes) -> bool:
    """Say whether `signature` over `signed_bytes` is valid under the key that a did:key names.

    Returns False for a malformed did, an unknown scheme, or a signature of the wrong length. About 50 µs for Ed25519, and 300 µs where
    libsodium refuses and the whole rule decides. Releases the interpreter's lock.

    A key of small order has signatures that are valid for any message: never grant rights to one.
    """
    try:
        scheme, public_key = scheme_of(did)
    except DecodeError:
        return False
    return len(signature) == scheme.signature_bytes and scheme.verify_signed(public_key, signature + signed_bytes) is True
