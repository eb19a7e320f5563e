"""`serve`: put logs on the network, until Ctrl-C."""

from __future__ import annotations

import contextlib
import gc
import signal
import ssl
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from ..exits import ExitCode, Failure
from ..journal import LOG_FORMATS, write_journal
from ..location import LOG, Location
from ..options import DURABILITIES, output_options
from ..output import Output, counted
from ..session import opened, run
from .serve_mesh import MeshOptions, mesh_options
from .token import read_token, token_option

if TYPE_CHECKING:
    from ...gossip_log import GossipLog
    from ...net.admission import HubLimits

__all__ = ["client_tls", "serve"]

_FILES_WANTED = 16_384


@click.command()
@click.argument("logs", metavar="LOG...", type=LOG, nargs=-1, required=True)
@click.option("--listen", "addresses", metavar="HOST:PORT", multiple=True, help="Serve WebSocket and HTTP here; repeatable.")
@click.option("--connect", "hubs", metavar="URL", multiple=True, help="Be a client of this hub as well; repeatable.")
@click.option(
    "--tls-cert", type=click.Path(dir_okay=False), help="The server's certificate, with its chain, in PEM: serve wss:// and https://."
)
@click.option("--tls-key", type=click.Path(dir_okay=False), help="Its private key in PEM; needed unless the certificate's file has it.")
@click.option("--tls-ca", type=click.Path(dir_okay=False), help="Trust this CA, in PEM, when connecting to a wss:// hub.")
@click.option(
    "--origin",
    "origins",
    metavar="URL",
    multiple=True,
    help="Let pages from here connect and read, and no others; repeatable. Otherwise all may open WebSockets, and none read HTTP.",
)
@click.option(
    "--host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="A name that HTTP is asked for under, beside addresses, localhost and the origins'; repeatable, '*' is any.",
)
@click.option("--proxy", "proxies", metavar="ADDRESS", multiple=True, help="Trust what this proxy says of its clients; repeatable.")
@click.option("--connections", type=click.IntRange(min=1), default=10_000, show_default=True, help="Connections to take at once.")
@click.option("--per-address", type=click.IntRange(min=1), default=8, show_default=True, help="Of these, from one address.")
@click.option("--access", "access_file", metavar="FILE", type=click.Path(dir_okay=False), help="What clients may, and how much, in TOML.")
@click.option("--allow", metavar="DID", multiple=True, help="Take entries of this writer from clients, and of no others; repeatable.")
@token_option
@mesh_options
@click.option("--no-api", is_flag=True, help="Serve WebSocket alone, no HTTP.")
@click.option("--durability", type=click.Choice(DURABILITIES), default="full", show_default=True, help="What a received entry survives.")
@click.option("-v", "--verbose", "is_verbose", is_flag=True, help="Log everything: each try to connect, each stream that was lost.")
@click.option("--log-format", type=click.Choice(LOG_FORMATS), default="text", show_default=True, help="How to log, on stderr.")
@output_options(quiet="Log only what is wrong.")
def serve(
    logs: tuple[Location, ...],
    addresses: tuple[str, ...],
    hubs: tuple[str, ...],
    tls_cert: str | None,
    tls_key: str | None,
    tls_ca: str | None,
    origins: tuple[str, ...],
    hosts: tuple[str, ...],
    proxies: tuple[str, ...],
    connections: int,
    per_address: int,
    access_file: str | None,
    allow: tuple[str, ...],
    token_file: str | None,
    no_api: bool,
    durability: str,
    is_verbose: bool,
    log_format: str,
    mesh: MeshOptions,
    out: Output,
) -> int:
    """Put logs on the network, until Ctrl-C.

    A hub: browsers and other replicas connect by WebSocket, get what they lack, give what they have, and see each other's entries as
    they come. It speaks with the reference implementation too. On the same port there is the HTTP API: /api/messages to read and
    post, /api/events to follow, /api/connections and /metrics to watch.

    With --p2p or --bootstrap the log is a peer among servers as well, which find each other over libp2p; what arrives on one side
    goes out on the other. A process is a peer for one log.

    One log is served at any path; of several, each is at /TOPIC. Ctrl-C ends it cleanly: what was received is stored, what
    waits to be sent goes out.

    \b
    Examples
      gossiplog serve app.db
      gossiplog serve app.db chat.db --listen :8080 --log-format json
      gossiplog serve app.db --listen :443 --tls-cert fullchain.pem --tls-key privkey.pem --origin https://app.example.com
      gossiplog serve app.db --listen 127.0.0.1:8081 --connect ws://other.example.com:8080
      gossiplog serve app.db --p2p /ip4/0.0.0.0/tcp/4001 --bootstrap /dns4/peer.example.com/tcp/4001/p2p/12D3Koo…
    """
    from ...net.access import Access
    from ...net.admission import HubLimits

    if is_verbose and out.is_quiet:
        raise click.UsageError("either --quiet or --verbose")
    if mesh.is_wanted and len(logs) > 1:
        raise click.UsageError("--p2p and --bootstrap are for one log; serve the others by processes of their own")
    listens = addresses or (() if hubs or mesh.is_wanted else ("127.0.0.1:8080",))
    limits = HubLimits(
        connections_per_address=per_address,
        connections_max=connections,
        proxies=frozenset(proxies),
        origins=frozenset(origin.rstrip("/").lower() for origin in origins) if origins else None,
        hosts=frozenset(hosts),
        access=Access.load(access_file, allow=allow) if access_file else Access.parse({}, allow=allow) if allow else Access(),
    )
    serving_tls, hub_tls = _server_tls(tls_cert, tls_key), client_tls(tls_ca)
    write_journal(log_format, is_quiet=out.is_quiet, is_verbose=is_verbose)
    _raise_file_limit()

    async def task() -> int:
        import trio

        async with AsyncExitStack() as stack:
            open_logs = [await stack.enter_async_context(opened(path, read_only=False, durability=durability)) for path in logs]
            # First, for it brings the name that the log has on the network.
            peer = await mesh.join(stack, open_logs[0], logs[0], limits, hub_tls) if mesh.is_wanted else None
            urls = await _listen(stack, open_logs, listens, limits, serving_tls, has_api=not no_api)
            await _connect(stack, open_logs, hubs, hub_tls, read_token(token_file))
            # Else each full collection goes through all that was imported, and holds the event loop for 70 to 100 ms.
            gc.freeze()
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                for log in open_logs:
                    multiaddrs = [] if peer is None else [str(address) for address in peer.host.announced]
                    await _report(out, log, [*urls.get(log.topic, []), *multiaddrs])
                out.flush()
                await anext(signals)
            # From here on Ctrl-C is an interrupt again.
            out.note("closing; Ctrl-C again to leave at once")
        return ExitCode.DONE

    return run(task)


