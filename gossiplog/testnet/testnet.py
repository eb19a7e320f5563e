"""The test network: starts the processes, relays all connections between them, and acts on both."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import trio

from ..archive.jsonl import entry_to_line
from ..codec import pcf
from ..entry.message_id import decode_id
from ..entry.rules import next_clock
from ..entry.signing import sign_entry
from ..errors import CannotConnect, LocalProtocolError
from ..glass import Fact
from ..gossip_log import open as open_log
from ..sim.link import Latency
from ..sim.scenario import Scenario
from ..tasks.nursery import open_service_nursery
from .asking import ask, ask_json
from .browsers import Browsers, open_browsers
from .links import Conditions, Links
from .measure import Measure
from .members import MEMBERS_MAX, TOPIC, Member, Neighbourhood, cast, log_of, make_key, mesh_place, server_arguments, write_params
from .processes import Processes, StartFailed, open_processes
from .watching import Watching

_READY_S = 240.0
_POLL_S = 0.05
_WATCH_S = 0.5
_LIE_S = 0.5
_AT_ONCE = 4
"""The most processes that start at the same time; with more, each takes longer."""


@dataclass
class Testnet:
    """Made by `open_testnet`.

    Attributes:
        scenario: Describes members and links. Its faults and publishes are carried out by `script.play`.
        members: In the order of their numbers; liars, which are added later, come last.
        neighbourhood: The source of addresses for members that are added later.
        browsers: Starts the members that are browsers; None if there are none.
        origin_s: Unix time at which all members were up.
    """

    scenario: Scenario
    seed: int
    folder: Path
    members: list[Member]
    links: Links
    processes: Processes
    neighbourhood: Neighbourhood
    watching: Watching
    browsers: Browsers | None
    tell: Callable[[dict[str, Any]], None]
    origin_s: float = field(default_factory=time.time)
    appended: int = 0

    def member(self, name: str | int) -> Member:
        """Find a member by its number, its name, or its id in facts.

        Raises:
            LocalProtocolError: No member has it.
        """
        found = next((member for member in self.members if str(name) in (str(member.number), member.name, member.node)), None)
        if found is None:
            raise LocalProtocolError(f"no peer {str(name)[:80]!r}", hint=f"numbers from 0 to {len(self.members) - 1}")
        return found

    def is_converged(self) -> bool:
        """Whether the logs of all members that are up are equal."""
        return len({member.root for member in self.members if member.is_up and member.kind != "liar"}) == 1

    # Starting

    async def start(self, progress: Callable[[int, int], None]) -> None:
        """Start all members; returns when all of them answer.

        Raises:
            StartFailed: The process of a member has ended.
        """
        limit, done = trio.CapacityLimiter(_AT_ONCE), 0

        async def start_one(member: Member) -> None:
            nonlocal done
            async with limit:
                await self.launch(member)
            done += 1
            progress(done, len(self.members))

        # A starting browser occupies a core for seconds, and needs its hub to be up.
        browsers = [member for member in self.members if member.kind == "browser"]
        async with trio.open_nursery() as nursery:
            for member in self.members:
                if member not in browsers:
                    nursery.start_soon(start_one, member)
        for member in browsers:
            await start_one(member)
        self.origin_s = time.time()

    async def invite_liar(self, interval_s: float = _LIE_S) -> Member:
        """Add a peer that gossips a forged entry to each server at this interval."""
        number = len(self.members)
        if number >= MEMBERS_MAX:
            raise LocalProtocolError(f"{number} peers, expected fewer than {MEMBERS_MAX}")
        host, servers = self.neighbourhood.host(number), [member for member in self.members if member.kind == "server"]
        liar = Member(number, "liar", tuple(member.number for member in servers), host, self.neighbourhood.door(number), 0, 0)
        make_key(liar, self.folder)
        self.members.append(liar)
        await self._launch_liar(liar, interval_s)
        self.watching.name(liar)
        self._say("liar", nodes=[liar])
        return liar

    async def _launch_liar(self, liar: Member, interval_s: float) -> None:
        places = [mesh_place(self.members[number]) for number in liar.dials]
        key = f"{log_of(liar, self.folder)}.peer.pem"
        arguments = [key, liar.host, str(interval_s), *places]
        await self.processes.start(liar.name, module="gossiplog.testnet.liar", arguments=arguments)
        liar.is_up = True

    async def launch(self, member: Member) -> None:
        """Start the process of a member, and wait until it answers.

        Raises:
            StartFailed: The process has ended, or does not answer within four minutes.
        """
        if member.kind == "liar":
            await self._launch_liar(member, _LIE_S)
            return
        if member.kind == "browser":
            assert self.browsers is not None
            hub = self.members[member.dials[0]]
            command = self.browsers.command(member, hub, f"ws://{hub.door}:{member.http_port}")
            await self.processes.start(member.name, command=command)
        else:
            arguments = server_arguments(member, self.members, self.scenario, self.folder)
            await self.processes.start(member.name, module="gossiplog", arguments=arguments)
        with trio.move_on_after(_READY_S):
            await self._wait_ready(member)
            member.is_up = True
            return
        raise StartFailed(f"{member.name} does not answer", hint=self.processes.last_words(member.name)[:500] or None)

    async def _wait_ready(self, member: Member) -> None:
        if self.browsers is not None and member.kind == "browser":
            await self.browsers.wait_ready(member)
            return
        while member.name in self.processes.pids:
            with suppress(CannotConnect):
                await self.look(member)
                return
            await trio.sleep(_POLL_S)
        status = self.processes.statuses.get(member.name)
        raise StartFailed(f"{member.name} has ended with {status}", hint=self.processes.last_words(member.name)[:500] or None)

    async def watch(self) -> None:
        """Notice members whose processes have ended. Runs until it is cancelled."""
        while True:
            for member in self.members:
                if member.is_up and member.name not in self.processes.pids:
                    member.is_up = False
                    self.note("ended", member, self.processes.last_words(member.name)[:300])
            await trio.sleep(_WATCH_S)

    async def look(self, member: Member) -> None:
        """Ask a server or a client for its root and its number of entries; raises `CannotConnect` if it does not answer."""
        member.root = (await ask_json(member.api, "/api/root"))["hash"]
        member.entries = int((await ask_json(member.api, "/api/messages/count"))["count"])

    def note(self, what: str, member: Member, reason: str) -> None:
        """Report an event that was not asked for."""
        self._say(what, nodes=[member], reason=reason)

    # Actions

    async def append(self, member: Member, payload: Any = None) -> str:
        """Append at a member, and return the entry's id.

        Args:
            payload: None for one that names the member and counts the appends.

        Raises:
            CannotConnect: The member does not answer.
        """
        self.appended += 1
        payload = {"by": member.name, "n": self.appended} if payload is None else payload
        if member.kind == "liar":
            raise LocalProtocolError(f"{member.name} cannot append: it only sends forged entries")
        if member.kind == "browser":
            assert self.browsers is not None
            id = await self.browsers.append(member, payload)
        else:
            id = await self._post(member, payload)
        self._say("append", nodes=[member], entry=id)
        return id

    async def _post(self, member: Member, payload: Any) -> str:
        clock = await ask_json(member.api, "/api/clock")
        parents = sorted(decode_id(id) for id in clock["parents"])
        entry = sign_entry(member.signer, TOPIC, next_clock(parents), parents, pcf.encode(payload))
        await ask(member.api, "/api/messages", entry_to_line(entry))
        return entry.id

    def cut(self, a: Member, b: Member) -> None:
        """Cut the link between two members."""
        self.links.cut(a.number, b.number)
        self._say("cut", nodes=[a, b])

    def heal(self, a: Member, b: Member) -> None:
        """Heal the link between two members."""
        self.links.heal(a.number, b.number)
        self._say("heal", nodes=[a, b])

    def heal_all(self) -> None:
        """Heal all links that are cut."""
        for a, b in self.links.cut_pairs:
            self.links.heal(a, b)
        self._say("heal", nodes=[])

    def partition(self, side: Iterable[Member], silent_s: float = 0.0) -> None:
        """Cut all links between some members and all others.

        Args:
            silent_s: How long the two ends do not notice; see `Links.cut`.
        """
        inside = {member.number for member in side}
        for number in sorted(inside):
            for other in self.members:
                if other.number not in inside:
                    self.links.cut(number, other.number, silent_s)
        self._say("partition", nodes=[self.members[number] for number in sorted(inside)])

    def slow(self, member: Member, bandwidth: float) -> None:
        """Limit each link of a member to this many bytes per second in each direction; 0: no limit."""
        for other in self.members:
            if other is not member:
                self.links.between(member.number, other.number).limit(bandwidth)
        self._say("slow" if bandwidth else "slow ends", nodes=[member], bandwidth=bandwidth)

    def lose(self, loss: float) -> None:
        """Have all links lose this share of the segments sent from now on."""
        if not 0 <= loss < 1:
            raise LocalProtocolError(f"loss: {loss!r}, expected ≥ 0 and < 1")
        self.links.conditions.loss = loss
        self._say("loss", nodes=[], loss=loss)

    async def kill(self, member: Member) -> None:
        """Kill a member's process."""
        member.is_up = False
        await self.processes.kill(member.name)
        self._say("kill", nodes=[member])

    async def restart(self, member: Member) -> None:
        """Start a member's process again, on its log. Does nothing if it runs.

        Raises:
            StartFailed: The process does not start.
        """
        if member.name in self.processes.pids:
            return
        await self.launch(member)
        self._say("restart", nodes=[member])

    def groups(self) -> list[int]:
        """Return for each member the number of the part that it is in, of those into which cuts divide the network."""
        cut = set(self.links.cut_pairs)
        parts = {member.number: member.number for member in self.members}

        def part_of(number: int) -> int:
            while parts[number] != number:
                number = parts[number]
            return number

        for a in self.members:
            others = self.members if a.kind == "server" else [self.members[number] for number in a.dials]
            for b in others:
                is_linked = b.kind == "server" and a.is_up and b.is_up and (min(a.number, b.number), max(a.number, b.number)) not in cut
                if a is not b and is_linked:
                    parts[part_of(a.number)] = part_of(b.number)
        numbers: dict[int, int] = {}
        return [numbers.setdefault(part_of(member.number), len(numbers)) for member in self.members]

    def _say(self, action: str, *, nodes: Sequence[Member], **more: Any) -> None:
        now, names = time.time(), [member.name for member in nodes]
        whom = nodes[0].node if len(nodes) == 1 else "testnet"
        reason = ", ".join(names)[:300] or None
        self.watching.add(Fact(TOPIC, self.scenario.router, 0, now, "fault", whom, type=action, message=more.get("entry"), reason=reason))
        self.tell({"time_s": round(now - self.origin_s, 3), "action": action, "nodes": names, **more})


