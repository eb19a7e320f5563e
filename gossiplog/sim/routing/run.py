"""Runs a scenario: builds the network, runs it, and sums it up."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...errors import LocalProtocolError
from ...pubsub.params import MESH_PARAMS
from ...pubsub.registry import default_params, make_router
from ...pubsub.router import Router, RouterState
from ...pubsub.tables import overlaid
from ..link import Latency
from ..measure.metrics import Metrics, RunResult
from ..measure.report import as_row
from ..measure.trace import Sink
from ..scenario import Scenario, ScenarioError
from . import topology
from .attack import Malicious, attack_links
from .faults import Script
from .network import TOPIC, Handle, Network, SimNode

Factory = Callable[[random.Random], Router]


def router_factory(name: str, table: Mapping[str, Any], *, is_validating: bool) -> Factory:
    """Return a function that makes one router from a random generator.

    Args:
        name: One of `router_names`.
        table: Parameters by name. A parameter left out has the router's default or, with `base = "mesh"`, the value that
            `gossiplog serve` uses.
        is_validating: Whether messages are validated; overrides the table.

    Raises:
        ScenarioError: A parameter is unknown, of the wrong type, or breaks the router's own rules.
    """
    base = default_params(name)
    if "base" in table:
        table = dict(table)
        chosen = table.pop("base")
        if chosen != "mesh" or name not in MESH_PARAMS:
            raise ScenarioError(f'params.{name}.base: {chosen!r}, expected "mesh", which is for {" and ".join(MESH_PARAMS)}')
        base = MESH_PARAMS[name]
    try:
        params = overlaid(base, {**table, "is_validating": is_validating}, f"params.{name}")
    except LocalProtocolError as error:
        raise ScenarioError(str(error)) from error
    return partial(make_router, name, params)


class ScenarioRun:
    """One run of a scenario, built and ready to start.

    Args:
        sinks: Where the trace goes; empty for no trace.

    Raises:
        ScenarioError: The scenario's parameters do not fit its router, or its files cannot be read.
    """

    def __init__(self, scenario: Scenario, seed: int, sinks: Sequence[Sink] = ()) -> None:
        self.scenario, self.seed = scenario, seed
        honest, attack = scenario.nodes, scenario.attack
        total = honest + attack.nodes
        self._degrees: list[int] = []
        self.metrics = Metrics(total, honest, sinks)
        make = router_factory(
            scenario.router,
            scenario.params.get(scenario.router, {}),
            is_validating=scenario.publish.validation_s > 0,
        )

        def handle_of(number: int, router: Router) -> Handle:
            if number < honest:
                return router.handle
            return Malicious(router.handle, TOPIC, attack, random.Random(f"malice {seed} {number}")).handle

        rng = random.Random(f"topology {seed}")
        links = topology.links_of(scenario, scenario.nodes, rng)
        bad_links = attack_links(honest, attack, rng)
        nodes = [SimNode(number, _address(number, honest, attack.addresses)) for number in range(total)]
        for node in nodes:
            if scenario.clock_drift:
                node.rate = 1.0 + scenario.clock_drift * (2 * rng.random() - 1)
                node.offset_s = 1000.0 * rng.random()
        latency = Latency(seed, scenario.latency)
        self.network = Network(nodes, make, latency, scenario.link, self.metrics, seed, scenario.publish.validation_s, handle_of)
        starts = [scenario.start_spread_s * rng.random() for _ in range(honest)]
        starts.extend(attack.join_s + scenario.start_spread_s * rng.random() for _ in range(attack.nodes))
        script = Script(self.network, honest, links + bad_links, random.Random(f"script {seed}"))
        script.start_all(starts)
        script.publish_all(scenario.publish)
        for fault in scenario.fault:
            script.add(fault)

        last_s = scenario.publish.start_s + (scenario.publish.messages - 1) * scenario.publish.interval_s
        self.network.at(last_s, self._count_degrees)

    def _count_degrees(self) -> None:
        up = (node.router for node in self.network.nodes[: self.scenario.nodes])
        self._degrees = [_degree(router.state()) for router in up if router is not None]

    def work(self, progress: Callable[[float, int], None] | None = None) -> None:
        """Run to the scenario's end. A KeyboardInterrupt passes through; `result` then sums up the part that has run.

        Args:
            progress: Called now and then with virtual seconds and the number of events processed.
        """
        self.network.run(self.scenario.end_s, progress)

    def result(self) -> RunResult:
        """Sum up the run so far, and close the trace."""
        self.metrics.close()
        if not self._degrees:
            self._count_degrees()
        return RunResult(
            self.scenario, self.seed, self.metrics.summary(), self.metrics, self._degrees, self.network.events, self.network.now
        )


def run_scenario(scenario: Scenario, seed: int, router: str | None = None, sinks: Sequence[Sink] = ()) -> RunResult:
    """Run a scenario to its end.

    Args:
        router: A router to use in place of the scenario's.
    """
    run = ScenarioRun(replace(scenario, router=router) if router else scenario, seed, sinks)
    run.work()
    return run.result()


def run_row(task: tuple[Scenario, int]) -> dict[str, Any]:
    """Run one scenario with one seed and return its row. This is one task of a process pool."""
    scenario, seed = task
    return as_row(run_scenario(scenario, seed))


def _address(number: int, honest: int, addresses: int) -> str:
    """Return a node's IP address: each honest node has its own, malicious nodes share a few."""
    if number >= honest:
        return f"172.16.{(number - honest) % addresses >> 8}.{(number - honest) % addresses & 255}"
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def _degree(state: RouterState) -> int:
    return sum(len(topic.full_message) for topic in state.topics)
