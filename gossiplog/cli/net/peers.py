"""`peers`: the connections of a running server."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import click

from ...errors import GossipLogError
from ..asking import Asker
from ..options import client_tls, output_options, read_token, tls_ca_option, token_option
from ..output import Column, Listing, Output, clean, utc

WATCH_S = 1.0
_MORE = ("peering", "backoff_s", "topics", "syncing", "queue", "traffic")
"""The fields that our own servers, unlike the reference's, give for a peer in addition to those of its connection."""
_COLUMNS = (
    Column("kind"),
    Column("side"),
    Column("peering"),
    Column("since"),
    Column("received", is_right=True),
    Column("pushed", is_right=True),
    Column("syncs", is_right=True),
    Column("queued", is_right=True),
    Column("score", is_right=True),
    Column("backoff", is_right=True),
    Column("peer", style="yellow"),
)


@click.command()
@click.argument("url", metavar="URL")
@tls_ca_option
@token_option
@click.option("--watch", "is_watching", is_flag=True, help="Ask again every second, and redraw, until Ctrl-C.")
@output_options(quiet="Print only the peers.")
def peers(url: str, tls_ca: str | None, token_file: str | None, is_watching: bool, out: Output) -> None:
    """List a running server's connections.

    URL is as `gossiplog serve` prints it; with several logs, the URL of one. A peer is a `client` of the server, a `hub` that the server is
    a client of, or a server of the `mesh`.

    The peering with a server of the mesh is `full` if it gets each message at once, `metadata` if it gets announcements and asks for
    messages, and `fanout` if it gets our own messages in a topic to which we are not subscribed. A mesh peer has a score: below 0 it is
    kept out of the mesh until its backoff ends, and below -80 all its messages are ignored.

    The columns count entries and updates received from the peer, entries pushed to it, syncs pulled from it, and bytes waiting to be sent.
    Below the table the command lists unreachable addresses, bans, and reasons for refused messages. --json adds the parts of each score,
    subscriptions and traffic.

    \b
    Examples
      gossiplog peers ws://127.0.0.1:8080
      gossiplog peers ws://127.0.0.1:8080 --watch
      gossiplog peers wss://peer.example.com/app.example.com --json
    """
    asker = Asker(url, client_tls(tls_ca), read_token(token_file))
    _show(asker, out)
    while is_watching:
        out.flush()
        time.sleep(WATCH_S)
        if not out.is_json and not out.is_quiet:
            click.clear()
        try:
            _show(asker, out)
        except GossipLogError as error:
            # The server may come back.
            out.note(str(error))


def _show(asker: Asker, out: Output) -> None:
    rows, troubles = _ask(asker)
    with Listing(out, _COLUMNS, empty="nobody is connected") as listing:
        for link, cells in rows:
            listing.add(link, cells, id=cells[-1])
    if not out.is_quiet:
        for record, text in troubles:
            out.tell(record, text)


def _cells(link: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a connection's cells; the reference implementation gives only the peer's name."""
    counts, since, score = link.get("counts", {}), link.get("since"), link.get("score")
    return (
        clean(str(link.get("kind", ""))),
        "" if "outbound" not in link else "dialled" if link["outbound"] else "accepted",
        clean(str(link.get("peering", ""))) if link.get("kind") == "mesh" else "",
        "" if since is None else utc(since),
        *(f"{counts[name]:,}" if name in counts else "" for name in ("received", "pushed", "syncs")),
        f"{link['queuedBytes']:,}" if "queuedBytes" in link else "",
        f"{float(score['total']):,.1f}" if isinstance(score, Mapping) else "",
        "" if link.get("backoff_s") is None else f"{float(link['backoff_s']):.0f} s",
        clean(str(link["peer"])),
    )


def _ask(asker: Asker) -> tuple[list[tuple[Mapping[str, Any], tuple[str, ...]]], list[tuple[dict[str, Any], str]]]:
    """Return connections with their cells, and troubles with their texts."""
    links = asker.ask("connections").record
    more: Mapping[str, Any] = {}
    with contextlib.suppress(GossipLogError):
        # The reference's server, and our older ones, lack this request.
        more = asker.ask_object("peers")
    try:
        if not isinstance(links, list):
            raise TypeError("no list")
        known = {peer["peer"]: peer for peer in more.get("peers", ())}
        whole = [{**link, **{name: known[link["peer"]][name] for name in _MORE if link["peer"] in known}} for link in links]
        return [(link, _cells(link)) for link in whole], list(_troubles(more))
    except (AttributeError, LookupError, OSError, OverflowError, TypeError, ValueError):
        raise asker.nonsense("connections") from None


def _troubles(more: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for dial in more.get("dials", ()):
        tries = f"{dial['tries']:,} tries" if dial["tries"] != 1 else "1 try"
        yield {"dial": dial}, clean(f"cannot reach {dial['address']}: {dial['reason']} ({tries})")
    for ban in more.get("bans", ()):
        yield {"ban": ban}, clean(f"banned until {utc(ban['until'])}: {ban['peer']}: {ban['reason']}")
    for refused in more.get("refused", ()):
        yield {"refused": refused}, clean(f"messages refused of {refused['peer']}: {refused['reason']}")
