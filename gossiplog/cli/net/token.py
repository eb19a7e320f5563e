"""`token`: make a token that lets a client in."""

from __future__ import annotations

from functools import partial

import click

from ...errors import NotAuthorised
from ..exits import ExitCode, Failure
from ..options import choose_signer, identity_option, output_options, tls_ca_option
from ..output import Output, say
from ..session import run
from .sync import hub_url


@click.command()
@click.argument("name", metavar="[NAME]", default="client")
@click.option("--for", "url", metavar="URL", help="Get a token from this server, which lets in --key's did.")
@identity_option
@tls_ca_option
@output_options(quiet="Print only the token; the line with its hash goes to stderr.")
def token(name: str, url: str | None, key_name: str | None, tls_ca: str | None, out: Output) -> None:
    """Make a token that lets a client into a server.

    Give the token to the client; it is shown only once. Put its hash into the server's file of rules (`serve --access`), under a name: the
    hash does not reveal the token.

    With --for URL the server makes a token for a did that its rules name. It is valid for five minutes, and meant for clients that cannot
    sign. `sync`, `serve --connect` and `append URL` get such tokens by themselves.

    \b
    Examples
      gossiplog token alice
      gossiplog token -q backup > backup.token 2> backup.hash
      gossiplog token -q --for wss://hub.example.com --key alice > alice.token
      gossiplog doctor wss://hub.example.com --token-file alice.token
    """
    if url is not None:
        _fetch(url, key_name, tls_ca, out)
        return
    if key_name is not None or tls_ca is not None:
        raise click.UsageError("--key and --tls-ca go with --for URL")
    from ...net.ground.access import hash_token, make_token

    made = make_token()
    hashed = hash_token(made)
    rule = f'{name} = "{hashed}"'
    out.fields({"name": name, "token": made, "hash": hashed}, [("token", made), ("for [tokens]", rule)], quiet=made)
    if out.is_quiet:
        say(rule, err=True)


def _fetch(url: str, key_name: str | None, tls_ca: str | None, out: Output) -> None:
    from ...net.hub.client import fetch_token

    identity = choose_signer(key_name)
    hub = hub_url(url, identity=identity, tls_ca=tls_ca)
    if hub is None or hub.identity is None:
        hint = "a URL as `gossiplog serve` prints it, without a token: ws://HOST:PORT, or wss:// with TLS"
        raise Failure(f"cannot get a token from {url!r}", hint=hint, code=ExitCode.USAGE)
    made = run(partial(fetch_token, hub))
    if made is None:
        raise NotAuthorised(f"{hub.url} gives no tokens to dids", hint="its rules name none, or it serves no HTTP")
    out.fields({"did": identity.did, "token": made}, [("did", identity.did), ("token", made)], quiet=made)
