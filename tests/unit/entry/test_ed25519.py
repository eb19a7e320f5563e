import json
import random
from hashlib import sha512
from pathlib import Path

from gossiplog.entry import ed25519

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "ed25519.json").read_text())["cases"]

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P


def add(a, b):
    """The affine addition law: slow, complete, and obvious."""
    (x1, y1), (x2, y2) = a, b
    k = D * x1 * x2 * y1 * y2 % P
    return (x1 * y2 + x2 * y1) * pow(1 + k, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - k, -1, P) % P


def multiply(n, point):
    total = (0, 1)
    while n:
        if n & 1:
            total = add(total, point)
        point = add(point, point)
        n >>= 1
    return total


def decompress(data):
    y = int.from_bytes(data, "little") % 2**255 % P
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    if x * x % P != square:
        return None
    return (-x % P if x & 1 != data[31] >> 7 else x), y


def compress(point):
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


BASE = decompress((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
TORSION = decompress(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"))


def naive_verify(public_key, signature, message):
    """The rule, word for word."""
    s = int.from_bytes(signature[32:], "little")
    a, r = decompress(public_key), decompress(signature[:32])
    if s >= L or a is None or r is None:
        return False
    k = int.from_bytes(sha512(compress(r) + compress(a) + message).digest(), "little") % L
    return multiply(8, multiply(s, BASE)) == multiply(8, add(r, multiply(k, a)))


def test_every_vector_gets_its_verdict():
    for case in VECTORS:
        public_key, signature, message = (bytes.fromhex(case[name]) for name in ("pk", "sig", "msg"))
        assert ed25519.verify_signed(public_key, signature + message) == case["valid"], case["name"]
        if len(public_key) == 32 and len(signature) == 64:
            assert ed25519.verify_fully(public_key, signature, message) == case["valid"], case["name"]


def test_libsodium_accepts_nothing_that_the_rule_refuses():
    assert not [case["name"] for case in VECTORS if case["libsodium"] and not case["valid"]]


def test_keys_and_signatures_with_torsion_agree_with_the_rule_word_for_word():
    rng = random.Random(1)
    verdicts = []
    for _ in range(12):
        secret, nonce = rng.randrange(L), rng.randrange(L)
        a = add(multiply(secret, BASE), multiply(rng.randrange(8), TORSION))
        r = add(multiply(nonce, BASE), multiply(rng.randrange(8), TORSION))
        message = rng.randbytes(20)
        k = int.from_bytes(sha512(compress(r) + compress(a) + message).digest(), "little") % L
        s = (nonce + k * secret + rng.choice([0, 0, 0, 1])) % L
        signature = compress(r) + s.to_bytes(32, "little")
        verdict = naive_verify(compress(a), signature, message)
        assert ed25519.verify_fully(compress(a), signature, message) == verdict
        assert ed25519.verify_signed(compress(a), signature + message) == verdict
        verdicts.append(verdict)
    assert True in verdicts
    assert False in verdicts


def test_small_orders_in_every_place_agree_with_the_rule_word_for_word():
    small = [compress(multiply(n, TORSION)) for n in range(8)]
    # The same points with y + p, or with the sign of a zero x, where such encodings exist.
    small += [bytes.fromhex("ee" + "ff" * 30 + "7f"), bytes.fromhex("ed" + "ff" * 30 + "7f"), bytes.fromhex("01" + "00" * 30 + "80")]
    for public_key in small:
        for r in (small[0], small[3], small[8], small[10]):
            for s in (0, 1):
                signature = r + s.to_bytes(32, "little")
                assert ed25519.verify_fully(public_key, signature, b"any") == naive_verify(public_key, signature, b"any")


def test_wrong_lengths_are_invalid():
    public_key, signing_key = ed25519.key_pair(bytes(32))
    signature = ed25519.sign(signing_key, b"message")
    assert ed25519.verify_signed(public_key, signature + b"message")
    for key, sig in (
        (public_key[:-1], signature),
        (public_key + b"\0", signature),
        (public_key, signature[:-1]),
        (public_key, signature + b"\0"),
        (b"", b""),
    ):
        assert not ed25519.verify_signed(key, sig + b"message")
        assert not ed25519.verify_signed(b"", sig)


def test_random_bytes_are_invalid_and_raise_nothing():
    rng = random.Random(2)
    for _ in range(200):
        assert not ed25519.verify_signed(rng.randbytes(32), rng.randbytes(63) + b"\x00" + rng.randbytes(9))
