"""Real processes behind links that are cut, and what is left of them at the end: nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from gossiplog.errors import CannotConnect, LocalProtocolError
from gossiplog.net.hub.server import listen
from gossiplog.sim.scenario import (
    CastSpec,
    Churn,
    Kill,
    LatencySpec,
    Liar,
    LinkSpec,
    Scenario,
    ScenarioError,
    Slow,
    TopologySpec,
    load_scenario,
    parse_scenario,
)
from gossiplog.testnet import Testnet as Network
from gossiplog.testnet import open_testnet
from gossiplog.testnet.asking import ask, ask_json
from gossiplog.testnet.script import check_scenario, play, settle
from gossiplog.testnet.site import Site

PATIENCE_S = 90.0
EXAMPLES = Path(__file__).parents[2] / "examples" / "testnet"


def scenario(nodes: int, **changes: Any) -> Scenario:
    spec = {"topology": TopologySpec(connect=4), "latency": LatencySpec(low_s=0.001, high_s=0.005), **changes}
    return Scenario("test", nodes=nodes, **spec)


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not holds():
            await trio.sleep(0.05)


@asynccontextmanager
async def served(network: Network) -> AsyncIterator[tuple[str, int]]:
    async with listen((), "127.0.0.1:0", make_http=Site(network).make_http) as hub:
        yield hub.addresses[0]


async def do(place: tuple[str, int], action: str, **order: Any) -> Any:
    return await ask_json(place, "/api/glass/do", json.dumps({"action": action, **order}).encode())


async def status_for_a_page(place: tuple[str, int], **fields: str) -> int:
    """Ask for what harms nobody as a browser would for some page."""
    body = b'{"action": "heal"}'
    fields = {"host": f"{place[0]}:{place[1]}", "content_type": "application/json", "content_length": str(len(body)), **fields}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    async with await trio.open_tcp_stream(*place) as stream:
        await stream.send_all(f"POST /api/glass/do HTTP/1.1\r\n{head}\r\n".encode() + body)
        return int((await stream.receive_some()).split()[1])


async def test_cut_peers_part_and_meet_again_and_a_killed_one_comes_back(tmp_path: Path) -> None:
    async with open_testnet(scenario(3, testnet=CastSpec(clients=1)), tmp_path) as network, served(network) as place:
        zero, one, client = network.members
        assert [member.kind for member in network.members] == ["server", "server", "client"]
        await do(place, "append", node=zero.node)
        await until(lambda: all(member.entries == 1 for member in network.members) and network.is_converged())

        alone, other = (zero, one) if client.dials == (1,) else (one, zero)
        await do(place, "partition", nodes=[alone.name])
        await do(place, "append", node=alone.name)
        await do(place, "append", node=client.number, payload={"from": "the other side"})
        await until(lambda: (alone.entries, other.entries, client.entries) == (2, 2, 2))
        assert alone.root != other.root == client.root
        nodes = {node["name"]: node for node in await ask_json(place, "/api/glass/nodes")}
        assert nodes[alone.name]["group"] != nodes[other.name]["group"] == nodes[client.name]["group"]
        await do(place, "heal")
        await until(lambda: all(member.entries == 3 for member in network.members) and network.is_converged())

        await do(place, "kill", node=alone.name)
        await do(place, "append", node=other.name)
        assert not alone.is_up
        await do(place, "restart", node=alone.name)
        await until(lambda: all(member.entries == 4 for member in network.members) and network.is_converged())

        with pytest.raises(CannotConnect, match="no peer 'server-9'"):
            await do(place, "kill", node="server-9")
        with pytest.raises(CannotConnect, match="no action 'explode' for 2 peers"):
            await do(place, "explode", nodes=[alone.name, other.name])
        with pytest.raises(CannotConnect, match="no JSON"):
            await ask(place, "/api/glass/do", b"{")
        own = f"http://{place[0]}:{place[1]}"
        assert await status_for_a_page(place, origin=own, sec_fetch_site="same-origin") == 200
        for site in ("cross-site", "same-site", "none"):
            assert await status_for_a_page(place, sec_fetch_site=site) == 403
        assert await status_for_a_page(place, origin="https://evil.example") == 403
        assert await status_for_a_page(place, origin=own, content_type="text/plain") == 415
        pids = list(network.processes.pids.values())
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not tmp_path.exists()


@pytest.mark.slow
async def test_liar_is_banned_and_the_honest_stay_equal(tmp_path: Path) -> None:
    async with open_testnet(scenario(3), tmp_path, is_kept=True) as network, served(network) as place:
        await do(place, "liar")
        liar = network.members[-1]
        assert liar.kind == "liar"
        logs = [tmp_path / f"{member.name}.log" for member in network.members[:3]]
        await until(lambda: all("banned" in log.read_text() for log in logs))
        await do(place, "append", node="0")
        await until(lambda: all(member.entries == 1 for member in network.members[:3]))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
async def test_nothing_is_left_when_the_supervisor_ends(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-m", "gossiplog", "testnet", "--peers", "3", "--json"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        told = json.loads(await trio.to_thread.run_sync(process.stdout.readline))
        assert [peer["kind"] for peer in told["peers"]] == ["server"] * 3
        [folder] = tmp_path.iterdir()
        pids = processes_naming(folder)
        assert len(pids) == 4
        process.send_signal(number)
        status = await trio.to_thread.run_sync(process.wait)
        assert status == (0 if number == signal.SIGINT else -signal.SIGKILL)
    await until(lambda: not processes_naming(folder) and not list(tmp_path.iterdir()))


def processes_naming(folder: Path) -> list[int]:
    """The nest, and those that write into its folder; a forked process has the nest's command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"router": "floodsub"}, "router: 'floodsub', expected one of gossipsub, episub"),
        ({"testnet": CastSpec(clients=3)}, "a server at least"),
        ({"params": {"gossipsub": {"Dx": 1}}}, "params.gossipsub.Dx: unknown key"),
    ],
)
async def test_what_cannot_be_is_said_before_anything_starts(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        async with open_testnet(scenario(3, **changes), tmp_path):
            pass


def test_what_only_one_side_can_do_is_refused_by_the_other() -> None:
    with pytest.raises(LocalProtocolError, match=r"link\.reordering: only the simulator"):
        check_scenario(scenario(3, link=LinkSpec(reordering=0.1)))
    from gossiplog.sim.routing.run import ScenarioRun

    with pytest.raises(ScenarioError, match="'liar' is for real processes"):
        ScenarioRun(scenario(3, fault=(Liar(),)), 0)


def test_faults_may_name_their_nodes_in_the_simulator_too() -> None:
    from gossiplog.sim.routing.run import run_scenario

    text = 'name = "t"\nnodes = 4\n[publish]\nmessages = 10\n[topology]\nconnect = 3\n'
    fault = '[[fault]]\nkind = "kill"\nat_s = 5.05\nnumbers = [3]\n'
    whole, short = run_scenario(parse_scenario(text), 0), run_scenario(parse_scenario(text + fault), 0)
    assert whole.summary.delivered == 30
    assert short.summary.delivered < 30
    with pytest.raises(ScenarioError, match=r"fault\.numbers: \[4\], expected numbers of nodes, 0 to 3"):
        parse_scenario(text + fault.replace("3]", "4]"))


@pytest.mark.slow
def test_a_script_leaves_a_report_with_the_simulators_figures_beside_the_real_ones(tmp_path: Path) -> None:
    script = tmp_path / "script.toml"
    script.write_text(
        'name = "short"\nnodes = 3\n[topology]\nconnect = 2\n[latency]\nlow_s = 0.002\nhigh_s = 0.01\n[link]\ndetect_s = 0.5\n'
        "[publish]\nmessages = 8\ninterval_s = 0.5\nstart_s = 3.0\nlinger_s = 1.0\n"
        '[[fault]]\nkind = "partition"\nat_s = 4.0\nheal_s = 6.0\nnumbers = [0]\n'
    )
    command = [sys.executable, "-m", "gossiplog", "testnet", "--script", str(script), "--report", str(tmp_path / "report"), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    records = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [record["action"] for record in records if record.get("action") in ("partition", "heal")] == ["partition", "heal"]
    assert records[-1]["converged"] and records[-1]["entries"] == 8
    told = json.loads((tmp_path / "report" / "report.json").read_text())
    assert told["real"]["published"] == told["simulator"]["published"] == 8
    assert told["real"]["delivered"] == 16
    facts = [json.loads(line) for line in (tmp_path / "report" / "facts.jsonl").read_text().splitlines()]
    assert {"publish", "deliver", "fault", "root"} & {fact["kind"] for fact in facts} >= {"deliver", "fault", "root"}
    assert "| latency p50, ms |" in (tmp_path / "report" / "report.md").read_text()
    assert (tmp_path / "report" / "spread.svg").read_text().startswith("<?xml")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["churn", "hub-dies", "slow-reader"])
async def test_examples_end_with_equal_logs_on_real_processes(tmp_path: Path, name: str) -> None:
    """Each in a few seconds: fewer peers, and all that happens sooner."""
    scenario = load_scenario(str(EXAMPLES / f"{name}.toml"))
    publish = replace(scenario.publish, messages=16, interval_s=0.25, start_s=1.0, linger_s=1.0)
    [fault] = scenario.fault
    match fault:
        case Churn():
            sooner: Churn | Kill | Slow = replace(fault, at_s=1.5, until_s=4.0, rate_per_s=1.0, downtime_s=1.0)
        case Kill():
            sooner = replace(fault, at_s=2.0, restart_after_s=1.5)
        case Slow():
            sooner = replace(fault, at_s=1.5, until_s=5.0, numbers=(3,))
        case _:
            raise AssertionError(fault)
    short = replace(scenario, nodes=6 if name == "hub-dies" else 4, publish=publish, fault=(sooner,))
    (tmp_path / "net").mkdir()
    actions: list[dict[str, Any]] = []
    async with open_testnet(short, tmp_path / "net", tell=actions.append) as network:
        await play(network)
        assert await settle(network)
        figures = network.watching.measure.figures()
        ends = {"churn": "restart", "hub-dies": "restart", "slow-reader": "slow ends"}
        assert ends[name] in [action["action"] for action in actions]
        # Whoever is killed takes with it what it told nobody yet.
        assert 12 <= figures.published <= 16
        assert all(member.entries == network.members[0].entries for member in network.members)
        assert sum(figures.ways.values()) == figures.delivered > 0


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_examples_run_in_the_simulator_and_are_fit_for_real_processes(path: Path) -> None:
    from gossiplog.testnet.report import simulated

    example = load_scenario(str(path))
    check_scenario(example)
    summary = simulated(example, 0).summary
    assert summary.published == example.publish.messages and summary.delivered > 0
