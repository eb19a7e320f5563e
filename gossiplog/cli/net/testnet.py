"""`testnet`: a network of real processes on this machine, to look at and to break."""

from __future__ import annotations

import shutil
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...pubsub.params import MESH_PARAMS
from ..exits import ExitCode
from ..options import PLACE, PathType, output_options
from ..output import Output
from ..progress import Progress
from ..session import run, wait_for_signal
from .serve import SIGNALS

if TYPE_CHECKING:
    from ...sim.scenario import Scenario
    from ...testnet import Testnet

_PEERS = 8
_CONNECT = 4


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the command line says, None where it says nothing."""

    script: str | None
    peers: int | None
    clients: int | None
    browsers: int | None
    router: str | None
    loss: float | None
    latency_ms: tuple[float, float] | None

    def scenario(self) -> Scenario:
        """The scenario that is to be run: a script's, or a plain one, with what the command line says in it."""
        from ...sim.scenario import CastSpec, LatencySpec, Scenario, TopologySpec, load_scenario
        from ...testnet.script import check_scenario

        if self.script is None:
            peers = self.peers or _PEERS
            clients = peers // 8 if self.clients is None else self.clients
            base = Scenario(
                "testnet",
                nodes=max(2, peers),
                topology=TopologySpec(connect=_CONNECT),
                latency=LatencySpec(low_s=0.010, high_s=0.050),
                testnet=CastSpec(clients, self.browsers or 0),
            )
        else:
            base = load_scenario(self.script)
            cast = base.testnet
            cast = replace(cast, clients=cast.clients if self.clients is None else self.clients)
            cast = replace(cast, browsers=cast.browsers if self.browsers is None else self.browsers)
            base = replace(base, nodes=self.peers or base.nodes, testnet=cast)
        low_s, high_s = (value / 1000 for value in self.latency_ms) if self.latency_ms else (base.latency.low_s, base.latency.high_s)
        chosen = replace(
            base,
            router=self.router or base.router,
            link=base.link if self.loss is None else replace(base.link, loss=self.loss),
            latency=base.latency if self.latency_ms is None else LatencySpec(low_s=low_s, high_s=high_s),
        )
        check_scenario(chosen)
        return chosen


