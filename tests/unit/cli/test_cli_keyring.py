import stat
from pathlib import Path

import pytest

from gossiplog.entry import Ed25519Signer
from gossiplog.errors import KeyFileError
from gossiplog.keyring import Keyring, public_pem, signer_from_pem, signer_to_pem

SEED = b"\x07" * 32


def test_environment_moves_the_keyring(tmp_path: Path) -> None:
    assert Keyring.from_environment({"GOSSIPLOG_KEY_DIR": str(tmp_path)}).path == tmp_path
    assert Keyring.from_environment({"XDG_CONFIG_HOME": str(tmp_path)}).path == tmp_path / "gossiplog" / "keys"
    assert Keyring.from_environment({}).path == Path("~/.config/gossiplog/keys").expanduser()
    single = Keyring.from_environment({"GOSSIPLOG_KEY_DIR": str(tmp_path), "GOSSIPLOG_KEY_FILE": str(tmp_path / "k.pem")})
    assert (single.path, single.is_file) == (tmp_path / "k.pem", True)


def test_added_key_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path / "deep" / "keys")
    path = keyring.add("laptop", Ed25519Signer.from_seed(SEED))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert keyring.load("laptop").did == Ed25519Signer.from_seed(SEED).did
    assert keyring.names() == ["laptop"]


def test_looser_file_is_refused_with_the_command_that_mends_it(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path)
    path = keyring.add("laptop", Ed25519Signer.generate())
    path.chmod(0o640)
    with pytest.raises(KeyFileError) as caught:
        keyring.load("laptop")
    assert caught.value.hint == f"chmod 600 {path}"


def test_key_is_never_overwritten(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path)
    keyring.add("a", Ed25519Signer.from_seed(SEED))
    with pytest.raises(KeyFileError, match="exists"):
        keyring.add("a", Ed25519Signer.generate())
    assert keyring.load("a").did == Ed25519Signer.from_seed(SEED).did


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "-x", ".hidden", "a b", "é", "x" * 65, "a\n"])
def test_name_that_could_leave_the_folder_or_mislead_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(KeyFileError):
        Keyring(tmp_path).path_of(name)


def test_only_key_is_chosen_without_being_named(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path)
    with pytest.raises(KeyFileError) as none:
        keyring.choose(None)
    assert "gossiplog key new" in (none.value.hint or "")
    keyring.add("a", Ed25519Signer.from_seed(SEED))
    assert keyring.choose(None).did == Ed25519Signer.from_seed(SEED).did
    keyring.add("b", Ed25519Signer.generate())
    with pytest.raises(KeyFileError) as several:
        keyring.choose(None)
    assert "--key a" in (several.value.hint or "")
    assert keyring.choose("a").did == Ed25519Signer.from_seed(SEED).did


def test_single_file_is_a_keyring_of_one(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path / "service.pem", is_file=True)
    assert keyring.names() == []
    keyring.add("whatever", Ed25519Signer.from_seed(SEED))
    assert keyring.names() == ["service"]
    assert keyring.choose(None).did == Ed25519Signer.from_seed(SEED).did
    with pytest.raises(KeyFileError, match="no key named"):
        keyring.load("other")


def test_pem_goes_there_and_back_with_and_without_a_passphrase() -> None:
    signer = Ed25519Signer.from_seed(SEED)
    assert signer_from_pem(signer_to_pem(signer, None), None).did == signer.did
    encrypted = signer_to_pem(signer, b"secret")
    assert b"ENCRYPTED" in encrypted
    assert signer_from_pem(encrypted, b"secret").did == signer.did
    with pytest.raises(KeyFileError, match="decrypt"):
        signer_from_pem(encrypted, b"wrong")
    with pytest.raises(KeyFileError):
        signer_from_pem(encrypted, None)
    assert b"PUBLIC KEY" in public_pem(signer)


def test_no_error_or_repr_shows_the_secret(tmp_path: Path) -> None:
    signer = Ed25519Signer.from_seed(SEED)
    secrets = (SEED.hex(), repr(SEED)[2:-1])
    texts = [repr(signer), str(signer), repr(Keyring(tmp_path))]
    path = Keyring(tmp_path).add("a", signer)
    path.write_bytes(path.read_bytes().replace(b"MC4C", b"XX4C"))
    with pytest.raises(KeyFileError) as caught:
        Keyring(tmp_path).load("a")
    texts += [str(caught.value), repr(caught.value), str(caught.value.hint)]
    assert not [text for text in texts for secret in secrets if secret in text]
