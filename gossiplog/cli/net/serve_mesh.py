"""The options of `serve` that put a log into a mesh of servers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from ...errors import DecodeError, LocalProtocolError
from ...pubsub.params import MESH_PARAMS
from ..exits import ExitCode, Failure
from ..location import Location

if TYPE_CHECKING:
    import ssl

    from ...gossip_log import GossipLog
    from ...net.ground.admission import HubLimits
    from ...net.libp2p import Address
    from ...net.mesh import Mesh
    from ...pubsub.params import EpisubParams, GossipsubParams

__all__ = ["MeshOptions", "check_address", "mesh_options"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class MeshOptions:
    """What the command line says of the mesh; multiaddrs unread."""

    listen: tuple[str, ...]
    bootstrap: tuple[str, ...]
    announce: tuple[str, ...]
    key_file: str | None
    router: str
    target: int
    params_file: str | None = None
    dial_from: str | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether to take part in a mesh at all."""
        return bool(self.listen or self.bootstrap)

    def check(self) -> None:
        """Read everything that there is to read, and join nothing.

        Raises:
            Failure: As `join`, for what can be seen.
        """
        if self.is_wanted:
            for option, texts in (("--p2p", self.listen), ("--announce", self.announce), ("--bootstrap", self.bootstrap)):
                _read(option, texts)
        _read_params(self.router, self.params_file)

    async def join(self, stack: AsyncExitStack, log: GossipLog, path: str, limits: HubLimits, tls: ssl.SSLContext | None) -> Mesh:
        """Join the mesh of a log, for as long as the stack is open.

        Args:
            stack: Takes the mesh.
            log: The open log.
            path: Its file, or where else it is.
            limits: For hubs; those of the mesh are the same, but for the number of connections.
            tls: Checks the certificates of peers behind TLS.

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
            hint = "give one with --peer-key FILE; it is made if missing"
            raise Failure("a log that is not a file has no place for its peer's key", hint=hint, code=ExitCode.USAGE, kind="usage")
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
        return await stack.enter_async_context(open_mesh(log, key, config))


def mesh_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options; the command gets a `MeshOptions` named `mesh`."""

    @functools.wraps(command)
    def run(
        *args: Any,
        p2p: tuple[str, ...],
        bootstrap: tuple[str, ...],
        announce: tuple[str, ...],
        peer_key: str | None,
        router: str,
        peers: int,
        mesh_params: str | None,
        dial_from: str | None,
        **options: Any,
    ) -> R:
        return command(*args, mesh=MeshOptions(p2p, bootstrap, announce, peer_key, router, peers, mesh_params, dial_from), **options)

    options = (
        click.option("--p2p", metavar="MULTIADDR", multiple=True, help="Be a peer among servers, and listen here; repeatable."),
        click.option("--bootstrap", metavar="MULTIADDR", multiple=True, help="A peer to find the others through; repeatable."),
        click.option("--announce", metavar="MULTIADDR", multiple=True, help="Announce this address instead of our own; repeatable."),
        click.option("--peer-key", type=click.Path(dir_okay=False), help="Our key among peers; made if missing.  [default: LOG.peer.pem]"),
        click.option("--router", type=click.Choice(tuple(MESH_PARAMS)), default="gossipsub", show_default=True, help="How entries spread."),
        click.option("--peers", type=click.IntRange(min=1), default=16, show_default=True, metavar="N", help="Connections to keep."),
        click.option(
            "--mesh-params",
            type=click.Path(dir_okay=False),
            help="TOML with the router's parameters that differ from the defaults, peer scores included.",
        ),
        click.option(
            "--dial-from", metavar="ADDRESS", callback=check_address, help="Dial peers and hubs from this address of the machine."
        ),
        click.option(
            "--mesh-params-help",
            type=click.Choice(tuple(MESH_PARAMS)),
            is_eager=True,
            expose_value=False,
            callback=_print_params,
            help="Print a router's parameters with their defaults, as a file for --mesh-params.",
        ),
    )
    decorated: Callable[..., R] = run
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def check_address(context: click.Context, option: click.Parameter, value: Any) -> Any:
    """Take an IP address, or several, in the form that those of connections have."""
    if value is None:
        return None
    try:
        return str(ip_address(value)) if isinstance(value, str) else tuple(str(ip_address(one)) for one in value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _read_params(router: str, file: str | None) -> GossipsubParams | EpisubParams:
    from ...net.ground.toml_file import read_toml
    from ...pubsub.tables import overlaid

    if file is None:
        return MESH_PARAMS[router]
    try:
        params = overlaid(MESH_PARAMS[router], read_toml(file), "")
        if not params.is_validating:
            raise LocalProtocolError("is_validating: False, but a log validates what it passes on")
    except (OSError, ValueError, RecursionError, LocalProtocolError) as error:
        reason = getattr(error, "strerror", None) or error
        hint = f"`gossiplog serve --mesh-params-help {router}` prints every parameter with its default"
        raise Failure(f"--mesh-params {file}: {reason}", hint=hint, code=ExitCode.USAGE, kind="usage") from None
    return params


def _print_params(context: click.Context, option: click.Parameter, router: str | None) -> None:
    """Print the defaults as a file for `--mesh-params`, and end."""
    if router is None:
        return
    from ...pubsub.tables import as_toml

    click.echo(as_toml(MESH_PARAMS[router]), nl=False)
    context.exit()


def _read(option: str, texts: tuple[str, ...]) -> tuple[Address, ...]:
    from ...net.libp2p import Address

    try:
        return tuple(Address.parse(text) for text in texts)
    except DecodeError as error:
        hint = "such as /dns4/peer.example.com/tcp/4001/p2p/12D3Koo…, /ip4/203.0.113.7/tcp/4001/ws or /dns4/peer.example.com/tcp/443/wss"
        if option == "--p2p":
            hint = "such as /ip4/0.0.0.0/tcp/4001, or /ip4/0.0.0.0/tcp/4001/ws"
        raise Failure(f"{option}: {error}", hint=hint, code=ExitCode.USAGE, kind="usage") from None
