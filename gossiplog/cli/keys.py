"""`key`: the keyring on the command line. Private keys are read from files and stdin and written to files; they are never arguments."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import KeyFileError
from .exits import ExitCode, Failure
from .options import FILE_OR_DASH, output_options
from .output import Column, Listing, Output
from .qr import draw_qr, qr_option

if TYPE_CHECKING:
    from ..entry.signing import Ed25519Signer
    from ..keyring import Keyring

_KEY_FILE_BYTES_MAX = 64 * 1024

_name_argument = click.argument("name")


@click.group(no_args_is_help=True)
def key() -> None:
    """Make and keep signing keys.

    The keyring is a folder with one file per key, readable only by its owner: ~/.config/gossiplog/keys, or the folder that
    GOSSIPLOG_KEY_DIR names. GOSSIPLOG_KEY_FILE names a single file instead, which suits a service.

    \b
    Examples
      gossiplog key new laptop
      gossiplog key list
      gossiplog key export laptop -o laptop.pem
      gossiplog key import phone phone.pem
    """


def _keyring() -> Keyring:
    from ..keyring import Keyring

    return Keyring.from_environment()


@key.command()
@_name_argument
@output_options(quiet="Print only the did.")
def new(name: str, out: Output) -> None:
    """Make a new key.

    It is an Ed25519 key. The command prints its did, the author's name in entries.

    \b
    Example
      gossiplog key new laptop
    """
    from ..entry.signing import Ed25519Signer

    signer = Ed25519Signer.generate()
    path = _keyring().add(name, signer)
    _report_key(out, name, signer, path)


@key.command("list")
@output_options(quiet="Print only the dids.")
def list_(out: Output) -> None:
    """List the keys of the keyring.

    Unusable keys are listed with the reason, such as a file that others may read; the exit code is then 1.

    \b
    Examples
      gossiplog key list
      gossiplog key list --json | jq -r .did
    """
    keyring = _keyring()
    is_whole = True
    columns = (Column("name", style="yellow"), Column("did", style="cyan"), Column("file"))
    with Listing(out, columns, empty=f"no keys in {keyring.path}; make one with `gossiplog key new NAME`") as listing:
        for name in keyring.names():
            path = keyring.path_of(name)
            try:
                did = keyring.load(name).did
            except KeyFileError as error:
                is_whole = False
                listing.add({"name": name, "file": str(path), "error": str(error)}, (name, f"unusable: {error}", _tilde(path)), id="")
            else:
                listing.add({"name": name, "did": did, "file": str(path)}, (name, did, _tilde(path)), id=did)
    if not is_whole:
        raise Failure("some keys cannot be used", hint="`gossiplog key show NAME` says what to do about one", kind="key")


@key.command()
@_name_argument
@qr_option
@output_options(quiet="Print only the did.")
def show(name: str, has_qr: bool, out: Output) -> None:
    """Show a key's did, its public half and its file.

    \b
    Examples
      gossiplog key show laptop
      gossiplog key show laptop --qr
    """
    keyring = _keyring()
    signer = keyring.load(name)
    drawn = draw_qr(signer.did) if has_qr else []
    _report_key(out, name, signer, keyring.path_of(name))
    for line in drawn:
        click.echo(line, err=True)


@key.command("export")
@_name_argument
@click.option("-o", "--output", metavar="FILE", type=FILE_OR_DASH, required=True, help="A file that does not exist yet, or '-' for stdout.")
@click.option("--passphrase", "has_passphrase", is_flag=True, help="Ask for a passphrase, and encrypt the key with it.")
@click.option("--public", "is_public", is_flag=True, help="Write the public half only.")
def export(name: str, output: str, has_passphrase: bool, is_public: bool) -> None:
    """Write a key to a file.

    The format is PEM (PKCS #8), which OpenSSL and most libraries read. Anyone who has the file can sign as you, so only you can read it. A
    private key is never written to a terminal.

    \b
    Examples
      gossiplog key export laptop -o laptop.pem --passphrase
      gossiplog key export laptop --public -o -
    """
    from ..keyring import public_pem, signer_to_pem

    signer = _keyring().load(name)
    if output == "-" and not is_public and sys.stdout.isatty():
        raise Failure("a private key is not written to a terminal", hint="give a file with -o FILE", code=ExitCode.USAGE)
    passphrase = None
    if has_passphrase and not is_public:
        passphrase = click.prompt("Passphrase", hide_input=True, confirmation_prompt=True, err=True).encode()
    text = public_pem(signer) if is_public else signer_to_pem(signer, passphrase)
    if output == "-":
        sys.stdout.write(text.decode())
        return
    mode = 0o644 if is_public else 0o600
    with os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(text)


@key.command("import")
@_name_argument
@click.argument("file", default="-", metavar="[FILE|-]", type=FILE_OR_DASH)
@output_options(quiet="Print only the did.")
def import_(name: str, file: str, out: Output) -> None:
    """Add a key from a file.

    The file holds PEM (PKCS #8, Ed25519; if encrypted, the command asks for the passphrase) or 64 hexadecimal digits, the seed that other
    libraries call the private key. A private key is never an argument, because everyone who lists processes would see it.

    \b
    Examples
      gossiplog key import phone phone.pem
      pass show seeds/phone | gossiplog key import phone
    """
    if file == "-":
        data = sys.stdin.buffer.read(_KEY_FILE_BYTES_MAX + 1)
    else:
        with Path(file).open("rb") as opened:
            data = opened.read(_KEY_FILE_BYTES_MAX + 1)
    if len(data) > _KEY_FILE_BYTES_MAX:
        raise KeyFileError(f"more than {_KEY_FILE_BYTES_MAX} bytes cannot be a key")
    signer = _signer_of(data.strip())
    path = _keyring().add(name, signer)
    _report_key(out, name, signer, path)


def _signer_of(data: bytes) -> Ed25519Signer:
    from ..entry.signing import Ed25519Signer
    from ..keyring import signer_from_pem

    if data.startswith(b"-----BEGIN"):
        is_encrypted = b"ENCRYPTED" in data
        passphrase = click.prompt("Passphrase", hide_input=True, err=True).encode() if is_encrypted else None
        return signer_from_pem(data, passphrase)
    try:
        seed = bytes.fromhex(data.decode("ascii"))
    except ValueError:
        seed = b""
    if len(seed) != 32:
        raise KeyFileError("neither a PEM file nor 64 hexadecimal digits", hint="export the key as PKCS #8 PEM where it comes from")
    return Ed25519Signer.from_seed(seed)


def _tilde(path: Path) -> str:
    """Return a path with the home folder as `~`."""
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)


def _report_key(out: Output, name: str, signer: Ed25519Signer, path: Path) -> None:
    public = signer.public_key.hex()
    shown = [("name", name), ("did", signer.did), ("public key", public), ("file", _tilde(path))]
    out.fields({"name": name, "did": signer.did, "publicKey": public, "file": str(path)}, shown, quiet=signer.did)
