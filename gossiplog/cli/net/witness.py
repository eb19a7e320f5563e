"""`witness`: cosign checkpoints of published logs, over HTTP, as long as a log only grows."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from ...errors import DecodeError
from ..journal import write_journal
from ..options import ADDRESS, FOLDER, PUBLISHER, choose_signer, key_option, output_options
from ..output import Output
from ..session import in_trio, wait_for_signal


@click.command()
@click.argument("folder", metavar="FOLDER", type=FOLDER)
@click.option("--name", required=True, help="The witness's name in its signatures: a URL without its scheme, witness.example.com/w1.")
@key_option
@click.option("--log", "logs", metavar="VKEY", multiple=True, help="Sign for the log with this key, of any program; repeatable.")
@click.option("--publisher", "publishers", metavar="DID", type=PUBLISHER, multiple=True, help="Sign for all logs of this did; repeatable.")
@click.option("--anybody", is_flag=True, help="Sign for all publishers of logs of this format.")
@click.option("--listen", type=ADDRESS, default="127.0.0.1:8090", metavar="HOST:PORT", help="Where to serve HTTP.")
@click.option("--host", "hosts", metavar="NAME", multiple=True, help="A host name that requests may use, beside addresses; repeatable.")
@output_options(quiet="Log only problems.")
@in_trio
async def witness(
    folder: str,
    name: str,
    key_name: str | None,
    logs: tuple[str, ...],
    publishers: tuple[str, ...],
    anybody: bool,
    listen: str,
    hosts: tuple[str, ...],
    out: Output,
) -> None:
    """Cosign checkpoints of published logs, until Ctrl-C.

    A witness signs a checkpoint, with the time, only if it extends the last one of the same log that it signed. Before it answers, the
    checkpoint is durably stored in FOLDER. Never restore an older state of FOLDER, and give the witness a key of its own.

    The protocol is C2SP's tlog-witness, so logs of other programs can use it too. For TLS, put a web server in front of it.

    \b
    Examples
      gossiplog witness /var/lib/witness --name w.example.com --anybody
      gossiplog publish app.db www --witness http://127.0.0.1:8090#w.example.com+…
    """
    from ...bucket import Cosigner
    from ...net.ground.admission import HubLimits
    from ...net.hub.server import listen as serve
    from ...tlog.note import ED25519, VerifierKey
    from ...web.witness_api import make_witness_http

    if not (logs or publishers or anybody):
        raise click.UsageError("nobody to sign for: give --log VKEY, --publisher DID or --anybody")
    try:
        keys = [VerifierKey.parse(text) for text in logs]
    except DecodeError as error:
        raise click.UsageError(f"--log: {error}") from None
    if any(key.kind != ED25519 for key in keys):
        raise click.UsageError("--log: that is the key of a witness")
    names = [did.removeprefix("did:key:") for did in publishers]
    if not name or "+" in name or any(char.isspace() or not char.isprintable() for char in name):
        raise click.UsageError("--name: a name has no spaces and no plus signs")
    found = Cosigner(Path(folder), name, choose_signer(key_name), logs=keys, publishers=None if anybody else names)
    write_journal("text", is_quiet=out.is_quiet)

    limits = HubLimits(hosts=frozenset(hosts))
    with found.locked():
        async with serve([], listen, limits=limits, make_http=partial(make_witness_http, found)) as hub:
            urls = [f"http://{host if ':' not in host else f'[{host}]'}:{port}" for host, port in hub.addresses]
            record = {"witness": name, "key": str(found.key), "urls": urls}
            out.fields(record, [("key", str(found.key)), *(("--witness", f"{url}#{found.key}") for url in urls)])
            out.flush()
            await wait_for_signal()
