"""Signers: the protocol for objects that sign messages, and the built-in one, with an Ed25519 key in memory.

Source: docs/spec/entries.md, "Signature"; docs/spec/limits.md on private keys.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ..codec.did import ED25519_CODE, encode_did
from ..errors import EncodeError, KeyFileError, LocalProtocolError
from . import ed25519
from .envelope import build_value, signed_bytes
from .message import Entry
from .message_id import message_key
from .rules import VALUE_BYTES_LIMIT

_KEY_FILE_BYTES_MAX = 64 * 1024


class Signer(Protocol):
    """An object that can sign. `sign` may be called from any thread, and blocks it."""

    @property
    def did(self) -> str:
        """The did of the signer's key."""

    @property
    def codec(self) -> str:
        """The codec of its signatures: `dag-cbor`, `dag-json`, or a scheme's own."""

    def sign(self, data: bytes) -> bytes:
        """Return the raw signature over `data`."""


class Ed25519Signer:
    """An Ed25519 key in memory. Neither its repr nor any error shows the private half, and it cannot be pickled.

    Attributes:
        did: The did:key of the public key.
        codec: `dag-cbor`, the default, or `dag-json`.
        public_key: 32 raw bytes.
    """

    __slots__ = ("_signing_key", "codec", "did", "public_key")

    def __init__(self, seed: bytes, *, codec: str = "dag-cbor") -> None:
        if len(seed) != ed25519.SEED_BYTES:
            raise LocalProtocolError(f"an Ed25519 seed has {ed25519.SEED_BYTES} bytes, not {len(seed)}")
        if codec not in ("dag-cbor", "dag-json"):
            raise LocalProtocolError(f"codec {codec!r}, expected dag-cbor or dag-json")
        self.public_key, self._signing_key = ed25519.key_pair(bytes(seed))
        self.did = encode_did(ED25519_CODE, self.public_key)
        self.codec = codec

    @classmethod
    def generate(cls, *, codec: str = "dag-cbor") -> Ed25519Signer:
        """Make a new key from the operating system's randomness."""
        return cls(secrets.token_bytes(ed25519.SEED_BYTES), codec=codec)

    @classmethod
    def from_seed(cls, seed: bytes, *, codec: str = "dag-cbor") -> Ed25519Signer:
        """Make the key of a seed of 32 bytes, which is the whole secret.

        Raises:
            LocalProtocolError: The seed has another length.
        """
        return cls(seed, codec=codec)

    @classmethod
    def from_pem(cls, data: bytes, *, codec: str = "dag-cbor") -> Ed25519Signer:
        """Make the key of an unencrypted PKCS #8 PEM document.

        Raises:
            KeyFileError: The document is anything else.
        """
        # Imported here: reading or writing a key's file is the only use of `cryptography`, and importing it takes 50 ms.
        from cryptography.exceptions import InternalError, UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(data, password=None)
        except TypeError:
            raise KeyFileError("the key is encrypted", hint="decrypt it first, e.g. with `openssl pkey`") from None
        except (ValueError, UnsupportedAlgorithm, InternalError):
            # A key of the wrong size is an InternalError. The cause is dropped because it may quote the document.
            raise KeyFileError("not a private key in PEM (PKCS #8)") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise KeyFileError("the private key is not an Ed25519 key")
        return cls(key.private_bytes_raw(), codec=codec)

    def to_pem(self) -> bytes:
        """Return the private key as an unencrypted PKCS #8 PEM document. Keep it secret."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        key = Ed25519PrivateKey.from_private_bytes(self._signing_key[: ed25519.SEED_BYTES])
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, codec: str = "dag-cbor") -> Ed25519Signer:
        """Read a key's file.

        Raises:
            KeyFileError: The file is missing or unreadable, belongs to another user, gives others any right, or holds no Ed25519 key.
        """
        data = _read_private_file(Path(path))
        try:
            return cls.from_pem(data, codec=codec)
        except KeyFileError as error:
            raise KeyFileError(f"{path}: {error}", hint=error.hint) from None

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the key to a file that only its owner can read, atomically, and flush it to the disk.

        Raises:
            KeyFileError: The file exists and `overwrite` is not set, or it cannot be written.
        """
        _write_private_file(Path(path), self.to_pem(), overwrite=overwrite)

    def sign(self, data: bytes) -> bytes:
        """Return the raw signature, 64 bytes. About 18 µs; releases the interpreter's lock."""
        return ed25519.sign(self._signing_key, data)

    def __repr__(self) -> str:
        return f"<Ed25519Signer {self.did}>"

    def __reduce__(self) -> str:
        raise TypeError("a signer cannot be pickled; save it to a file")


def sign_entry(
    signer: Signer,
    topic: str,
    clock: int,
    parent_keys: Sequence[bytes],
    payload: bytes,
    *,
    value_bytes_max: int = VALUE_BYTES_LIMIT,
) -> Entry:
    """Sign a message and build its entry. About 30 µs for a payload of 200 bytes.

    Args:
        topic: A well-formed topic.
        clock: Must be `next_clock(parent_keys)`; no replica accepts an entry with another clock.
        parent_keys: 20 bytes each, in any order; they are written ascending, without duplicates.
        payload: The payload's bytes in PCF, from `pcf.encode`.

    Raises:
        EncodeError: VALUE would be larger than `value_bytes_max`.
    """
    codec, parent_keys = signer.codec, sorted(set(parent_keys))
    signature = signer.sign(signed_bytes(codec, topic, clock, parent_keys, payload))
    value = build_value(codec, signer.did, signature, topic, clock, parent_keys, payload)
    if len(value) > value_bytes_max:
        raise EncodeError(f"the entry would take {len(value)} bytes, at most {value_bytes_max} are allowed")
    return Entry(message_key(clock, value), value)


def _read_private_file(path: Path) -> bytes:
    """Read a file after checking the mode and owner of the file that was actually opened."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
        with open(descriptor, "rb") as file:  # noqa: PTH123
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise KeyFileError(f"{path} is not a file")
            if os.name == "posix" and status.st_mode & 0o077:
                mode = stat.S_IMODE(status.st_mode)
                raise KeyFileError(f"{path} has mode {mode:04o}, others may read it", hint=f"chmod 600 {path}")
            if os.name == "posix" and status.st_uid != os.geteuid():
                # Its owner could replace the key at any time.
                raise KeyFileError(f"{path} belongs to another user, with the id {status.st_uid}", hint=f"chown it if it is yours: {path}")
            data = file.read(_KEY_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise KeyFileError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > _KEY_FILE_BYTES_MAX:
        raise KeyFileError(f"{path} is too large for a key")
    return data


def _write_private_file(path: Path, data: bytes, *, overwrite: bool) -> None:
    """Write a new file beside `path` and rename it: by `link`, which fails if the name is taken, or by `replace`."""
    draft = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if overwrite:
                draft.replace(path)
            else:
                path.hardlink_to(draft)
        finally:
            draft.unlink(missing_ok=True)
    except FileExistsError:
        raise KeyFileError(f"{path} exists", hint="choose another file; a key is overwritten only on request") from None
    except OSError as error:
        raise KeyFileError(f"cannot write {path}: {error.strerror}") from error
