"""`why`: why an entry is missing at a server, or how it came there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ...errors import DecodeError, GossipLogError
from ..asking import Asker
from ..exits import ExitCode, Failure
from ..options import FILE, client_tls, output_options, read_token, tls_ca_option, token_option
from ..output import Output, clean, utc


@click.command()
@click.argument("url", metavar="URL")
@click.argument("entry", metavar="ENTRY")
@click.argument("peer", metavar="[PEER]", required=False)
@tls_ca_option
@token_option
@click.option("--peer-token-file", type=FILE, help="A file with the token for PEER, if that is a URL.")
@output_options(quiet="Print only the cause.")
def why(
    url: str, entry: str, peer: str | None, tls_ca: str | None, token_file: str | None, peer_token_file: str | None, out: Output
) -> int:
    """Say why an entry is missing at a server, or how it came there.

    URL is as `gossiplog serve` prints it, and ENTRY a full id. PEER is a peer that has the entry or, if the server has it, a peer that
    lacks it: the URL of another server, which is asked as well, or a peer's id as `gossiplog peers` prints it. The token for URL is sent to
    no other server.

    The server knows more if it keeps facts (`serve --dashboard` or --facts). The exit code is 0 if the entry is there and nothing keeps
    it from PEER, otherwise 7.

    \b
    Examples
      gossiplog why ws://127.0.0.1:8080 0k5v2gq…
      gossiplog why ws://127.0.0.1:8080 0k5v2gq… ws://127.0.0.1:8081
      gossiplog why ws://127.0.0.1:8080 0k5v2gq… 12D3KooW…
    """
    from ...entry.message_id import is_id

    if not is_id(entry):
        hint = "a missing entry cannot be found by its first characters: give all 32, of 0-9 and a-v"
        raise Failure(f"{entry!r} is not an id", hint=hint, code=ExitCode.USAGE)
    tls, token = client_tls(tls_ca), read_token(token_file)
    here = Asker(url, tls, token)
    if peer is not None and "://" in peer and not _is_linked(here, peer):
        # Our token for this server is a secret from the other one.
        theirs = None if peer_token_file is None else read_token(peer_token_file)
        answer = _ask_both(here, Asker(peer, tls, theirs, token_option="--peer-token-file"), entry)
    else:
        answer = here.ask_object("why", entry=entry, **({} if peer is None else {"peer": peer}))
    try:
        _show(answer, out)
    except (AttributeError, LookupError, TypeError, ValueError, OSError, OverflowError):
        raise here.nonsense("why") from None
    return ExitCode.DONE if answer["cause"] == "here" else ExitCode.TROUBLE


def _is_linked(here: Asker, peer: str) -> bool:
    """Whether the server has a peer, a client or a hub, by the name of this URL; it may be banned by now."""
    known = here.ask_object("peers")
    listed = [one for name in ("peers", "bans") if isinstance(found := known.get(name), list) for one in found]
    return any(isinstance(one, dict) and one.get("peer") == peer for one in listed)


def _ask_both(here: Asker, there: Asker, entry: str) -> Mapping[str, Any]:
    from ...glass.why import WhyAnswer, with_view_of_peer

    ours = here.ask_object("peers")
    try:
        theirs = there.ask_object("peers")
    except GossipLogError as error:
        # The first server's answer is useful without the second one's.
        answer = here.ask_object("why", entry=entry, peer=there.server.url)
        return {**answer, "text": f"{answer.get('text', '')} (the peer could not be asked: {error})"}
    try:
        ids, topics = (str(ours["me"]), str(theirs["me"])), (str(ours["topic"]), str(theirs["topic"]))
        ours_about_it = WhyAnswer.from_record(here.ask_object("why", entry=entry, peer=ids[1]))
        has_entry = WhyAnswer.from_record(there.ask_object("why", entry=entry))
        towards = WhyAnswer.from_record(there.ask_object("why", entry=entry, peer=ids[0]))
    except (LookupError, DecodeError):
        raise here.nonsense("why") from None
    return with_view_of_peer(ours_about_it, has_entry, towards, topics).record()


def _show(answer: Mapping[str, Any], out: Output) -> None:
    cause, since = clean(str(answer["cause"])), answer.get("since")
    shown = [("state", clean(str(answer["state"]))), ("cause", cause), ("why", clean(str(answer["text"])))]
    shown += [] if since is None else [("since", utc(float(since), "milliseconds"))]
    shown += [("way", _step(step)) for step in answer.get("way", [])]
    out.fields(answer, shown, quiet=cause)


def _step(step: Mapping[str, Any]) -> str:
    said = [str(step[name]) for name in ("kind", "type", "way", "rule", "reason") if name in step]
    return clean(f"{utc(float(step['time_s']), 'milliseconds')}  {' '.join(said)}" + (f"  {step['peer']}" if "peer" in step else ""))
