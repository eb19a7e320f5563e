"""The members of a test network: their kinds, addresses and command lines."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias

from ..entry.signing import Ed25519Signer
from ..errors import LocalProtocolError
from ..net.libp2p import PeerKey
from ..pubsub.params import MESH_PARAMS
from ..pubsub.tables import as_toml, overlaid
from ..sim.routing import topology
from ..sim.scenario import Scenario

TOPIC = "testnet.example.com"
MEMBERS_MAX = 200
_PORTS = range(20_000, 32_000)
"""Below the ports that the system assigns to outgoing connections."""

Kind: TypeAlias = Literal["server", "client", "browser", "liar"]


@dataclass
class Member:
    """One process of the network.

    Attributes:
        number: 0, 1, 2 …, as in a scenario.
        kind: A `server` is a peer of the mesh and a hub; a `client` is a WebSocket client of a hub; a `browser` is a page with the
            reference's client; a `liar` sends forged entries.
        dials: The numbers of the members that it dials at first; for a client or a browser, its hub alone.
        host: The address that it listens on and dials from.
        door: The address at which the others find it: the test network listens there, and relays.
        node: Its name in facts; for a server, its peer id.
        seed: The seed of the key that signs entries appended at it.
    """

    number: int
    kind: Kind
    dials: tuple[int, ...]
    host: str
    door: str
    http_port: int
    mesh_port: int
    name: str = field(init=False)
    node: str = field(init=False)
    is_up: bool = False
    root: str = ""
    entries: int = 0
    seed: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    signer: Ed25519Signer = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.name = self.node = f"{self.kind}-{self.number}"
        self.signer = Ed25519Signer.from_seed(self.seed)

    @property
    def api(self) -> tuple[str, int]:
        """Host and port of its HTTP API, which is reached without a link of the network."""
        return self.host, self.http_port

    @property
    def url(self) -> str:
        """The URL of its page; empty for members that serve nothing."""
        return "" if self.kind in ("browser", "liar") else f"http://{self.host}:{self.http_port}"


class Neighbourhood:
    """Loopback addresses that no other test network uses, drawn at random: for each member its own, and its door.

    Raises:
        LocalProtocolError: This system has no loopback address but 127.0.0.1.
    """

    def __init__(self) -> None:
        self._net = f"127.{secrets.randbelow(180) + 70}.{2 * secrets.randbelow(127)}"
        first, second, third = self._net.split(".")
        self._doors = f"{first}.{second}.{int(third) + 1}"
        self._ports = Random(secrets.randbits(64))
        try:
            self.free_port(self.host(0))
        except OSError:
            hint = "Linux has all of 127.0.0.0/8; elsewhere each address has to be added, such as by `ifconfig lo0 alias 127.70.0.1`"
            raise LocalProtocolError(
                "a test network needs addresses like 127.70.0.1, which this machine does not have", hint=hint
            ) from None

    def host(self, number: int) -> str:
        """Return the address that a member listens on and dials from."""
        return f"{self._net}.{number + 1}"

    def door(self, number: int) -> str:
        """Return the address at which the others find a member."""
        return f"{self._doors}.{number + 1}"

    def free_port(self, host: str) -> int:
        """Return a port on which nobody listens; raises OSError if this machine does not have the address."""
        for _ in range(50):
            port = self._ports.choice(_PORTS)
            with socket.socket() as probe:
                try:
                    probe.bind((host, port))
                except OSError as error:
                    refused = error
                    continue
                return port
        raise refused


def cast(scenario: Scenario, neighbourhood: Neighbourhood, seed: int) -> list[Member]:
    """Return the members of a scenario in the order of its numbers: servers first, then clients, then browsers.

    Raises:
        LocalProtocolError: There are more than `MEMBERS_MAX` members, or none is a server.
    """
    spec, nodes = scenario.topology, scenario.nodes
    browsers = scenario.testnet.browsers
    clients = scenario.testnet.clients if spec.kind != "hubs" else nodes - spec.hubs - browsers
    servers = nodes - clients - browsers
    if nodes > MEMBERS_MAX or servers < 1:
        raise LocalProtocolError(
            f"nodes: {nodes}, of them {clients} clients and {browsers} browsers, expected at most {MEMBERS_MAX}, and a server at least"
        )
    rng = Random(f"topology {seed}")
    dials: list[list[int]] = [[] for _ in range(servers)]
    for number, dialled in topology.links_of(scenario, servers, rng):
        dials[number].append(dialled)
    members = []
    for number in range(nodes):
        kind: Kind = "server" if number < servers else "client" if number < servers + clients else "browser"
        host = neighbourhood.host(number)
        whom = tuple(dials[number]) if number < servers else (rng.randrange(servers),)
        ports = (neighbourhood.free_port(host), neighbourhood.free_port(host))
        members.append(Member(number, kind, whom, host, neighbourhood.door(number), *ports))
    return members


def target(scenario: Scenario, servers: int) -> int:
    """Return how many connections a server keeps: about as many links as it has in the scenario."""
    spec = scenario.topology
    wanted = {"ring": 2, "star": 1, "random": 2 * spec.connect}.get(spec.kind, servers - 1)
    return max(1, min(wanted, servers - 1))


def server_arguments(member: Member, members: Sequence[Member], scenario: Scenario, folder: Path) -> list[str]:
    """Return the arguments of `gossiplog` for a server or a client."""
    arguments = ["serve", str(log_of(member, folder)), "--listen", f"{member.host}:{member.http_port}", "--dial-from", member.host]
    arguments += ["--durability", "normal", "--log-format", "json", "--dashboard"]
    if member.kind == "client":
        hub = members[member.dials[0]]
        return [*arguments, "--connect", f"ws://{hub.door}:{hub.http_port}"]
    arguments += ["--p2p", f"/ip4/{member.host}/tcp/{member.mesh_port}", "--announce", f"/ip4/{member.door}/tcp/{member.mesh_port}"]
    arguments += ["--router", scenario.router, "--peers", str(target(scenario, sum(other.kind == "server" for other in members)))]
    params = folder / "params.toml"
    if params.exists():
        arguments += ["--mesh-params", str(params)]
    for number in member.dials:
        arguments += ["--bootstrap", mesh_place(members[number])]
    return arguments


def log_of(member: Member, folder: Path) -> Path:
    """Return the file of a member's log."""
    return folder / f"{member.name}.db"


def mesh_place(member: Member) -> str:
    """Return the address of a server for peers of the mesh, at its door."""
    return f"/ip4/{member.door}/tcp/{member.mesh_port}/p2p/{member.node}"


def make_key(member: Member, folder: Path) -> None:
    """Make the key that gives a member its peer id."""
    member.node = PeerKey.load_or_create(Path(f"{log_of(member, folder)}.peer.pem")).id


def write_params(router: str, table: Mapping[str, Any], folder: Path) -> None:
    """Write the router's parameters to a file for `serve --mesh-params`; no file if the table has none.

    Raises:
        LocalProtocolError: `serve` does not run this router, or a parameter is unknown.
    """
    if router not in MESH_PARAMS:
        raise LocalProtocolError(f"router: {router!r}, expected one of {', '.join(MESH_PARAMS)}, which real peers run")
    own = {key: value for key, value in table.items() if key != "base"}
    if own:
        (folder / "params.toml").write_text(as_toml(overlaid(MESH_PARAMS[router], own, f"params.{router}")), "utf-8")