async def _listen(
    stack: AsyncExitStack,
    logs: Sequence[GossipLog],
    addresses: Sequence[str],
    limits: HubLimits,
    tls: ssl.SSLContext | None,
    *,
    has_api: bool,
) -> dict[str, list[str]]:
    """Listen on each address; return the URLs of each topic."""
    from ...net.hub.server import listen

    make_http = None
    if has_api and addresses:
        from ...web import make_http as make

        make_http = make
    urls: dict[str, list[str]] = {}
    for address in addresses:
        hub = await stack.enter_async_context(listen(logs, address, tls=tls, limits=limits, make_http=make_http))
        for topic in hub.services:
            urls.setdefault(topic, []).extend(hub.urls_of(topic))
    return urls


async def _connect(
    stack: AsyncExitStack, logs: Sequence[GossipLog], hubs: Sequence[str], tls: ssl.SSLContext | None, token: str | None
) -> None:
    """Connect each log to each hub; several logs each at their topic's path."""
    from ...net.hub.client import connect

    for hub in hubs:
        for log in logs:
            place, mark, query = hub.partition("?")
            url = hub if len(logs) == 1 else f"{place.rstrip('/')}/{quote(log.topic)}{mark}{query}"
            await stack.enter_async_context(connect(log, url, tls=tls, token=token))


async def _report(out: Output, log: GossipLog, urls: Sequence[str]) -> None:
    count = await log.count()
    record = {"serving": log.topic, "log": log.location, "entries": count, "urls": list(urls)}
    if out.is_json:
        out.record(record)
    else:
        out.line(f"{log.topic}  {counted(count, 'entry', 'entries')}  {'  '.join(urls)}".rstrip())


def _server_tls(cert: str | None, key: str | None) -> ssl.SSLContext | None:
    if cert is None:
        if key is not None:
            raise click.UsageError("--tls-key needs --tls-cert")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "both files are PEM, the key without a password and belonging to the certificate"
        raise Failure(f"cannot use the certificate {cert}: {reason}", hint=hint, code=ExitCode.USAGE, kind="tls") from None
    return context


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


def _raise_file_limit() -> None:
    """Let the process have as many sockets as the system allows it, up to what a hub needs."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(_FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