@click.command()
@click.option("--peers", type=click.IntRange(2, 200), metavar="N", help="Processes in all.  [default: 8, or what the script says]")
@click.option("--clients", type=click.IntRange(0), metavar="N", help="Of these, clients of a hub by WebSocket.  [default: one in eight]")
@click.option(
    "--browsers", type=click.IntRange(0), metavar="N", help="Of these, pages in Chromium with the reference's client.  [default: 0]"
)
@click.option(
    "--reference",
    "references",
    metavar="DIR",
    multiple=True,
    type=PathType(file_okay=False, path_type=Path),
    help="Where npm has installed the reference, and esbuild; repeatable.  [default: .]",
)
@click.option("--router", type=click.Choice(tuple(MESH_PARAMS)), help="How entries spread.  [default: gossipsub]")
@click.option("--loss", type=click.FloatRange(0, 0.9), metavar="P", help="Lose this share of the segments, which TCP turns into delays.")
@click.option(
    "--latency-ms", type=(click.FloatRange(0.1), click.FloatRange(0.1)), metavar="LOW HIGH", help="One way, by pair.  [default: 10 50]"
)
@click.option("--script", metavar="FILE", type=PLACE, help="Play this scenario, a TOML file or the name of a ready one; then exit.")
@click.option("--report", metavar="DIR", type=PathType(file_okay=False, path_type=Path), help="Write figures, plots and all facts here.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seeds latencies, losses, and a script's random choices.")
@click.option("--dir", "folder", metavar="DIR", type=PathType(file_okay=False, path_type=Path), help="Keep logs and output here.")
@click.option("--listen", "address", metavar="HOST:PORT", default="127.0.0.1:0", show_default=True, help="Where its page is served.")
@click.option("--open", "opens_page", is_flag=True, help="Open the page in a browser.")
@output_options()
def testnet(
    peers: int | None,
    clients: int | None,
    browsers: int | None,
    references: tuple[Path, ...],
    router: str | None,
    loss: float | None,
    latency_ms: tuple[float, float] | None,
    script: str | None,
    report: Path | None,
    seed: int,
    folder: Path | None,
    address: str,
    opens_page: bool,
    out: Output,
) -> int:
    """Run a network of real processes on this machine, until Ctrl-C.

    Each peer is a `gossiplog serve`. All connections between them are delayed, and can be cut, slowed and made lossy, by the page whose URL
    is printed, or by a script. Ctrl-C ends everything and leaves only what --dir keeps.

    A script is a scenario of `gossiplog sim`; real processes refuse what only the simulator can do, and say so.

    \b
    Examples
      gossiplog testnet --peers 8 --loss 0.1 --open
      gossiplog testnet --script examples/testnet/partition-and-heal.toml
    """
    scenario = _Wanted(script, peers, clients, browsers, router, loss, latency_ms).scenario()
    if report is not None:
        if script is None:
            raise click.UsageError("--report is of a script, which has an end: --script FILE")
        _make_empty(report, "--report")
    with _place(folder) as place:
        is_kept, plays = folder is not None, script is not None
        wanted = _Run(scenario, place, seed, address, is_kept, opens_page, plays, report, references or (Path(),))
        return run(partial(wanted.run, out))


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of a network, from its start to its end."""

    scenario: Scenario
    folder: Path
    seed: int
    address: str
    is_kept: bool
    opens_page: bool
    plays: bool
    report: Path | None
    references: tuple[Path, ...]

    async def run(self, out: Output) -> int:
        """Run it until a signal comes, or its script is over."""
        import trio

        from ...net.hub.server import listen
        from ...testnet import open_testnet
        from ...testnet.site import Site

        actions: list[dict[str, Any]] = []

        def tell(record: dict[str, Any]) -> None:
            actions.append(record)
            _tell(out, record)

        code = ExitCode.DONE
        async with trio.open_nursery() as nursery, AsyncExitStack() as held:
            nursery.start_soon(_end_at_signal, nursery.cancel_scope)
            facts_file = None if self.report is None else self.report / "facts.jsonl"
            with Progress("starting", self.scenario.nodes, is_shown=not out.is_strict, is_told=True) as bar:
                opening = open_testnet(
                    self.scenario,
                    self.folder,
                    seed=self.seed,
                    is_kept=self.is_kept,
                    facts_file=facts_file,
                    references=self.references,
                    tell=tell,
                    progress=lambda done, total: bar.tell("starting", done, f"{done} of {total} are up"),
                )
                network = await held.enter_async_context(opening)
            hub = await held.enter_async_context(listen((), self.address, make_http=Site(network).make_http))
            url = f"http://{hub.addresses[0][0]}:{hub.port}/"
            _begin(out, network, url)
            if self.opens_page:
                webbrowser.open(url)
            if not self.plays:
                await trio.sleep_forever()
            code = ExitCode.DONE if await self._play(network, actions, out) else ExitCode.FAILED
            nursery.cancel_scope.cancel()
        return code

    async def _play(self, network: Testnet, actions: list[dict[str, Any]], out: Output) -> bool:
        """Play the script, wait until the logs are equal, and write the report; returns whether they are."""
        from ...testnet.script import play, settle

        await play(network)
        is_converged = await settle(network)
        _end(out, network, is_converged=is_converged)
        if self.report is not None:
            from ...testnet.report import write_report

            files = write_report(network, network.watching.measure, actions, self.report, is_converged=is_converged)
            out.note(f"wrote {', '.join(str(file) for file in files)}")
            out.note(f"`gossiplog sim play {self.report / 'facts.jsonl'}` shows it again")
        return is_converged


def _tell(out: Output, record: dict[str, Any]) -> None:
    from ...testnet import describe

    out.tell(record, describe(record))
    out.flush()


async def _end_at_signal(scope: Any) -> None:
    await wait_for_signal(*SIGNALS)
    scope.cancel()


def _begin(out: Output, network: Testnet, url: str) -> None:
    counts = {kind: sum(member.kind == kind for member in network.members) for kind in ("server", "client", "browser")}
    if out.is_json:
        out.record({"testnet": url, "router": network.scenario.router, "peers": [_record(member) for member in network.members]})
        out.flush()
        return
    parts = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items() if count]
    out.line(f"{', '.join(parts)}, {network.scenario.router}; the page is {url}")
    out.flush()
    out.note("Ctrl-C ends all of them")


def _record(member: Any) -> dict[str, Any]:
    """What a program wants to know of a peer."""
    return {"name": member.name, "kind": member.kind, "node": member.node, "url": member.url}


def _end(out: Output, network: Testnet, *, is_converged: bool) -> None:
    up = [member for member in network.members if member.is_up and member.kind != "liar"]
    roots = sorted({member.root for member in up})
    if out.is_json:
        out.record({"converged": is_converged, "up": len(up), "entries": max((member.entries for member in up), default=0), "roots": roots})
    elif is_converged:
        out.line(f"all {len(up)} logs are equal: {up[0].entries} entries, root {roots[0][:8]}")
    else:
        out.line(f"the {len(up)} logs have {len(roots)} different roots")


def _make_empty(folder: Path, option: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise click.BadParameter(f"{folder} is not empty", param_hint=option)


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    """Where the processes write: a new or an empty folder that is kept, or one that goes with us."""
    if folder is not None:
        _make_empty(folder, "--dir")
        yield folder.resolve()
        return
    place = Path(tempfile.mkdtemp(prefix="gossiplog-testnet-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
