"""`serve`: put logs on the network, until Ctrl-C."""

from __future__ import annotations

import contextlib
import gc
import logging
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import click

from ...errors import GossipLogError
from ...pubsub.params import MESH_PARAMS
from ..configured import ConfiguredCommand, config_option, read_config, source_of
from ..exits import ExitCode
from ..journal import LOG_FORMATS, write_journal
from ..options import (
    LOG,
    Location,
    client_tls,
    durability_option,
    output_options,
    read_identity,
    read_token,
    takes,
    tls_ca_option,
    token_option,
)
from ..output import Output, counted
from ..session import load_application, load_authorize, run
from .serve_options import BucketOptions, ClientOptions, GlassOptions, MeshOptions, ShelfOptions
from .sync import hub_url

if TYPE_CHECKING:
    import trio

    from ...gossip_log import GossipLog
    from ...net.ground.access import Access
    from .serving import ServePlan, Serving

_FILES_WANTED = 16_384
_CLOSE_S = 3.0
"""How long logs may take to close. Entries that a database has not committed by then were not acknowledged, and their senders have them."""
SIGNALS = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


def _print_params(context: click.Context, option: click.Parameter, router: str | None) -> None:
    """Print a router's defaults as a file for `--mesh-params`, and exit."""
    if router is None:
        return
    from ...pubsub.tables import as_toml

    click.echo(as_toml(MESH_PARAMS[router]), nl=False)
    context.exit()


@click.command(cls=ConfiguredCommand)
@click.argument("logs", metavar="[LOG]...", type=LOG, nargs=-1)
@takes(shelf=ShelfOptions, clients=ClientOptions)
@click.option("--connect", "hubs", metavar="URL", multiple=True, help="Be a client of this hub as well; repeatable.")
@tls_ca_option
@click.option("--app", "apps", metavar="MODULE:OBJECT", multiple=True, help="Run this Application, or apply function; repeatable.")
@click.option("--authorize", metavar="MODULE:FUNCTION", help="The logs' access rule, which decides whose entries they accept.")
@token_option
@takes(mesh=MeshOptions)
@click.option(
    "--mesh-params-help",
    type=click.Choice(tuple(MESH_PARAMS)),
    is_eager=True,
    expose_value=False,
    callback=_print_params,
    help="Print a router's parameters with their defaults, as a file for --mesh-params.",
)
@takes(glass=GlassOptions, bucket=BucketOptions)
@click.option("--no-api", is_flag=True, help="Serve only WebSocket, no HTTP.")
@durability_option
@click.option("-v", "--verbose", "is_verbose", is_flag=True, help="Log everything, such as each attempt to connect and each lost stream.")
@click.option("--log-format", type=click.Choice(LOG_FORMATS), default="text", help="The format of the log on stderr.")
@config_option
@click.option("--check", is_flag=True, help="Only check the options and logs, and show what would run.")
@output_options(quiet="Log only problems.")
def serve(
    logs: tuple[Location, ...],
    hubs: tuple[str, ...],
    tls_ca: str | None,
    apps: tuple[str, ...],
    authorize: str | None,
    token_file: str | None,
    no_api: bool,
    durability: str,
    is_verbose: bool,
    log_format: str,
    config: str | None,
    check: bool,
    shelf: ShelfOptions,
    clients: ClientOptions,
    mesh: MeshOptions,
    glass: GlassOptions,
    bucket: BucketOptions,
    out: Output,
) -> int:
    """Put logs on the network, until Ctrl-C.

    The server is a hub: browsers and other replicas, the reference's included, connect by WebSocket, exchange missing entries, and get
    each other's new ones as they come. The same port serves the HTTP API: /api/messages to read and post, /api/events to follow,
    /api/connections and /metrics to monitor.

    With --p2p or --bootstrap each log also takes part in a mesh of servers, which find each other over libp2p; entries from clients go to
    the mesh and back. Two servers share one connection for all their logs.

    Every option may also stand in a TOML file (--config, or GOSSIPLOG_CONFIG) by its long name, or in the environment (--per-address as
    GOSSIPLOG_PER_ADDRESS); the command line takes precedence over the environment, and that over the file. At SIGHUP the server rereads
    the file's logs and the rules of --access.

    With --publish each log also exchanges entries with a bucket: new entries are published there within seconds, and those that others
    publish come in. A failing bucket is retried, and nothing else waits for it.

    With --dir every log of a folder is served at /TOPIC: it is opened when a client asks for it, and closed when idle. Hubs, buckets and
    meshes exchange entries with the open logs. With --create clients with the right create, by --access, may create logs there.

    A single log is served at any path, several each at /TOPIC. Ctrl-C ends the server cleanly: it stores the entries that it has received,
    and sends those that wait.

    \b
    Examples
      gossiplog serve app.db
      gossiplog serve app.db chat.db --listen :8080 --log-format json
      gossiplog serve app.db --listen :443 --origin https://app.example.com \\
        --tls-cert fullchain.pem --tls-key privkey.pem
      gossiplog serve app.db --connect ws://other.example.com:8080
      gossiplog serve --dir documents --access access.toml --create 'doc-*.org'
      gossiplog serve --config /etc/gossiplog.toml --check
      gossiplog serve app.db --p2p /ip4/0.0.0.0/tcp/4001 \\
        --bootstrap /dns4/peer.example.com/tcp/4001/p2p/12D3Koo…
    """
    from .memory import keep_together
    from .serving import ServePlan, check_plan

    if is_verbose and out.is_quiet:
        raise click.UsageError("--quiet and --verbose exclude each other")
    if not logs and shelf.folder is None:
        raise click.UsageError("nothing to serve: give a LOG, or --dir FOLDER")
    if shelf.creatable and (shelf.folder is None or clients.access_file is None):
        raise click.UsageError("--create needs --dir FOLDER, and --access FILE, which gives clients the right create")
    if mesh.is_wanted and (len(logs) > 1 or shelf.folder is not None) and mesh.key_file is None:
        raise click.UsageError("a peer with several logs needs --peer-key FILE, which is made if missing")
    for hub in hubs:
        if hub_url(hub) is None:
            raise click.UsageError(f"--connect {hub}: expected the URL of a hub, ws://HOST:PORT or wss://…")
    token = read_token(token_file)
    if (len(logs) > 1 or shelf.folder is not None) and any("{topic}" not in place for place in bucket.urls):
        raise click.UsageError("--publish: several logs need {topic} in the URL, so that each has its own place")
    plan = ServePlan(
        logs=logs,
        listens=clients.addresses or (() if hubs or mesh.is_wanted else ("127.0.0.1:8080",)),
        hubs=hubs,
        limits=clients.limits(shelf),
        serving_tls=clients.tls(),
        hub_tls=client_tls(tls_ca),
        token=token,
        identity=read_identity(glass.key_name) if hubs and token is None else None,
        has_api=not no_api,
        durability=durability,
        apps=tuple(load_application(name) for name in apps),
        authorize=load_authorize(authorize) if authorize else None,
        glass=glass,
        dial_from=mesh.dial_from,
        bucket=bucket.read(glass.key_name),
        shelf=shelf,
    )
    if no_api and plan.limits.access.names_dids:
        raise click.UsageError("--access names dids, which log in over HTTP, so it does not go with --no-api")
    glass.check(has_api=plan.has_api and bool(plan.listens), signs=bool(hubs or bucket.urls))
    context = click.get_current_context()
    if check:
        return run(partial(check_plan, context, plan, mesh, out))
    write_journal(log_format, is_quiet=out.is_quiet, is_verbose=is_verbose)
    _raise_file_limit()
    keep_together()

    def read_again() -> tuple[Sequence[Location], Access]:
        said = read_config(context.command, config)
        is_in_file = "logs" in said and source_of(context, "logs") == "file"
        return tuple(map(Location.parse, said["logs"])) if is_in_file else logs, clients.access()

    return run(partial(_serve, plan, mesh, out, read_again))


