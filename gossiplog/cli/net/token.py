"""`token`: make what lets a client in."""

from __future__ import annotations

import click

from ..options import output_options
from ..output import Output

__all__ = ["token"]


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
