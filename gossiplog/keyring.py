"""A person's signing keys: a folder with one private file per key, or a single file.

`GOSSIPLOG_KEY_FILE` names the single file, `GOSSIPLOG_KEY_DIR` moves the folder; without either it is `gossiplog/keys` under
`XDG_CONFIG_HOME` or `~/.config`. Files have mode 0600 and belong to the user; others are refused before they are read. A folder that
others may write to is refused, because they could replace our key with theirs. No function here prints, logs or represents a private key.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import KeyFileError

if TYPE_CHECKING:
    from .entry.signing import Ed25519Signer

__all__ = ["KEY_NAME_PATTERN", "Keyring", "public_pem", "signer_from_pem", "signer_to_pem"]

KEY_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SUFFIX = ".pem"
_KEYS_MAX = 10_000


class Keyring:
    """The keys of one folder, or the one key of one file."""

    def __init__(self, path: Path, *, is_file: bool = False) -> None:
        self.path = path
        self.is_file = is_file

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Keyring:
        """Return the keyring that the environment names, by default this process's; nothing is read or created yet."""
        environment = os.environ if environment is None else environment
        if file := environment.get("GOSSIPLOG_KEY_FILE"):
            return cls(Path(file).expanduser(), is_file=True)
        if folder := environment.get("GOSSIPLOG_KEY_DIR"):
            return cls(Path(folder).expanduser())
        base = environment.get("XDG_CONFIG_HOME") or "~/.config"
        return cls(Path(base).expanduser() / "gossiplog" / "keys")

    def names(self) -> list[str]:
        """List the keys' names, ascending; empty if there is no folder or file yet.

        Raises:
            KeyFileError: The folder cannot be read, or others may write to it.
        """
        if self.is_file:
            return [self.path.stem] if self.path.exists() else []
        self._check_folder()
        try:
            files = [path.name for path in self.path.iterdir() if path.name.endswith(_SUFFIX)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise KeyFileError(f"cannot read the keyring {self.path}: {error.strerror}", hint=self._how_to_move()) from error
        names = (name.removesuffix(_SUFFIX) for name in files)
        return sorted(name for name in names if KEY_NAME_PATTERN.fullmatch(name))[:_KEYS_MAX]

    def path_of(self, name: str) -> Path:
        """Return the file of the key of this name, which need not exist.

        Raises:
            KeyFileError: `name` has characters other than `A-Z a-z 0-9 . _ -`, begins with one of the last three, or has more than 64.
        """
        if self.is_file:
            return self.path
        if not KEY_NAME_PATTERN.fullmatch(name):
            raise KeyFileError(f"{name!r} cannot be a key's name", hint="use letters, digits, '.', '_' and '-', at most 64 in all")
        return self.path / f"{name}{_SUFFIX}"

    def load(self, name: str) -> Ed25519Signer:
        """Read a key.

        Raises:
            KeyFileError: There is no such key, others have rights to its file or may write to the folder, or the file holds no key.
        """
        from .entry.signing import Ed25519Signer

        self._check_folder()
        path = self.path_of(name)
        if (self.is_file and name != path.stem) or not path.exists():
            known = ", ".join(self.names()) or "none"
            raise KeyFileError(f"no key named {name!r} in {self.path}", hint=f"there are: {known}; `gossiplog key new {name}` makes it")
        return Ed25519Signer.load(path)

    def add(self, name: str, signer: Ed25519Signer) -> Path:
        """Save a key under a new name and return its file, which only its owner can read; a missing folder is created with mode 0700.

        Raises:
            KeyFileError: The name is taken or malformed, others may write to the folder, or the file cannot be written.
        """
        self._check_folder()
        path = self.path_of(name)
        if path.exists():
            raise KeyFileError(f"{path} exists", hint="choose another name; a key is never overwritten")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            signer.save(path)
        except OSError as error:
            raise KeyFileError(f"cannot write {path}: {error.strerror}", hint=self._how_to_move()) from error
        return path

    def choose(self, name: str | None) -> Ed25519Signer:
        """Load the key of this name or, without a name, the only one there is.

        Raises:
            KeyFileError: As `load` raises; or no name is given and there is not exactly one key, where the hint says what to do.
        """
        if name is not None:
            return self.load(name)
        names = self.names()
        if not names:
            raise KeyFileError(f"no key to sign with in {self.path}", hint="make one with `gossiplog key new NAME`")
        if len(names) > 1:
            shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
            raise KeyFileError(f"several keys to sign with: {shown}", hint=f"choose one with `--key {names[0]}`")
        return self.load(names[0])

    def _check_folder(self) -> None:
        """Refuse a folder in which others could replace our keys."""
        if self.is_file or os.name != "posix":
            return
        try:
            status = self.path.stat()
        except OSError:
            return
        if status.st_mode & 0o022:
            mode = stat.S_IMODE(status.st_mode)
            raise KeyFileError(f"the keyring {self.path} has mode {mode:04o}, others may put keys there", hint=f"chmod 700 {self.path}")
        if status.st_uid not in (os.geteuid(), 0):
            hint = f"chown it if its keys are yours, or {self._how_to_move()}"
            raise KeyFileError(f"the keyring {self.path} belongs to another user, with the id {status.st_uid}", hint=hint)

    @staticmethod
    def _how_to_move() -> str:
        return "set GOSSIPLOG_KEY_DIR or GOSSIPLOG_KEY_FILE to a place where you can write"


def signer_from_pem(data: bytes, passphrase: bytes | None) -> Ed25519Signer:
    """Read a private key from a PKCS #8 PEM document, which is encrypted with `passphrase` unless that is None.

    Raises:
        KeyFileError: It is no such document, its algorithm is not Ed25519, or its passphrase is another one.
    """
    from .entry.signing import Ed25519Signer

    if passphrase is None:
        return Ed25519Signer.from_pem(data)
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

    try:
        key = load_pem_private_key(data, passphrase)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The cause may quote the document, so it is not kept.
        raise KeyFileError("cannot decrypt the key", hint="is the passphrase right, and is the file PKCS #8 in PEM?") from None
    return Ed25519Signer.from_pem(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def signer_to_pem(signer: Ed25519Signer, passphrase: bytes | None) -> bytes:
    """Return a private key as a PKCS #8 PEM document, encrypted with `passphrase`, or unencrypted if that is None.

    Raises:
        KeyFileError: The passphrase is empty or longer than 1,023 bytes.
    """
    plain = signer.to_pem()
    if passphrase is None:
        return plain
    if not 0 < len(passphrase) <= 1023:
        raise KeyFileError("a passphrase has 1 to 1,023 bytes")
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, load_pem_private_key

    return load_pem_private_key(plain, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(passphrase))


def public_pem(signer: Ed25519Signer) -> bytes:
    """Return the public half as a PEM document (SubjectPublicKeyInfo)."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return Ed25519PublicKey.from_public_bytes(signer.public_key).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
