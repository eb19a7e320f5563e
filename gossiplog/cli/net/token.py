"""`token`: make what lets a client in; and how commands are given one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..exits import ExitCode, Failure
from ..options import output_options
from ..output import Output

__all__ = ["read_token", "token", "token_option"]

F = TypeVar("F", bound=Callable[..., Any])
_TOKEN_BYTES_MAX = 4_096


@click.command()
@click.argument("name", metavar="[NAME]", default="client")
@output_options(quiet="Print the token alone.")
def token(name: str, out: Output) -> None:
    """Make a token that lets a client into a server.

    The token is for the client, and is shown this once. Its hash is for the server's file of rules (`serve --access`), under the name
    that the rules call it by: whoever reads that file cannot use it.

    \b
    Examples
      gossiplog token alice
      gossiplog token -q backup > backup.token
    """
    from ...net.access import hash_token, make_token

    made = make_token()
    hashed = hash_token(made)
    if out.is_quiet:
        out.line(made)
        out.note(f'{name} = "{hashed}"')
        return
    out.fields({"name": name, "token": made, "hash": hashed}, [("token", made), ("for [tokens]", f'{name} = "{hashed}"')])


def token_option(command: F) -> F:
    """Add `--token-file`; the command gets `token_file`, which is for `read_token`."""
    return click.option(
        "--token-file",
        type=click.Path(dir_okay=False),
        help="Be let into the hub with the token in this file.  [default: what GOSSIPLOG_TOKEN says]",
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
