"""Scenarios: descriptions of a simulation, as frozen values that check themselves, and their files in TOML.

A scenario names everything except the seed. Every key is optional except `name`. Files are read strictly: an unknown key, a wrong type or
a value out of range is an error that names the key. Each table of the file is a dataclass, field by field. In `[[fault]]` tables, `kind`
names the kind of fault.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, field, fields, is_dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

from ..pubsub.registry import router_names
from ..pubsub.tables import TableError, from_table

NODES_MAX = 100_000
MESSAGES_MAX = 1_000_000


class ScenarioError(TableError):
    """A scenario cannot be run; the message begins with the path of the wrong key."""


def need(holds: bool, key: str, value: object, rule: str) -> None:
    """Raise `ScenarioError` with the key, its value and the rule unless `holds`."""
    if not holds:
        raise ScenarioError(f"{key}: {value!r}, expected {rule}")


@dataclass(frozen=True, slots=True)
class TopologySpec:
    """Who dials whom at the start.

    Attributes:
        kind: `random` (each node dials `connect` others), `ring`, `star`, `hubs` (all hubs are linked, every other node dials
            one), `full`, or `file`.
        connect: For `random`: how many others each node dials.
        file: For `file`: a file with one link per line, two node numbers. The path is relative to the scenario's directory.
    """

    kind: str = "random"
    connect: int = 10
    hubs: int = 3
    file: str = ""

    def __post_init__(self) -> None:
        kinds = ("random", "ring", "star", "hubs", "full", "file")
        need(self.kind in kinds, "topology.kind", self.kind, f"one of {', '.join(kinds)}")
        need(self.connect >= 1, "topology.connect", self.connect, "≥ 1")
        need(self.hubs >= 1, "topology.hubs", self.hubs, "≥ 1")
        need(self.kind != "file" or self.file != "", "topology.file", self.file, "a path, with kind = 'file'")


@dataclass(frozen=True, slots=True)
class LatencySpec:
    """How long a message takes from one node to another, one way, in seconds.

    Attributes:
        kind: `uniform`, `heavy_tail` or `regional`.
        low_s: The smallest latency. The simulation looks ahead by this much, so it is at least 0.1 ms.
        high_s: For `uniform` the largest latency, for `heavy_tail` the point where the tail is cut.
        median_s: For `heavy_tail`: the median.
        shape: For `heavy_tail`: Pareto's alpha.
        matrix_s: For `regional`: a symmetric matrix of base latencies.
        weights: For `regional`: each region's share of the nodes.
        spread: For `regional`: a pair takes its base latency times U[1, 1 + spread].
    """

    kind: str = "uniform"
    low_s: float = 0.010
    high_s: float = 0.150
    median_s: float = 0.060
    shape: float = 1.5
    matrix_s: tuple[tuple[float, ...], ...] = ()
    weights: tuple[float, ...] = ()
    spread: float = 0.2

    def __post_init__(self) -> None:
        need(self.kind in ("uniform", "heavy_tail", "regional"), "latency.kind", self.kind, "uniform, heavy_tail or regional")
        need(self.low_s >= 1e-4, "latency.low_s", self.low_s, "≥ 0.0001")
        need(self.low_s <= self.high_s, "latency.high_s", self.high_s, "≥ latency.low_s")
        need(self.kind != "heavy_tail" or self.low_s < self.median_s <= self.high_s, "latency.median_s", self.median_s, "> low_s, ≤ high_s")
        need(self.shape > 0, "latency.shape", self.shape, "> 0")
        need(self.spread >= 0, "latency.spread", self.spread, "≥ 0")
        if self.kind == "regional":
            size = len(self.weights)
            need(size >= 1 and min(self.weights, default=0) > 0, "latency.weights", list(self.weights), "one positive number a region")
            is_square = len(self.matrix_s) == size and all(len(row) == size for row in self.matrix_s)
            need(is_square, "latency.matrix_s", self.matrix_s, f"{size} rows of {size} numbers")
            pairs = [(self.matrix_s[i][j], self.matrix_s[j][i]) for i in range(size) for j in range(size)]
            need(all(a == b >= 1e-4 for a, b in pairs), "latency.matrix_s", self.matrix_s, "symmetric, every number ≥ 0.0001")


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """The faults of links. The defaults are a perfect network.

    Attributes:
        jitter: A message takes its link's latency times U[1, 1 + jitter]; the order on a link is kept.
        loss: Probability that an RPC is lost.
        duplication: Probability that an RPC arrives twice.
        reordering: Probability that an RPC takes up to `reordering_s` longer, so that others may overtake it.
        reordering_s: The largest extra delay of a reordered RPC.
        bandwidth: The most bytes per second that a node sends over all its links together; 0: no limit.
        queue_max: The most RPCs that wait for one link. Further ones are dropped, and the router is told.
        detect_s: A silent peer (in a partition) is disconnected after this time. A crash is noticed after the link's latency.
    """

    jitter: float = 0.0
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    reordering_s: float = 0.5
    bandwidth: float = 0.0
    queue_max: int = 256
    detect_s: float = 10.0

    def __post_init__(self) -> None:
        for name in ("loss", "duplication", "reordering"):
            value = getattr(self, name)
            need(0 <= value < 1, f"link.{name}", value, "≥ 0 and < 1")
        for name in ("jitter", "reordering_s", "bandwidth", "detect_s"):
            value = getattr(self, name)
            need(value >= 0, f"link.{name}", value, "≥ 0")
        need(self.queue_max >= 1, "link.queue_max", self.queue_max, "≥ 1")


@dataclass(frozen=True, slots=True)
class PublishSpec:
    """The messages that are published, their sources and times.

    Attributes:
        sources: The number of nodes that publish, taking turns at random; 0: a new random node for each message.
        start_s: When the first message is published. Meshes form before that.
        linger_s: How long the run continues after the last message.
        validation_s: How long a node takes to validate a message; 0: no time.
    """

    messages: int = 100
    interval_s: float = 0.1
    bytes: int = 256
    sources: int = 0
    start_s: float = 5.0
    linger_s: float = 10.0
    validation_s: float = 0.0

    def __post_init__(self) -> None:
        need(1 <= self.messages <= MESSAGES_MAX, "publish.messages", self.messages, f"1 to {MESSAGES_MAX}")
        need(self.interval_s > 0, "publish.interval_s", self.interval_s, "> 0")
        need(1 <= self.bytes <= 1_048_576, "publish.bytes", self.bytes, "1 to 1048576")
        need(self.sources >= 0, "publish.sources", self.sources, "≥ 0")
        for name in ("start_s", "linger_s", "validation_s"):
            value = getattr(self, name)
            need(value >= 0, f"publish.{name}", value, "≥ 0")


@dataclass(frozen=True, slots=True)
class Kill:
    """Crash a share of the nodes at once.

    Attributes:
        share: The share of honest nodes that crash, chosen at random.
        restart_after_s: They restart after this time, with nothing in memory; 0: never.
        numbers: Crash these nodes instead of a share.
    """

    at_s: float = 10.0
    share: float = 0.3
    restart_after_s: float = 0.0
    numbers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        need(self.at_s >= 0, "fault.at_s", self.at_s, "≥ 0")
        need(0 < self.share < 1, "fault.share", self.share, "between 0 and 1")
        need(self.restart_after_s >= 0, "fault.restart_after_s", self.restart_after_s, "≥ 0")


@dataclass(frozen=True, slots=True)
class Partition:
    """Cut the network into two parts for a while.

    Attributes:
        heal_s: When it ends. Links lost to it are dialled again within a second.
        share: The share of nodes on one of the two sides.
    """

    at_s: float = 10.0
    heal_s: float = 20.0
    share: float = 0.5
    numbers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        need(self.at_s >= 0, "fault.at_s", self.at_s, "≥ 0")
        need(self.heal_s > self.at_s, "fault.heal_s", self.heal_s, "> at_s")
        need(0 < self.share < 1, "fault.share", self.share, "between 0 and 1")


@dataclass(frozen=True, slots=True)
class Churn:
    """Crash random nodes one after the other; each comes back.

    Attributes:
        rate_per_s: Crashes per second on average (a Poisson process).
    """

    at_s: float = 5.0
    until_s: float = 20.0
    rate_per_s: float = 1.0
    downtime_s: float = 5.0

    def __post_init__(self) -> None:
        need(self.at_s >= 0, "fault.at_s", self.at_s, "≥ 0")
        need(self.until_s > self.at_s, "fault.until_s", self.until_s, "> at_s")
        need(self.rate_per_s > 0, "fault.rate_per_s", self.rate_per_s, "> 0")
        need(self.downtime_s > 0, "fault.downtime_s", self.downtime_s, "> 0")


@dataclass(frozen=True, slots=True)
class Slow:
    """Limit the bandwidth of some nodes in both directions.

    Attributes:
        bandwidth: Bytes per second of each of their links, in each direction.
        numbers: Slow these nodes down instead of random ones.
    """

    at_s: float = 0.0
    until_s: float = 1e9
    nodes: int = 1
    bandwidth: float = 2_000.0
    numbers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        need(self.at_s >= 0, "fault.at_s", self.at_s, "≥ 0")
        need(self.until_s > self.at_s, "fault.until_s", self.until_s, "> at_s")
        need(self.nodes >= 1, "fault.nodes", self.nodes, "≥ 1")
        need(self.bandwidth > 0, "fault.bandwidth", self.bandwidth, "> 0")


@dataclass(frozen=True, slots=True)
class Offline:
    """Take the first fixed source off the network for a while. The node keeps publishing, and keeps its memory."""

    at_s: float = 10.0
    return_s: float = 12.0

    def __post_init__(self) -> None:
        need(self.at_s >= 0, "fault.at_s", self.at_s, "≥ 0")
        need(self.return_s > self.at_s, "fault.return_s", self.return_s, "> at_s")


@dataclass(frozen=True, slots=True)
class Liar:
    """An additional peer that sends forged entries to every peer. Only for real processes: the simulator's messages are not signed."""

    at_s: float = 5.0
    interval_s: float = 0.5

    def __post_init__(self) -> None:
        need(self.at_s >= 0, "fault.at_s", self.at_s, "≥ 0")
        need(self.interval_s > 0, "fault.interval_s", self.interval_s, "> 0")


