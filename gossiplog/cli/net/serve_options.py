"""The options of `serve` in groups, with the objects that they configure: a folder of logs, clients, the mesh, buckets, and the page."""

from __future__ import annotations

import ssl
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import LocalProtocolError
from ...pubsub.params import MESH_PARAMS
from ..exits import ExitCode, Failure, misused
from ..options import ADDRESS, BUCKET, FILE, PLACE, Location, NumberRange, choose_signer, complete_key, option, shared, witness_option

if TYPE_CHECKING:
    from ...entry.signing import Signer
    from ...gossip_log import GossipLog
    from ...net.ground.access import Access
    from ...net.ground.admission import HubLimits
    from ...net.libp2p import Address
    from ...net.mesh import Mesh
    from ...pubsub.params import EpisubParams, GossipsubParams
    from ...replica.shelving import OpenLogs
    from ...web.glass import GlassSettings


def _read_addresses(context: click.Context, option: click.Parameter, value: Any) -> Any:
    """Parse an IP address, or several, and spell them like those of connections."""
    if value is None:
        return None
    try:
        return str(ip_address(value)) if isinstance(value, str) else tuple(str(ip_address(one)) for one in value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _read_origins(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Check origins, and spell them like browsers: others would never match."""
    origins = tuple(value.lower().removesuffix("/") for value in values)
    for value, origin in zip(values, origins, strict=True):
        scheme, _, authority = origin.partition("://")
        if origin not in ("null", "*") and (not scheme or not authority or "/" in authority):
            raise click.BadParameter(f"{value!r} is no origin: expected a scheme and a host without a path, https://app.example.com")
    return origins


def _read_hosts(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if "/" in value:
            raise click.BadParameter(f"{value!r} is no name: expected a host without scheme and path, hub.example.com")
    return values


@dataclass(frozen=True, slots=True)
class ShelfOptions:
    """The options of a folder or a database of logs."""

    folder: str | None = option(
        "--dir", metavar="FOLDER", type=PLACE, help="Serve every log in this folder or database, opened when a client asks for it."
    )
    creatable: tuple[str, ...] = option(
        "--create", metavar="PATTERN", multiple=True, help="Clients with the right create may create logs of such topics; repeatable."
    )
    most_open: int = option("--most-open", type=click.IntRange(min=1), metavar="N", default=256, help="Logs of --dir open at a time.")
    most_logs: int = option(
        "--most-logs", type=click.IntRange(min=1), metavar="N", default=100_000, help="Logs in --dir; no more are created."
    )
    most_bytes: int | None = option(
        "--most-bytes", type=click.IntRange(min=1), metavar="N", help="Bytes of all logs of --dir; then clients can add no more."
    )
    creations: int = option(
        "--creations", type=click.IntRange(min=1), metavar="N", default=60, help="Logs that one did, or one token, may create per minute."
    )


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The options for clients: addresses to listen on, certificates, limits and rights."""

    addresses: tuple[str, ...] = option(
        "--listen", metavar="HOST:PORT", type=ADDRESS, multiple=True, help="Serve WebSocket and HTTP here; repeatable."
    )
    tls_cert: str | None = option(
        "--tls-cert", type=FILE, help="The server's certificate, with its chain, in PEM: serve wss:// and https://."
    )
    tls_key: str | None = option("--tls-key", type=FILE, help="The certificate's private key, in PEM, unless it is in the same file.")
    origins: tuple[str, ...] = option(
        "--origin",
        metavar="URL",
        multiple=True,
        callback=_read_origins,
        help="Let only pages from this origin connect and read; repeatable, '*' is any. By default, on loopback, pages of this machine.",
    )
    hosts: tuple[str, ...] = option(
        "--host",
        metavar="NAME",
        multiple=True,
        callback=_read_hosts,
        help="A host name that HTTP requests may use, beside addresses, localhost and the origins'; repeatable, '*' is any.",
    )
    proxies: tuple[str, ...] = option(
        "--proxy",
        metavar="ADDRESS",
        multiple=True,
        callback=_read_addresses,
        help="Trust the client addresses that this proxy reports; repeatable.",
    )
    connections: int = option(
        "--connections", type=click.IntRange(min=1), metavar="N", default=10_000, help="The most connections at once."
    )
    per_address: int = option(
        "--per-address",
        type=click.IntRange(min=1),
        metavar="N",
        default=8,
        help="The most connections from one address, and 8 times as many further logs on them.",
    )
    access_file: str | None = option("--access", metavar="FILE", type=FILE, help="Clients' rights and quotas, in TOML.")
    allow: tuple[str, ...] = option(
        "--allow", metavar="DID", multiple=True, help="Accept only this writer's entries from clients; repeatable."
    )

    def limits(self, shelf: ShelfOptions) -> HubLimits:
        """Return the limits of each server.

        Raises:
            Failure: The rules of --access are wrong, or their file cannot be read.
        """
        from ...net.ground.admission import HubLimits

        return HubLimits(
            connections_per_address=self.per_address,
            connections_max=self.connections,
            proxies=frozenset(self.proxies),
            origins=frozenset(self.origins) or None,
            hosts=frozenset(self.hosts),
            access=self.access(),
            creatable=shelf.creatable,
            creations_per_minute=shelf.creations,
            shelf_bytes_max=shelf.most_bytes,
        )

    def access(self) -> Access:
        """Read the rules of --access and --allow; raises like `limits`."""
        from ...net.ground.access import Access

        with misused("--access" if self.access_file else "--allow"):
            if self.access_file:
                return Access.load(self.access_file, allow=self.allow)
            return Access.parse({}, allow=self.allow) if self.allow else Access()

    def tls(self) -> ssl.SSLContext | None:
        """Load the certificate; None without one.

        Raises:
            Failure: It cannot be used.
        """
        if self.tls_cert is None:
            if self.tls_key is not None:
                raise click.UsageError("--tls-key needs --tls-cert")
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(["http/1.1"])
        hint = "both files must be PEM, and the key must belong to the certificate and have no password"
        with misused(f"cannot use the certificate {self.tls_cert}", hint=hint, kind="tls"):
            context.load_cert_chain(self.tls_cert, self.tls_key)
        return context


@dataclass(frozen=True, slots=True)
class MeshOptions:
    """The options of the mesh, with unparsed multiaddrs."""

    listen: tuple[str, ...] = option(
        "--p2p", metavar="MULTIADDR", multiple=True, help="Take part in a mesh of servers, and listen here; repeatable."
    )
    bootstrap: tuple[str, ...] = option(
        "--bootstrap", metavar="MULTIADDR", multiple=True, help="A peer through which to find others; repeatable."
    )
    announce: tuple[str, ...] = option(
        "--announce", metavar="MULTIADDR", multiple=True, help="Announce this address instead of our own; repeatable."
    )
    key_file: str | None = option("--peer-key", type=FILE, help="Our key in the mesh; created if missing.  [default: LOG.peer.pem]")
    router: str = option("--router", type=click.Choice(tuple(MESH_PARAMS)), default="gossipsub", help="How entries spread.")
    target: int = option("--peers", type=click.IntRange(min=1), default=16, metavar="N", help="Connections with peers to keep up.")
    params_file: str | None = option(
        "--mesh-params", type=FILE, help="TOML with the router's parameters that differ from the defaults, peer scores included."
    )
    dial_from: str | None = option(
        "--dial-from", metavar="ADDRESS", callback=_read_addresses, help="Dial peers and hubs from this address of the machine."
    )

    @property
    def is_wanted(self) -> bool:
        """Whether to take part in a mesh."""
        return bool(self.listen or self.bootstrap)

    def check(self) -> None:
        """Parse the options and read the parameters' file, without joining.

        Raises:
            Failure: One of them cannot be used.
        """
        if self.is_wanted:
            for name, texts in (("--p2p", self.listen), ("--announce", self.announce), ("--bootstrap", self.bootstrap)):
                _read(name, texts)
        _read_params(self.router, self.params_file)

    async def join(self, stack: AsyncExitStack, logs: OpenLogs, path: str, limits: HubLimits, tls: ssl.SSLContext | None) -> Mesh:
        """Join the mesh of each open log, until the stack is closed.

        Args:
            path: The place of the only log; the key is beside it unless --peer-key names one.
            limits: Those of hubs; the mesh has the same, with another number of connections.

        Raises:
            Failure: A multiaddr cannot be used, or the key has no place.
            KeyFileError: The peer's key cannot be used.
            CannotListen: An address cannot be listened on.
        """
        from ...net.libp2p import PeerKey
        from ...net.libp2p.host import CONNECTIONS_MAX
        from ...net.mesh import MeshConfig, open_mesh

        if self.key_file is None and isinstance(path, Location) and path.is_url:
            raise click.UsageError("a peer whose log is not a file needs --peer-key FILE")
        if self.key_file is None and not Path(path).exists():
            hint = "name a file with --peer-key FILE; it is created if missing"
            raise Failure("a log that is not a file has no place for its peer's key", hint=hint, code=ExitCode.USAGE)
        key = PeerKey.load_or_create(Path(self.key_file or f"{path}.peer.pem"))
        config = MeshConfig(
            listen=_read("--p2p", self.listen),
            announce=_read("--announce", self.announce),
            bootstrap=_read("--bootstrap", self.bootstrap),
            router=self.router,
            params=_read_params(self.router, self.params_file),
            target=self.target,
            known_file=Path(f"{self.key_file or path}.peers.json"),
            limits=replace(limits, connections_max=min(limits.connections_max, CONNECTIONS_MAX)),
            tls=tls,
            source=self.dial_from,
        )
        return await stack.enter_async_context(open_mesh(logs, key, config))


@dataclass(frozen=True, slots=True)
class BucketOptions:
    """The options of the buckets in which logs are published.

    Attributes:
        urls: With `{topic}` in the place of a log's topic.
        signer: Signs checkpoints; set by `read`.
    """

    urls: tuple[str, ...] = option(
        "--publish",
        metavar="URL",
        type=BUCKET,
        multiple=True,
        help="Publish in this bucket, signed by --key, and fetch what others publish there; repeatable.",
    )
    every_s: float = option(
        "--publish-every", type=NumberRange(min=0.1), default=5.0, metavar="SECONDS", help="The interval of exchanges with buckets."
    )
    witnesses: tuple[str, ...] = shared(witness_option)
    signer: Signer | None = None

    def read(self, key_name: str | None) -> BucketOptions:
        """Check the options, and load the key if something is to be published.

        Raises:
            GossipLogError: The key cannot be used.
        """
        from ...tlog.note import publisher_of

        if not self.urls:
            if self.witnesses:
                raise click.UsageError("--witness needs --publish")
            return self
        signer = choose_signer(key_name)
        publisher_of(signer)
        return replace(self, signer=signer)

    async def exchange(self, stack: AsyncExitStack, log: GossipLog) -> None:
        """Keep a log synced with the buckets until the stack is closed."""
        from ...bucket import in_place

        for url in self.urls:
            place = in_place(url, log.topic)
            await stack.enter_async_context(log.keep_synced(place, signer=self.signer, every_s=self.every_s, witnesses=self.witnesses))


@dataclass(frozen=True, slots=True)
class GlassOptions:
    """The options of the server's page and facts."""

    dashboard: bool = option("--dashboard", is_flag=True, help="Serve a page at / that shows the log, its network, and events.")
    may_append: bool = option("--dashboard-append", is_flag=True, help="Let the page append entries, signed by --key.")
    key_name: str | None = option(
        "--key",
        metavar="NAME",
        shell_complete=complete_key,
        help="The keyring's key that signs the page's appends and --publish's checkpoints, and logs in to hubs.",
    )
    watched: tuple[str, ...] = option(
        "--dashboard-watch", metavar="URL", multiple=True, help="Show this server on the page as well; repeatable."
    )
    facts_file: str | None = option("--facts", metavar="FILE", type=FILE, help="Append all facts to this file, as JSON lines.")

    def check(self, *, has_api: bool, signs: bool) -> None:
        """Check that the options go together.

        Raises:
            UsageError: They do not.
            KeyFileError: There is no key to sign with, or not exactly one to choose from.
            Failure: A URL is malformed, or the facts' file cannot be written.
        """
        from ...net.hub.client import parse_url

        if self.dashboard and not has_api:
            raise click.UsageError("--dashboard needs HTTP: it goes neither with --no-api nor with a server that does not listen")
        for name, is_given in (("--dashboard-append", self.may_append), ("--dashboard-watch", bool(self.watched))):
            if is_given and not self.dashboard:
                raise click.UsageError(f"{name} needs --dashboard")
        if self.key_name is not None and not (self.may_append or signs):
            raise click.UsageError("--key needs --dashboard-append, --connect or --publish: nothing else needs a key")
        self.signer()
        for url in self.watched:
            with misused("--dashboard-watch"):
                parse_url(url, of_server=True)
        if self.facts_file is not None:
            with misused(f"--facts {self.facts_file}"):
                Path(self.facts_file).open("ab").close()

    def signer(self) -> Signer | None:
        """Load the key that signs the page's appends; None if it may not append.

        Raises:
            KeyFileError: There is no such key, or not exactly one to choose from.
        """
        return choose_signer(self.key_name) if self.may_append else None

    async def settings(self, stack: AsyncExitStack, tls: ssl.SSLContext | None) -> GlassSettings:
        """Return the settings of the HTTP server's page; the other servers that it shows are followed until the stack is closed."""
        from ...web.glass import FactGatherer, GlassSettings

        gather = FactGatherer(self.watched, tls) if self.watched else None
        if gather is not None:
            await stack.enter_async_context(gather.running())
        return GlassSettings(self.dashboard, self.may_append, gather)

    def observing(self, log: GossipLog) -> AbstractContextManager[None]:
        """Collect a log's facts during a block, if facts are wanted; the block must begin before the log is on the network."""
        from ...net.service.service import observed

        if not self.dashboard and self.facts_file is None:
            return nullcontext()
        return observed(log, None if self.facts_file is None else Path(self.facts_file))


def _read_params(router: str, file: str | None) -> GossipsubParams | EpisubParams:
    from ...net.ground.toml_file import read_toml
    from ...pubsub.tables import overlaid

    if file is None:
        return MESH_PARAMS[router]
    hint = f"`gossiplog serve --mesh-params-help {router}` prints every parameter with its default"
    with misused(f"--mesh-params {file}", hint=hint):
        params = overlaid(MESH_PARAMS[router], read_toml(file), "")
        if not params.is_validating:
            raise LocalProtocolError("is_validating: False, but a log validates what it passes on")
    return params


def _read(name: str, texts: tuple[str, ...]) -> tuple[Address, ...]:
    from ...net.libp2p import Address

    hint = "such as /dns4/peer.example.com/tcp/4001/p2p/12D3Koo…, /ip4/203.0.113.7/tcp/4001/ws or /dns4/peer.example.com/tcp/443/wss"
    if name == "--p2p":
        hint = "such as /ip4/0.0.0.0/tcp/4001, or /ip4/0.0.0.0/tcp/4001/ws"
    with misused(name, hint=hint):
        return tuple(Address.parse(text) for text in texts)
