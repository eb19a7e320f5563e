"""Ed25519 as the reference verifies it: `@noble/curves` 1.9 with its defaults, neither RFC 8032 nor ZIP 215.

libsodium accepts a strict subset of the signatures that this rule accepts, so only its acceptance is final. The full rule runs for
signatures that libsodium refuses: points of small order, torsion, y at or above p. It costs about ten fast verifications, which a peer can
make us pay with bad signatures; budget it per peer.

Source: docs/spec/entries.md, "One verification rule, or replicas split"; tests/vectors/ed25519.json.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha512
from typing import TypeAlias

from nacl import bindings as sodium
from nacl.exceptions import BadSignatureError

PUBLIC_KEY_BYTES = 32
SIGNATURE_BYTES = 64
SEED_BYTES = 32

_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493
"""The order of the base point."""
_D = -121665 * pow(121666, -1, _P) % _P
_SQRT_MINUS_1 = pow(2, (_P - 1) // 4, _P)
_IDENTITY = b"\x01" + bytes(31)
_Point: TypeAlias = tuple[int, int]


def key_pair(seed: bytes) -> tuple[bytes, bytes]:
    """Return the public key (32 bytes) and the signing key (64 bytes) of a seed of 32 bytes."""
    public_key, signing_key = sodium.crypto_sign_seed_keypair(seed)
    return public_key, signing_key


def is_sound_key(public_key: bytes) -> bool:
    """Say whether a public key is a canonically encoded point of the base point's group: neither of small order nor with torsion."""
    return len(public_key) == PUBLIC_KEY_BYTES and bool(sodium.crypto_core_ed25519_is_valid_point(public_key))


def sign(signing_key: bytes, message: bytes) -> bytes:
    """Return the signature, 64 bytes. Releases the interpreter's lock."""
    signed: bytes = sodium.crypto_sign(message, signing_key)
    return signed[:SIGNATURE_BYTES]


def verify_signed(public_key: bytes, signed: bytes) -> bool:
    """Say whether `signed` is a valid signature, 64 bytes, with its message after it. A key of the wrong length makes it invalid.

    Releases the interpreter's lock.
    """
    if len(public_key) != PUBLIC_KEY_BYTES or len(signed) < SIGNATURE_BYTES:
        return False
    try:
        sodium.crypto_sign_open(signed, public_key)
    except BadSignatureError:
        return verify_fully(public_key, signed[:SIGNATURE_BYTES], signed[SIGNATURE_BYTES:])
    return True


def verify_strictly(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Say whether a signature is valid by libsodium's rule, which refuses keys of small order. Use it for signatures that grant a right."""
    if len(public_key) != PUBLIC_KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        sodium.crypto_sign_open(signature + message, public_key)
    except BadSignatureError:
        return False
    return True


def verify_fully(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Apply the whole rule to a key of 32 and a signature of 64 bytes, without libsodium's shortcut.

    1. S < L.
    2. A and R decompress, with y taken modulo p.
    3. k = SHA-512(R' ‖ A' ‖ message) mod L, with R' and A' re-encoded.
    4. [8]([S]B − [k]A − R) is the identity.

    libsodium refuses to multiply points with torsion. [8]A and [8]R have none, whatever A and R are, so the equation is checked as
    [8S]B − [k]([8]A) = [8]R.
    """
    s = int.from_bytes(signature[32:], "little")
    point_a = _key_points(public_key)
    point_r = _decompress(signature[:32])
    if s >= _L or point_a is None or point_r is None:
        return False
    encoded_a, a8 = point_a
    k = int.from_bytes(sha512(_compress(point_r) + encoded_a + message).digest(), "little") % _L
    left = sodium.crypto_core_ed25519_sub(_multiply_base(8 * s % _L), _multiply(k, a8))
    return bool(left == _compress(_times_8(point_r)))


@lru_cache(maxsize=4096)
def _key_points(public_key: bytes) -> tuple[bytes, bytes] | None:
    """Return A re-encoded and [8]A; None if it is no point. Cached, because bad signatures come in series."""
    point = _decompress(public_key)
    return None if point is None else (_compress(point), _compress(_times_8(point)))


def _multiply(scalar: int, point: bytes) -> bytes:
    # libsodium reports a result that is the identity as a failure.
    if scalar == 0 or point == _IDENTITY:
        return _IDENTITY
    product: bytes = sodium.crypto_scalarmult_ed25519_noclamp(scalar.to_bytes(32, "little"), point)
    return product


def _multiply_base(scalar: int) -> bytes:
    if scalar == 0:
        return _IDENTITY
    product: bytes = sodium.crypto_scalarmult_ed25519_base_noclamp(scalar.to_bytes(32, "little"))
    return product


def _decompress(encoded: bytes) -> _Point | None:
    """Recover x from y modulo p; the sign bit of a zero x is ignored. None if there is no such point."""
    number = int.from_bytes(encoded, "little")
    y = number % (1 << 255) % _P
    u = (y * y - 1) % _P
    v = (_D * y * y + 1) % _P
    # x = u v^3 (u v^7)^((p − 5) / 8) is a root of u / v, or of −u / v; RFC 8032 §5.1.3.
    x = u * pow(v, 3, _P) * pow(u * pow(v, 7, _P), (_P - 5) // 8, _P) % _P
    if (v * x * x - u) % _P:
        x = x * _SQRT_MINUS_1 % _P
        if (v * x * x - u) % _P:
            return None
    if x & 1 != number >> 255:
        x = -x % _P
    return x, y


def _compress(point: _Point) -> bytes:
    x, y = point
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _times_8(point: _Point) -> _Point:
    """Double three times, in extended coordinates without T, which doubling does not need. RFC 8032 §5.1.4."""
    x, y, z = point[0], point[1], 1
    for _ in range(3):
        a, b = x * x % _P, y * y % _P
        h = a + b
        e = h - (x + y) * (x + y)
        g = a - b
        f = 2 * z * z + g
        x, y, z = e * f % _P, g * h % _P, f * g % _P
    inverse = pow(z, -1, _P)
    return x * inverse % _P, y * inverse % _P