Fault: TypeAlias = Kill | Partition | Churn | Slow | Offline | Liar
"""The `kind` of one is the name of its class in lower case."""


@dataclass(frozen=True, slots=True)
class CastSpec:
    """Kinds of nodes that `gossiplog testnet` starts. In the simulator all nodes are of one kind.

    Attributes:
        clients: The number of nodes that are WebSocket clients of a server's hub instead of peers in the mesh. With the topology `hubs`,
            all nodes are clients except hubs and browsers.
        browsers: The number of nodes that are pages in Chromium with the reference's client.
    """

    clients: int = 0
    browsers: int = 0

    def __post_init__(self) -> None:
        need(self.clients >= 0, "testnet.clients", self.clients, "≥ 0")
        need(self.browsers >= 0, "testnet.browsers", self.browsers, "≥ 0")


@dataclass(frozen=True, slots=True)
class Attack:
    """Malicious nodes besides the honest ones. They speak the protocol and keep their mesh links, but drop messages.

    Attributes:
        nodes: The number of malicious nodes; 0: no attack.
        connect: The number of honest nodes that each of them dials.
        join_s: When they dial; 0: at the start, like all nodes (cold boot).
        attack_s: When they begin to misbehave. Before, they act honestly (covert flash).
        drop: The share of messages that they do not forward and of requests that they do not answer.
        graft: From `attack_s` on, they graft every peer at every heartbeat (squatters).
        victims: The number of honest nodes that they all dial, and no others (eclipse); 0: they dial any.
    """

    nodes: int = 0
    connect: int = 20
    join_s: float = 0.0
    attack_s: float = 0.0
    drop: float = 1.0
    graft: bool = True
    victims: int = 0
    addresses: int = 10

    def __post_init__(self) -> None:
        for name in ("nodes", "join_s", "attack_s", "victims"):
            value = getattr(self, name)
            need(value >= 0, f"attack.{name}", value, "≥ 0")
        need(self.connect >= 1, "attack.connect", self.connect, "≥ 1")
        need(0 <= self.drop <= 1, "attack.drop", self.drop, "0 to 1")
        need(self.addresses >= 1, "attack.addresses", self.addresses, "≥ 1")


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything about a simulation except its seed.

    Attributes:
        start_spread_s: Nodes start at uniform times within this many seconds.
        clock_drift: Each node's clock runs faster or slower by up to this share.
        params: For each router a table of its parameters, by their names in `gossiplog.pubsub`. `score` is a table within it.
        testnet: The nodes that are not servers when the scenario runs with real processes.
        directory: The directory for files that it names; not a key.
    """

    name: str
    about: str = ""
    router: str = "gossipsub"
    nodes: int = 100
    start_spread_s: float = 1.0
    clock_drift: float = 0.0
    topology: TopologySpec = field(default_factory=TopologySpec)
    latency: LatencySpec = field(default_factory=LatencySpec)
    link: LinkSpec = field(default_factory=LinkSpec)
    publish: PublishSpec = field(default_factory=PublishSpec)
    attack: Attack = field(default_factory=Attack)
    fault: tuple[Fault, ...] = ()
    params: dict[str, dict[str, Any]] = field(default_factory=dict)
    testnet: CastSpec = field(default_factory=CastSpec)
    directory: Path = field(default_factory=Path, compare=False)

    def __post_init__(self) -> None:
        need(self.name != "" and len(self.name) <= 64, "name", self.name, "1 to 64 characters")
        known = router_names()
        need(self.router in known, "router", self.router, f"one of {', '.join(known)}")
        need(2 <= self.nodes <= NODES_MAX, "nodes", self.nodes, f"2 to {NODES_MAX}")
        need(0 <= self.start_spread_s <= self.publish.start_s, "start_spread_s", self.start_spread_s, "0 to publish.start_s")
        need(0 <= self.clock_drift <= 0.1, "clock_drift", self.clock_drift, "0 to 0.1")
        need(self.publish.sources <= self.nodes, "publish.sources", self.publish.sources, f"≤ nodes ({self.nodes})")
        need(self.attack.victims <= self.nodes, "attack.victims", self.attack.victims, f"≤ nodes ({self.nodes})")
        for fault in self.fault:
            wrong = [number for number in getattr(fault, "numbers", ()) if not 0 <= number < self.nodes]
            need(not wrong, "fault.numbers", wrong[:1], f"numbers of nodes, 0 to {self.nodes - 1}")
        for router in self.params:
            need(router in known, f"params.{router}", router, f"one of {', '.join(known)}")

    @property
    def end_s(self) -> float:
        """Return when the run ends, in virtual seconds."""
        return self.publish.start_s + self.publish.messages * self.publish.interval_s + self.publish.linger_s


# Files


def ready_scenarios() -> dict[str, str]:
    """Return the scenarios that ship with the package: name to `about`."""
    found = {}
    for entry in sorted(resources.files(__package__).joinpath("data/scenarios").iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".toml"):
            found[entry.name[: -len(".toml")]] = str(tomllib.loads(entry.read_text("utf-8")).get("about", ""))
    return found


def load_scenario(name: str) -> Scenario:
    """Read a scenario from a file, or one of `ready_scenarios` by its name.

    Raises:
        ScenarioError: There is no such file, it is not TOML, or a key is wrong. The message names file and key.
    """
    path = Path(name)
    if path.suffix != ".toml" and not path.exists():
        ready = resources.files(__package__).joinpath(f"data/scenarios/{path.name}.toml")
        if path.name != name or not ready.is_file():
            near = difflib.get_close_matches(name, ready_scenarios(), 1)
            hint = f"did you mean {near[0]}?" if near else "run `gossiplog sim scenarios` for those that ship with the package"
            raise ScenarioError(f"no scenario {name!r}", hint=hint)
        return parse_scenario(ready.read_text("utf-8"), name)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{name}: {getattr(error, 'strerror', None) or error}") from error
    return replace(parse_scenario(text, name), directory=path.parent)


def parse_scenario(text: str, origin: str = "scenario") -> Scenario:
    """Read a scenario from TOML text.

    Raises:
        ScenarioError: The text is not TOML, or a key is wrong. The message begins with `origin`.
    """
    try:
        return from_table(Scenario, tomllib.loads(text), "")
    except (tomllib.TOMLDecodeError, TableError, RecursionError) as error:
        raise ScenarioError(f"{origin}: {error}") from error


def set_key(scenario: Scenario, key: str, value: Any) -> Scenario:
    """Return the scenario with one key, such as `publish.interval_s` or `params.gossipsub.D`, set to another value."""
    table = _dump(scenario)
    *path, last = key.split(".")
    inner = table
    for step in path:
        inner = inner.setdefault(step, {})
        need(isinstance(inner, dict), key, value, "a path through tables")
    inner[last] = value
    try:
        return replace(from_table(Scenario, table, ""), directory=scenario.directory)
    except TableError as error:
        raise ScenarioError(str(error)) from None


def _dump(value: Any) -> Any:
    """Turn dataclasses back into the tables that `from_table` reads."""
    if is_dataclass(value) and not isinstance(value, type):
        table = {row.name: _dump(getattr(value, row.name)) for row in fields(value) if row.name != "directory"}
        return {"kind": type(value).__name__.lower(), **table} if isinstance(value, Fault) else table
    if isinstance(value, tuple):
        return [_dump(item) for item in value]
    if isinstance(value, dict):
        return {key: _dump(item) for key, item in value.items()}
    return value
