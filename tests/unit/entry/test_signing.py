import os
import pickle
import stat
from base64 import b64encode

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from gossiplog.codec import pcf
from gossiplog.entry import Ed25519Signer, sign_entry, validate, verify_signature
from gossiplog.errors import EncodeError, KeyFileError, LocalProtocolError

SEED = bytes(range(32))


def test_a_generated_key_signs_and_verifies():
    one, other = Ed25519Signer.generate(), Ed25519Signer.generate()
    assert one.did != other.did
    assert verify_signature(one.did, one.sign(b"data"), b"data")


def test_a_saved_key_is_loaded_again(tmp_path):
    path = tmp_path / "me.pem"
    signer = Ed25519Signer.from_seed(SEED)
    signer.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["me.pem"]
    loaded = Ed25519Signer.load(str(path), codec="dag-json")
    assert (loaded.did, loaded.codec) == (signer.did, "dag-json")
    assert loaded.sign(b"data") == signer.sign(b"data")


def test_a_saved_key_is_what_openssl_writes(tmp_path):
    Ed25519Signer.from_seed(SEED).save(tmp_path / "key")
    key = load_pem_private_key((tmp_path / "key").read_bytes(), None)
    assert key.private_bytes_raw() == SEED


def test_a_file_is_not_overwritten_unless_told(tmp_path):
    path = tmp_path / "key"
    first = Ed25519Signer.generate()
    first.save(path)
    with pytest.raises(KeyFileError, match="exists"):
        Ed25519Signer.generate().save(path)
    assert Ed25519Signer.load(path).did == first.did
    second = Ed25519Signer.generate()
    second.save(path, overwrite=True)
    assert Ed25519Signer.load(path).did == second.did
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o601])
def test_a_file_that_others_may_use_is_refused(tmp_path, mode):
    path = tmp_path / "key"
    Ed25519Signer.generate().save(path)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=f"mode {mode:04o}") as caught:
        Ed25519Signer.load(path)
    assert caught.value.hint == f"chmod 600 {path}"


def pem(key, encryption=None):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())


def test_other_files_are_refused_without_quoting_them(tmp_path):
    signer = Ed25519Signer.from_seed(SEED)
    ed25519_key = load_pem_private_key(signer.to_pem(), None)
    files = {
        "no private key": b"secret words",
        "empty": b"",
        "binary": bytes(range(256)),
        "too large": b"x" * 70_000,
        "truncated": signer.to_pem()[:80],
        "a short key": b"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAAAAAAAAAAA\n-----END PRIVATE KEY-----\n",
        "a seed of 30 bytes": b"-----BEGIN PRIVATE KEY-----\n"
        + b64encode(bytes.fromhex("302c020100300506032b65700420041e") + bytes(30))
        + b"\n-----END PRIVATE KEY-----\n",
        "another kind": pem(ec.generate_private_key(ec.SECP256R1())),
        "encrypted": pem(ed25519_key, BestAvailableEncryption(b"password")),
    }
    for name, data in files.items():
        path = tmp_path / name
        path.touch(0o600)
        path.write_bytes(data)
        with pytest.raises(KeyFileError) as caught:
            Ed25519Signer.load(path)
        assert str(path) in str(caught.value)
        assert "secret words" not in repr(caught.value) + repr(caught.value.__cause__)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(KeyFileError, match="No such file"):
        Ed25519Signer.load(tmp_path / "missing")
    with pytest.raises(KeyFileError):
        Ed25519Signer.load(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(KeyFileError, match="is not a file"):
        Ed25519Signer.load(tmp_path / "pipe")
    with pytest.raises(KeyFileError, match="cannot write"):
        Ed25519Signer.generate().save(tmp_path / "missing" / "key")


def test_nothing_shows_the_private_half():
    signer = Ed25519Signer.from_seed(SEED)
    shown = repr(signer) + str(signer)
    assert SEED.hex() not in shown
    assert signer.did in shown
    assert not hasattr(signer, "__dict__")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(signer)


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_seed_has_32_bytes(size):
    with pytest.raises(LocalProtocolError, match=f"not {size}"):
        Ed25519Signer.from_seed(bytes(size))


def test_a_codec_is_one_of_two():
    with pytest.raises(LocalProtocolError, match="expected dag-cbor or dag-json"):
        Ed25519Signer.generate(codec="json")


@pytest.mark.parametrize("codec", ["dag-cbor", "dag-json"])
def test_what_is_signed_is_accepted(codec):
    signer = Ed25519Signer.from_seed(SEED, codec=codec)
    parents: list[bytes] = []
    for clock in range(1, 4):
        entry = sign_entry(signer, "app.example.com", clock, parents, pcf.encode({"n": clock, "x": [1e300, b"", None]}))
        verdict = validate(entry.value, topic="app.example.com", key=entry.key)
        assert verdict.accepted
        assert verdict.entry == entry
        parents = [entry.key]


def test_an_entry_that_would_be_too_large_is_refused():
    payload = pcf.encode(b"x" * 1000)
    with pytest.raises(EncodeError, match="at most 1000"):
        sign_entry(Ed25519Signer.generate(), "t", 1, [], payload, value_bytes_max=1000)
