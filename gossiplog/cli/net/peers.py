"""`peers`: who is connected with a running server."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import click

from ..options import output_options
from ..output import Column, Listing, Output, clean
from ..tokens import client_tls, read_token, token_option
from .asking import Asker

__all__ = ["peers"]

_COLUMNS = (
    Column("kind"),
    Column("side"),
    Column("since"),
    Column("received", is_right=True),
    Column("pushed", is_right=True),
    Column("syncs", is_right=True),
    Column("queued", is_right=True),
    Column("score", is_right=True),
    Column("peer", style="yellow"),
)


@click.command()
@click.argument("url", metavar="URL")
@click.option("--tls-ca", type=click.Path(dir_okay=False), help="Trust this CA, in PEM, when asking a wss:// server.")
@token_option
@output_options(quiet="Print the peers alone.")
def peers(url: str, tls_ca: str | None, token_file: str | None, out: Output) -> None:
    """List who is connected with a running server.

    URL is what `gossiplog serve` prints; of several logs, the one that is asked about. A peer is a `client` of the server, a `hub` that
    the server is a client of, or a server of the `mesh`. The columns count entries and updates received from it, pushed to it, the syncs
    that were pulled from it, and the bytes that wait to be sent; the score is that of a peer in the mesh: below 0 it is kept out of it,
    below -80 nothing that it sends is read. --json tells the parts of each score.

    \b
    Examples
      gossiplog peers ws://127.0.0.1:8080
      gossiplog peers wss://peer.example.com/app.example.com --json
    """
    rows = _ask(Asker(url, client_tls(tls_ca), read_token(token_file)))
    with Listing(out, _COLUMNS, empty="nobody is connected") as listing:
        for link, cells in rows:
            listing.add(link, cells, id=cells[-1])


def _cells(link: Mapping[str, Any]) -> tuple[str, ...]:
    """Show a connection; the reference tells of a peer no more than its name."""
    counts, since = link.get("counts", {}), link.get("since")
    return (
        clean(str(link.get("kind", ""))),
        "" if "outbound" not in link else "dialled" if link["outbound"] else "accepted",
        "" if since is None else datetime.datetime.fromtimestamp(since, datetime.UTC).isoformat(timespec="seconds"),
        *(f"{counts[name]:,}" if name in counts else "" for name in ("received", "pushed", "syncs")),
        f"{link['queuedBytes']:,}" if "queuedBytes" in link else "",
        _score(link.get("score")),
        clean(str(link["peer"])),
    )


def _score(score: Any) -> str:
    return f"{float(score['total']):,.1f}" if isinstance(score, Mapping) else ""


def _ask(asker: Asker) -> list[tuple[Mapping[str, Any], tuple[str, ...]]]:
    links = asker.ask("connections").record
    try:
        if not isinstance(links, list):
            raise TypeError("no list")
        return [(link, _cells(link)) for link in links]
    except (AttributeError, LookupError, OSError, OverflowError, TypeError, ValueError):
        raise asker.nonsense("connections") from None