async def _serve(plan: ServePlan, mesh: MeshOptions, out: Output, read_again: Callable[[], tuple[Sequence[Location], Access]]) -> int:
    """Serve until a signal ends it; at SIGHUP, apply the logs and clients' rights that `read_again` returns."""
    import trio

    from .memory import give_back
    from .serving import Serving

    async with trio.open_nursery() as nursery:
        serving = Serving(plan, nursery)
        async with AsyncExitStack() as stack:
            open_logs = await serving.open(stack)
            path = plan.logs[0] if plan.logs else ""
            # First, because it brings the logs' name on the network.
            peer = await mesh.join(stack, serving.logs, path, plan.limits, plan.hub_tls) if mesh.is_wanted else None
            serving.multiaddrs = [] if peer is None else [str(address) for address in peer.host.announced]
            await serving.listen(stack)
            # Otherwise each full collection visits all imported objects, and blocks the event loop for 70 to 100 ms.
            gc.freeze()
            nursery.start_soon(give_back)
            with trio.open_signal_receiver(*SIGNALS) as signals:
                for log in open_logs:
                    await _report(out, log, serving.urls_of(log.topic))
                if serving.shelf is not None:
                    number, urls = len(await serving.shelf.topics()), serving.urls_of("TOPIC")
                    text = f"{serving.shelf.location}  {counted(number, 'log', 'logs')}  {'  '.join(urls)}".rstrip()
                    out.tell({"serving": serving.shelf.location, "logs": number, "urls": urls}, text)
                out.flush()
                # In tasks, because a log in a database that does not answer must not delay the handling of SIGTERM.
                async with trio.open_nursery() as rereading:
                    turn = trio.Lock()
                    async for number in signals:
                        if number in (signal.SIGINT, signal.SIGTERM):
                            break
                        rereading.start_soon(_reread, serving, plan, out, read_again, turn)
                    rereading.cancel_scope.cancel()
            nursery.cancel_scope.deadline = trio.current_time() + _CLOSE_S
            # From here on Ctrl-C interrupts.
            out.note("closing; Ctrl-C again to leave at once")
        await serving.close()
        nursery.cancel_scope.cancel()
    return ExitCode.DONE


async def _reread(
    serving: Serving, plan: ServePlan, out: Output, read_again: Callable[[], tuple[Sequence[Location], Access]], turn: trio.Lock
) -> None:
    """Reread the files, one call after the other; an error is logged, and then nothing changes."""
    import trio

    from ...net.ground.journal import note

    async with turn:
        try:
            # In a thread, because the files' disk may not answer.
            wanted, rules = await trio.to_thread.run_sync(read_again, abandon_on_cancel=True)
            plan.limits.access.replace(rules)
            came, gone = await serving.change(wanted)
        except GossipLogError as error:
            note("configuration not taken", level=logging.ERROR, reason=str(error))
            return
        note("configuration taken", came=len(came), gone=len(gone))
        for log in came:
            await _report(out, log, serving.urls_of(log.topic))
        out.flush()


async def _report(out: Output, log: GossipLog, urls: Sequence[str]) -> None:
    count = await log.count()
    record = {"serving": log.topic, "log": log.location, "entries": count, "urls": list(urls)}
    out.tell(record, f"{log.topic}  {counted(count, 'entry', 'entries')}  {'  '.join(urls)}".rstrip())


def _raise_file_limit() -> None:
    """Raise the limit of open files as far as the system allows, up to the needs of a hub."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(_FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
