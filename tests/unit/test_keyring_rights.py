"""Keys that somebody else could have put there are not signed with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gossiplog.entry import Ed25519Signer
from gossiplog.errors import KeyFileError
from gossiplog.keyring import Keyring

pytestmark = pytest.mark.skipif(os.name != "posix", reason="rights are those of POSIX")


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    keyring = Keyring(tmp_path / "keys")
    keyring.add("alice", Ed25519Signer.from_seed(b"\1" * 32))
    return keyring


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_folder_that_others_may_write_to_is_refused(keyring: Keyring, mode: int) -> None:
    keyring.path.chmod(mode)
    for use in (
        lambda: keyring.load("alice"),
        lambda: keyring.choose(None),
        keyring.names,
        lambda: keyring.add("b", Ed25519Signer.generate()),
    ):
        with pytest.raises(KeyFileError, match="others may put keys there") as caught:
            use()
        assert caught.value.hint == f"chmod 700 {keyring.path}"


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755])
def test_folder_that_others_may_look_into_will_do(keyring: Keyring, mode: int) -> None:
    keyring.path.chmod(mode)
    assert keyring.choose(None).did == Ed25519Signer.from_seed(b"\1" * 32).did


def test_key_and_folder_of_another_user_are_refused(keyring: Keyring, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(keyring.path_of("alice"), 12_345, 12_345)
        with pytest.raises(KeyFileError, match="belongs to another user, with the id 12345"):
            keyring.load("alice")
        os.chown(keyring.path, 12_345, 12_345)
    else:
        # Only root can give a file away, so it is we who are somebody else.
        monkeypatch.setattr(os, "geteuid", lambda: 12_345)
        with pytest.raises(KeyFileError, match="belongs to another user"):
            Ed25519Signer.load(keyring.path_of("alice"))
    with pytest.raises(KeyFileError, match=r"the keyring .* belongs to another user"):
        keyring.load("alice")
