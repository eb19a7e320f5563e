"""The drafts beside gossipsub, choke and episub: `python -m benchmarks.sim_drafts [SEEDS]`.

100 nodes publish in turn from 30 s to 100 s, as in `sim_choke`: small messages, five a second, over links without limits, and large
ones, one a second, where each node's uplink carries 10 Mbit/s. There gossipsub and what is built on it push own messages to the mesh
alone, not to all peers: an uplink has better things to do.
"""

from __future__ import annotations

from typing import Any

from gossiplog.sim.measure.report import compare_table, mean_rows
from gossiplog.sim.routing.run import run_row
from gossiplog.sim.scenario import LinkSpec, PublishSpec, Scenario

from . import drafts
from .sim_record import parse, write

UPLINK_BYTES_S = 1.25e6
SMALL = PublishSpec(messages=350, interval_s=0.2, start_s=30.0)
LARGE = PublishSpec(messages=70, interval_s=1.0, start_s=30.0, bytes=60_000)
ROUTERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("gossipsub", "gossipsub", {}),
    ("choke", "choke", {}),
    ("preamble", "preamble", {"uplink_bytes_s": UPLINK_BYTES_S}),
    ("lazy 0.5", "lazy", {"announce_share": 0.5}),
    ("lazy 1.0", "lazy", {"announce_share": 1.0}),
    ("episub", "episub", {}),
)


def main() -> None:
    seeds = parse(__doc__, seeds=5).seeds
    drafts.register()
    rows: list[dict[str, Any]] = []
    tables = []
    for publish, said in ((SMALL, "256 bytes, no limits"), (LARGE, "60,000 bytes, uplinks of 10 Mbit/s")):
        means = []
        for label, router, params in ROUTERS:
            is_narrow = publish is LARGE
            params = params | ({"flood_publish": False} if is_narrow and router != "episub" else {})
            link = LinkSpec(bandwidth=UPLINK_BYTES_S) if is_narrow else LinkSpec()
            scenario = Scenario(said, router=router, nodes=100, publish=publish, link=link, params={router: params})
            found = [{**run_row((scenario, seed)), "router": label} for seed in range(seeds)]
            rows += [{key: value for key, value in row.items() if key != "counters"} for row in found]
            means.append(mean_rows(found))
        tables.append(f"100 nodes, 70 s of messages from all of them, {said}, {seeds} seeds\n{compare_table(means)}")
        write("sim-drafts", "Choke, preambles, lazy push and episub beside gossipsub", rows, "\n\n".join(tables))


if __name__ == "__main__":
    main()
