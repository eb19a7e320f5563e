"""Plays a scenario file of the simulator on real processes, in real time.

Keys that only the simulator supports are refused before anything starts: `attack`, `link.duplication` and `link.reordering` (TCP neither
doubles nor overtakes), `link.queue_max`, `publish.validation_s`, `clock_drift`. The simulator in turn refuses the fault `liar`.
"""

from __future__ import annotations

from random import Random
from typing import assert_never

import trio

from ..errors import CannotConnect, LocalProtocolError
from ..sim.scenario import Attack, Churn, Fault, Kill, Liar, LinkSpec, Offline, Partition, Scenario, Slow
from .members import Member
from .processes import StartFailed
from .testnet import Testnet

_SETTLE_S = 120.0
_LOOK_S = 0.25


def check_scenario(scenario: Scenario) -> None:
    """Check that real processes can play a scenario.

    Raises:
        LocalProtocolError: They cannot; the message names the key.
    """
    plain = LinkSpec()
    simulated = {
        "attack": scenario.attack != Attack(),
        "clock_drift": scenario.clock_drift != 0,
        "link.duplication": scenario.link.duplication != plain.duplication,
        "link.reordering": scenario.link.reordering != plain.reordering,
        "link.queue_max": scenario.link.queue_max != plain.queue_max,
        "publish.validation_s": scenario.publish.validation_s != 0,
    }
    for key, is_wanted in simulated.items():
        if is_wanted:
            raise LocalProtocolError(f"{key}: only the simulator can do this", hint="run it with `gossiplog sim run`, or leave the key out")


async def play(testnet: Testnet) -> None:
    """Play the scenario's publishes and faults; returns at the scenario's end."""
    scenario = testnet.scenario
    async with trio.open_nursery() as nursery:
        player = _Player(testnet, nursery)
        for fault in scenario.fault:
            nursery.start_soon(player.do, fault)
        await player.publish()
        await player.sleep_until(scenario.end_s)
        nursery.cancel_scope.cancel()


async def settle(testnet: Testnet) -> bool:
    """Wait until the logs of all members that are up are equal, at most two minutes; return whether they are."""
    with trio.move_on_after(_SETTLE_S):
        while not testnet.is_converged():
            await trio.sleep(_LOOK_S)
    return testnet.is_converged()


class _Player:
    """Plays one scenario once."""

    def __init__(self, testnet: Testnet, nursery: trio.Nursery) -> None:
        self._testnet = testnet
        self._nursery = nursery
        self._rng = Random(f"script {testnet.seed}")
        self._begun = trio.current_time()
        self._sources = self._rng.sample(testnet.members, testnet.scenario.publish.sources)

    async def sleep_until(self, at_s: float) -> None:
        await trio.sleep_until(self._begun + at_s)

    async def publish(self) -> None:
        """Publish all messages, each in a task of its own, so that a slow answer delays no other message."""
        spec = self._testnet.scenario.publish
        for index in range(spec.messages):
            await self.sleep_until(spec.start_s + index * spec.interval_s)
            up = [member for member in self._sources or self._testnet.members if member.is_up and member.kind != "liar"]
            if up:
                self._nursery.start_soon(self._append, self._rng.choice(up), index, "x" * spec.bytes)

    async def do(self, fault: Fault) -> None:
        """Cause one fault at its time, and end it."""
        testnet = self._testnet
        await self.sleep_until(fault.at_s)
        match fault:
            case Kill():
                chosen = self._choose(fault.numbers, round(fault.share * testnet.scenario.nodes))
                for member in chosen:
                    await testnet.kill(member)
                if fault.restart_after_s:
                    await self.sleep_until(fault.at_s + fault.restart_after_s)
                    await self._restart(chosen)
            case Partition():
                testnet.partition(self._choose(fault.numbers, round(fault.share * testnet.scenario.nodes)), testnet.scenario.link.detect_s)
                await self.sleep_until(fault.heal_s)
                testnet.heal_all()
            case Churn():
                await self._churn(fault)
            case Slow():
                chosen = self._choose(fault.numbers, fault.nodes)
                for member in chosen:
                    testnet.slow(member, fault.bandwidth)
                await self.sleep_until(fault.until_s)
                for member in chosen:
                    testnet.slow(member, 0)
            case Offline():
                # The first source goes on publishing.
                testnet.partition([(self._sources or testnet.members)[0]])
                await self.sleep_until(fault.return_s)
                testnet.heal_all()
            case Liar():
                await testnet.invite_liar(fault.interval_s)
            case _:
                assert_never(fault)

    async def _append(self, member: Member, index: int, text: str) -> None:
        try:
            await self._testnet.append(member, {"n": index, "text": text})
        except CannotConnect:
            # The member was killed at this moment.
            await trio.lowlevel.checkpoint()

    async def _churn(self, fault: Churn) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                for member in self._choose((), 1):
                    await self._testnet.kill(member)
                    nursery.start_soon(self._return_later, member, fault.downtime_s)
                await trio.sleep(self._rng.expovariate(fault.rate_per_s))
                if trio.current_time() - self._begun >= fault.until_s:
                    return

    async def _return_later(self, member: Member, downtime_s: float) -> None:
        await trio.sleep(downtime_s)
        await self._restart([member])

    async def _restart(self, members: list[Member]) -> None:
        for member in members:
            try:
                await self._testnet.restart(member)
            except StartFailed as error:
                self._testnet.note("failed", member, str(error))

    def _choose(self, numbers: tuple[int, ...], count: int) -> list[Member]:
        """Return the numbered members; if none is numbered, `count` random ones that are up and no sources."""
        testnet = self._testnet
        if numbers:
            return [testnet.members[number] for number in numbers]
        up = [member for member in testnet.members if member.is_up and member.kind != "liar" and member not in self._sources]
        return self._rng.sample(up, min(count, len(up)))
