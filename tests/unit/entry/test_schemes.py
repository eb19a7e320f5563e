import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gossiplog.codec import pcf
from gossiplog.codec.did import encode_did
from gossiplog.entry import DEFAULT_SCHEMES, Ed25519Signer, SignatureScheme, register_scheme, sign_entry, validate, verify_signature
from gossiplog.errors import LocalProtocolError

SECP256K1_CODE = 0xE7


def verify_secp256k1(public_key: bytes, signed: bytes) -> bool:
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), public_key)
        signature = encode_dss_signature(int.from_bytes(signed[:32], "big"), int.from_bytes(signed[32:64], "big"))
        key.verify(signature, signed[64:], ec.ECDSA(SHA256()))
    except (ValueError, InvalidSignature):
        return False
    return True


SECP256K1 = SignatureScheme("secp256k1", SECP256K1_CODE, verify_secp256k1, 64)


class Secp256k1Signer:
    codec = "dag-cbor"

    def __init__(self) -> None:
        self._key = ec.derive_private_key(7, ec.SECP256K1())
        self.did = encode_did(SECP256K1_CODE, self._key.public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint))

    def sign(self, data: bytes) -> bytes:
        r, s = decode_dss_signature(self._key.sign(data, ec.ECDSA(SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def test_a_signature_verifies_under_its_did_alone():
    signer = Ed25519Signer.from_seed(bytes(32))
    signature = signer.sign(b"data")
    assert verify_signature(signer.did, signature, b"data")
    assert not verify_signature(signer.did, signature, b"other")
    assert not verify_signature(Ed25519Signer.from_seed(b"\1" * 32).did, signature, b"data")


@pytest.mark.parametrize(
    "did", ["", "did:key:z", "did:web:x", encode_did(0x1200, bytes(33)), encode_did(0xED, bytes(31)), encode_did(0xED, b"")]
)
def test_an_unknown_or_malformed_did_verifies_nothing(did):
    assert verify_signature(did, bytes(64), b"data") is False


@pytest.mark.parametrize("size", [0, 63, 65])
def test_a_signature_of_another_length_is_invalid(size):
    assert not verify_signature(Ed25519Signer.generate().did, bytes(size), b"data")


def test_a_registered_scheme_is_accepted_only_by_logs_that_say_so():
    register_scheme(SECP256K1)
    register_scheme(SECP256K1)
    entry = sign_entry(Secp256k1Signer(), "app.example.com", 1, [], pcf.encode({"a": 1}))
    refused = validate(entry.value)
    assert (refused.rule, refused.reason) == ("scheme", "signature scheme secp256k1 is not accepted here")
    assert validate(entry.value, schemes=DEFAULT_SCHEMES | {"secp256k1"}).accepted
    broken = entry.value.replace(pcf.encode({"a": 1}), pcf.encode({"a": 2}))
    assert validate(broken, schemes={"secp256k1"}).rule == "signature"
    assert validate(sign_entry(Ed25519Signer.generate(), "t", 1, [], b"\x01").value, schemes={"secp256k1"}).rule == "scheme"


@pytest.mark.parametrize(
    "scheme", [SignatureScheme("mine", 0xED, verify_secp256k1, 64), SignatureScheme("ed25519", 0x1, verify_secp256k1, 64)]
)
def test_a_scheme_is_never_replaced(scheme):
    with pytest.raises(LocalProtocolError, match="registered already"):
        register_scheme(scheme)
