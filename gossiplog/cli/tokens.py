"""What commands need to be let into a server: a token, and whose certificates to trust."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .exits import ExitCode, Failure
from .options import complete_key

if TYPE_CHECKING:
    from ..entry.signing import Signer

__all__ = ["client_tls", "identity_option", "read_identity", "read_token", "token_option"]

F = TypeVar("F", bound=Callable[..., Any])
_TOKEN_BYTES_MAX = 4_096


def token_option(command: F) -> F:
    """Add `--token-file`; the command gets `token_file`, which is for `read_token`."""
    return click.option(
        "--token-file",
        type=click.Path(dir_okay=False),
        help="A file with the token that the hub wants.  [default: what GOSSIPLOG_TOKEN says]",
    )(command)


def read_token(file: str | None) -> str | None:
    """Return the token to bring; never from the command line, which everybody on a machine can read.

    Raises:
        Failure: The file cannot be used.
    """
    if file is None:
        return os.environ.get("GOSSIPLOG_TOKEN") or None
    try:
        text = Path(file).read_bytes()[: _TOKEN_BYTES_MAX + 1].decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise Failure(f"cannot read the token in {file}: {reason}", code=ExitCode.USAGE, kind="usage") from None
    if not text or len(text) > _TOKEN_BYTES_MAX or not text.isprintable() or " " in text:
        raise Failure(f"{file} holds no token", hint="a token alone, as `gossiplog token -q` prints it", code=ExitCode.USAGE, kind="usage")
    return text


def identity_option(command: F) -> F:
    """Add `--key`; the command gets `key_name`, which is for `read_identity`."""
    return click.option(
        "--key",
        "key_name",
        metavar="NAME",
        shell_complete=complete_key,
        help="Be let into the hub by the did of this key of the keyring; with a bucket, publish with it.",
    )(command)


def read_identity(key_name: str | None) -> Signer | None:
    """Load the key that lets us in; None if none is named.

    Raises:
        KeyFileError: There is no such key.
    """
    from ..keyring import Keyring

    return None if key_name is None else Keyring.from_environment().load(key_name)


def client_tls(authority: str | None) -> ssl.SSLContext | None:
    """Return how the certificates of hubs are checked; None for the system's way.

    Raises:
        Failure: The authority's file cannot be used.
    """
    if authority is None:
        return None
    try:
        return ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Failure(
            f"cannot use the authority {authority}: {reason}", hint="a certificate in PEM", code=ExitCode.USAGE, kind="tls"
        ) from None