@asynccontextmanager
async def open_testnet(
    scenario: Scenario,
    folder: Path,
    *,
    seed: int = 0,
    is_kept: bool = False,
    facts_file: Path | None = None,
    references: Sequence[Path] = (),
    tell: Callable[[dict[str, Any]], None] = lambda record: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> AsyncIterator[Testnet]:
    """Run a test network for the length of a block.

    Args:
        folder: Holds logs, keys and the output of each process. Unless `is_kept`, it is removed at the end.
        facts_file: Where all facts are written, one JSON object per line.
        references: Folders in which npm has installed the packages that browsers need.
        tell: Called with a record of each action.
        progress: Called while members start, with the number that are up and the number of all.

    Raises:
        LocalProtocolError: The scenario has a router, a parameter or a number of nodes that real processes cannot have here.
        StartFailed: A process does not start.
    """
    neighbourhood = Neighbourhood()
    members = cast(scenario, neighbourhood, seed)
    write_params(scenario.router, scenario.params.get(scenario.router, {}), folder)
    for member in members:
        if member.kind == "server":
            make_key(member, folder)
        if member.kind in ("server", "client"):
            async with open_log(log_of(member, folder), topic=TOPIC):
                pass
    between = lru_cache(maxsize=None)(Latency(seed, scenario.latency).between)
    spec = scenario.link
    conditions = Conditions(between, spec.jitter, spec.loss, spec.bandwidth)
    watching = Watching(facts_file, Measure())
    async with AsyncExitStack() as stack:
        stack.callback(watching.close)
        has_browsers = any(member.kind == "browser" for member in members)
        # Chromium makes sockets in its temporary folder, and the path of a socket has at most 108 bytes.
        scratch = [Path(tempfile.mkdtemp(prefix="gossiplog-pages-"))] if has_browsers else []
        for place in scratch:
            stack.callback(shutil.rmtree, place, ignore_errors=True)
        opening = open_browsers(folder, scratch[0], references, watching, scenario.router) if scratch else nullcontext()
        browsers = await stack.enter_async_context(opening)
        processes = await stack.enter_async_context(open_processes(folder, [*scratch, *([] if is_kept else [folder])]))
        nursery = await stack.enter_async_context(open_service_nursery())
        links = Links(conditions, Random(f"links {seed}"), nursery)
        testnet = Testnet(scenario, seed, folder, members, links, processes, neighbourhood, watching, browsers, tell)
        await _stand_between(links, members)
        await testnet.start(progress)
        nursery.start_soon(testnet.watch)
        for member in members:
            if member.kind in ("server", "client"):
                nursery.start_soon(watching.follow, member)
            else:
                watching.name(member)
        yield testnet


async def _stand_between(links: Links, members: Sequence[Member]) -> None:
    """Listen in the place of each server, and for each browser in the place of its hub. Members may be added later."""

    def find_dialler(host: str) -> tuple[int, str] | None:
        return next(((member.number, host) for member in members if member.host == host), None)

    for member in members:
        if member.kind == "server":
            for port in (member.mesh_port, member.http_port):
                await links.stand_for(member.number, (member.host, port), (member.door, port), find_dialler)
        elif member.kind == "browser":
            # A browser cannot choose the address that it dials from, so it has a listener of its own.
            hub = members[member.dials[0]]
            known = (member.number, member.host)
            await links.stand_for(hub.number, (hub.host, hub.http_port), (hub.door, member.http_port), lambda _, known=known: known)  # type: ignore[misc]


def describe(record: dict[str, Any]) -> str:
    """Return one line of text for the record of an action."""
    about = " ".join(f"{key}={value}" for key, value in record.items() if key not in ("time_s", "action", "nodes"))
    return f"{record['time_s']:9.3f} s  {record['action']:<10} {', '.join(record['nodes'])}  {about}".rstrip()
