"""`gossiplog sim play`: traces in a browser."""

from __future__ import annotations

import signal
import webbrowser
from functools import partial
from pathlib import Path

import click

from ..options import output_options
from ..output import Output
from ..session import run

__all__ = ["play"]


@click.command()
@click.argument("trace", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("other", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--listen", "address", metavar="HOST:PORT", default="127.0.0.1:0", show_default=True, help="Where the page is served.")
@click.option("--open", "opens_page", is_flag=True, help="Open the page in a browser.")
@output_options()
def play(trace: Path, other: Path | None, address: str, opens_page: bool, out: Output) -> None:
    """Play TRACE in a browser, with OTHER beside it on the same clock, until Ctrl-C.

    A trace is a file of `sim run --trace FILE.jsonl`, or the facts.jsonl of `testnet --report DIR`, so a simulation can be played beside
    reality. The page shows peers and what they forward to each other, episub's tree of eager and lazy links, and the way that a message
    took.

    \b
    Examples
      gossiplog sim run sparse --router gossipsub --trace gossipsub.jsonl
      gossiplog sim run sparse --router episub --trace episub.jsonl
      gossiplog sim play gossipsub.jsonl episub.jsonl --open
    """
    from ...web.glass.trace_site import check_trace

    traces = [path for path in (trace, other) if path is not None]
    for path in traces:
        check_trace(path)
    run(partial(_serve, traces, address, opens_page, out))


async def _serve(traces: list[Path], address: str, opens_page: bool, out: Output) -> None:
    import trio

    from ...net.hub.server import listen
    from ...web.glass.trace_site import TraceSite

    async with listen((), address, make_http=TraceSite(traces).make_http) as hub:
        url = f"http://{hub.addresses[0][0]}:{hub.port}/"
        if out.is_json:
            out.record({"url": url, "traces": [str(path) for path in traces]})
        else:
            out.line(f"the page is {url}")
            out.note("Ctrl-C ends it")
        out.flush()
        if opens_page:
            webbrowser.open(url)
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                return
