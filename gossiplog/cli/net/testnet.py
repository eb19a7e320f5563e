"""`testnet`: a network of real processes on this machine, to watch and to break."""

from __future__ import annotations

import webbrowser
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...pubsub.params import MESH_PARAMS
from ..exits import ExitCode
from ..options import ADDRESS, PLACE, NumberRange, PathType, option, output_options, takes
from ..output import Output, record_of
from ..progress import Progress
from ..session import in_trio, make_empty, wait_for_signal, working_folder
from .serve import SIGNALS

if TYPE_CHECKING:
    from ...sim.scenario import Scenario
    from ...testnet import Testnet

_PEERS = 8
_CONNECT = 4


@dataclass(frozen=True, slots=True)
class _Network:
    """The options that describe the network; None for the script's value, or the default."""

    script: str | None = option(
        "--script", metavar="FILE", type=PLACE, help="Play this scenario, a TOML file or the name of a ready one; then exit."
    )
    peers: int | None = option(
        "--peers", type=click.IntRange(2, 200), metavar="N", help="Processes in all.  [default: 8, or what the script says]"
    )
    clients: int | None = option(
        "--clients", type=click.IntRange(0), metavar="N", help="Of these, clients of a hub by WebSocket.  [default: one in eight]"
    )
    browsers: int | None = option(
        "--browsers", type=click.IntRange(0), metavar="N", help="Of these, pages in Chromium with the reference's client.  [default: 0]"
    )
    router: str | None = option("--router", type=click.Choice(tuple(MESH_PARAMS)), help="How entries spread.  [default: gossipsub]")
    loss: float | None = option(
        "--loss", type=NumberRange(0, 0.9), metavar="P", help="Lose this share of the segments, which TCP turns into delays."
    )
    latency_ms: tuple[float, float] | None = option(
        "--latency-ms",
        type=(NumberRange(0.1), NumberRange(0.1)),
        metavar="LOW HIGH",
        help="One way, drawn for each pair.  [default: 10 50]",
    )

    def scenario(self) -> Scenario:
        """Return the script's scenario, or a plain one, with the changes of the options."""
        from ...sim.scenario import CastSpec, LatencySpec, Scenario, TopologySpec, load_scenario
        from ...testnet.script import check_scenario

        if self.script is None:
            cast, topology = CastSpec((self.peers or _PEERS) // 8, 0), TopologySpec(connect=_CONNECT)
            chosen = Scenario("testnet", nodes=_PEERS, topology=topology, latency=LatencySpec(low_s=0.010, high_s=0.050), testnet=cast)
        else:
            chosen = load_scenario(self.script)
        cast = chosen.testnet
        if self.clients is not None:
            cast = replace(cast, clients=self.clients)
        if self.browsers is not None:
            cast = replace(cast, browsers=self.browsers)
        chosen = replace(chosen, nodes=self.peers or chosen.nodes, router=self.router or chosen.router, testnet=cast)
        if self.loss is not None:
            chosen = replace(chosen, link=replace(chosen.link, loss=self.loss))
        if self.latency_ms is not None:
            low_ms, high_ms = self.latency_ms
            chosen = replace(chosen, latency=LatencySpec(low_s=low_ms / 1000, high_s=high_ms / 1000))
        check_scenario(chosen)
        return chosen


@click.command()
@takes(wanted=_Network)
@click.option(
    "--reference",
    "references",
    metavar="DIR",
    multiple=True,
    type=PathType(file_okay=False, path_type=Path),
    help="Where npm has installed the reference, and esbuild; repeatable.  [default: .]",
)
@click.option("--report", metavar="DIR", type=PathType(file_okay=False, path_type=Path), help="Write figures, plots and all facts here.")
@click.option("--seed", type=int, default=0, help="Seeds latencies, losses, and a script's random choices.")
@click.option("--dir", "folder", metavar="DIR", type=PathType(file_okay=False, path_type=Path), help="Keep logs and output here.")
@click.option("--listen", "address", metavar="HOST:PORT", type=ADDRESS, default="127.0.0.1:0", help="Where its page is served.")
@click.option("--open", "opens_page", is_flag=True, help="Open the page in a browser.")
@output_options()
@in_trio
async def testnet(
    references: tuple[Path, ...],
    report: Path | None,
    seed: int,
    folder: Path | None,
    address: str,
    opens_page: bool,
    wanted: _Network,
    out: Output,
) -> int:
    """Run a network of real processes on this machine, until Ctrl-C.

    Each peer is a `gossiplog serve`. All connections between them are delayed. They can be cut, slowed and made lossy by the page whose URL
    is printed, or by a script. Ctrl-C ends everything and leaves only the folder of --dir.

    A script is a scenario of `gossiplog sim`; features that only the simulator has are an error.

    \b
    Examples
      gossiplog testnet --peers 8 --loss 0.1 --open
      gossiplog testnet --script examples/testnet/partition-and-heal.toml
    """
    import trio

    from ...net.hub.server import listen
    from ...testnet import describe
    from ...testnet.site import Site

    scenario = wanted.scenario()
    if report is not None:
        if wanted.script is None:
            raise click.UsageError("--report needs --script FILE, because without a script the network has no end")
        make_empty(report)
    actions: list[dict[str, Any]] = []

    def tell(record: dict[str, Any]) -> None:
        actions.append(record)
        out.tell(record, describe(record))
        out.flush()

    code = ExitCode.DONE
    with working_folder(folder, "gossiplog-testnet-") as place:
        async with trio.open_nursery() as nursery, AsyncExitStack() as held:
            nursery.start_soon(_end_at_signal, nursery.cancel_scope)
            facts_file = None if report is None else report / "facts.jsonl"
            options = {"seed": seed, "is_kept": folder is not None, "facts_file": facts_file, "references": references or (Path(),)}
            network = await _start(held, scenario, place, out, tell=tell, **options)
            hub = await held.enter_async_context(listen((), address, make_http=Site(network).make_http))
            url = f"http://{hub.addresses[0][0]}:{hub.port}/"
            _begin(out, network, url)
            if opens_page:
                webbrowser.open(url)
            if wanted.script is None:
                await trio.sleep_forever()
            code = ExitCode.DONE if await _play(network, actions, report, out) else ExitCode.FAILED
            nursery.cancel_scope.cancel()
    return code


async def _start(held: AsyncExitStack, scenario: Scenario, place: Path, out: Output, **options: Any) -> Testnet:
    """Start a network, which ends with the stack, and show the progress."""
    from ...testnet import open_testnet

    with Progress("starting", scenario.nodes, is_shown=not out.is_strict) as bar:

        def show(done: int, total: int) -> None:
            bar.tell("starting", done, f"{done} of {total} are up")

        return await held.enter_async_context(open_testnet(scenario, place, progress=show, **options))


async def _play(network: Testnet, actions: list[dict[str, Any]], report: Path | None, out: Output) -> bool:
    """Play the script, wait until the logs are equal, and write the report; return whether they are."""
    from ...testnet.script import play, settle

    await play(network)
    is_converged = await settle(network)
    _end(out, network, is_converged=is_converged)
    if report is not None:
        from ...testnet.report import write_report

        files = write_report(network, network.watching.measure, actions, report, is_converged=is_converged)
        out.note(f"wrote {', '.join(str(file) for file in files)}")
        out.note(f"`gossiplog sim play {report / 'facts.jsonl'}` shows it again")
    return is_converged


async def _end_at_signal(scope: Any) -> None:
    await wait_for_signal(*SIGNALS)
    scope.cancel()


def _begin(out: Output, network: Testnet, url: str) -> None:
    counts = {kind: sum(member.kind == kind for member in network.members) for kind in ("server", "client", "browser")}
    if out.is_json:
        peers = [record_of(each, "name", "kind", "node", "url") for each in network.members]
        out.record({"testnet": url, "router": network.scenario.router, "peers": peers})
        out.flush()
        return
    parts = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items() if count]
    out.line(f"{', '.join(parts)}, {network.scenario.router}; the page is {url}")
    out.flush()
    out.note("Ctrl-C ends all of them")


def _end(out: Output, network: Testnet, *, is_converged: bool) -> None:
    up = [member for member in network.members if member.is_up and member.kind != "liar"]
    roots = sorted({member.root for member in up})
    if out.is_json:
        out.record({"converged": is_converged, "up": len(up), "entries": max((member.entries for member in up), default=0), "roots": roots})
    elif is_converged:
        out.line(f"all {len(up)} logs are equal: {up[0].entries} entries, root {roots[0][:8]}")
    else:
        out.line(f"the {len(up)} logs have {len(roots)} different roots")
