"""`gossiplog.asgi` in a server's own process: three servers, four workers on one log of Postgres, and the page below /log."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
from chromium import CHROMIUM
from mounted_support import MOUNTED_TOPIC, SERVERS, serving_mounted
from network_support import signer, until_count, until_equal, until_has
from page_support import SIDEWAYS, browsing, opened, resize
from ports import free_port
from postgres_support import PostgresServer

import gossiplog
from gossiplog import GossipLog

pytestmark = pytest.mark.slow
DEADLINE_S = 180.0


@asynccontextmanager
async def connected(url: str, number: int = 2, topic: str = MOUNTED_TOPIC) -> AsyncIterator[GossipLog]:
    """Yield a new log that is connected to a server."""
    async with gossiplog.open(":memory:", topic=topic, signer=signer(number)) as log, log.connect(url) as link:
        await link.wait_connected()
        yield log


async def own(address: str, payload: object) -> int:
    """Have a handler of the application append; return the process that did."""
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"http://{address}/own", json=payload)
    process: int = answer.json()["process"]
    return process


@pytest.mark.parametrize("server", SERVERS)
async def test_two_clients_meet_in_an_application_of_any_server(server: str, tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S), serving_mounted(tmp_path / "app.db", server) as address:
        url = f"ws://{address}/log/{MOUNTED_TOPIC}"
        async with connected(url) as one, connected(url, 3) as other:
            for number in range(20):
                await one.append({"n": number, "text": "x" * 3_000 * number})
            await own(address, "by a handler")
            await until_count(one, 21)
            await until_equal(one, other)
            root = await one.root()
    async with gossiplog.open(tmp_path / "app.db", read_only=True) as log:
        assert await log.root() == root


async def test_four_workers_on_one_log_of_postgres_are_one_room(postgres: PostgresServer) -> None:
    url = postgres.new_log()
    async with gossiplog.open(url, topic=MOUNTED_TOPIC, signer=signer(9)) as log:
        await log.append("there before")
    with trio.fail_after(DEADLINE_S), serving_mounted(url, "uvicorn", "--workers", "4") as address:
        async with AsyncExitStack() as stack:
            here = f"ws://{address}/log/{MOUNTED_TOPIC}"
            clients = [await stack.enter_async_context(connected(here, number + 2)) for number in range(8)]
            for number, client in enumerate(clients * 3):
                await client.append(number)
            processes = {await own(address, ["own", number]) for number in range(20)}
            for client in clients:
                await until_count(client, 1 + 24 + 20)
            await until_equal(*clients)
            # One connection after the other goes to whichever worker is free, so a single one would be a wonder.
            assert len(processes) > 1
    async with gossiplog.open(url, read_only=True) as log:
        assert await log.count() == 45


async def test_a_worker_that_is_killed_takes_nothing_with_it_but_its_clients_cursors(postgres: PostgresServer) -> None:
    url = postgres.new_log()
    async with gossiplog.open(url, topic=MOUNTED_TOPIC, signer=signer(9)) as log:
        await log.append("there before")
    with trio.fail_after(DEADLINE_S), serving_mounted(url, "uvicorn", "--workers", "4") as address:
        here = f"ws://{address}/log/{MOUNTED_TOPIC}?client="
        async with AsyncExitStack() as stack:
            nursery = await stack.enter_async_context(trio.open_nursery())
            clients: list[GossipLog] = []
            for number in range(1, 8):
                client = await stack.enter_async_context(connected(f"{here}{number}", number + 2))
                nursery.start_soon(keep_cursor, client, number)
                clients.append(client)
            everybody = {signer(number + 2).did: {"cursor": number} for number in range(8)}
            async with connected(f"{here}0") as leaver:
                async with trio.open_nursery() as staying:
                    staying.start_soon(keep_cursor, leaver, 0)
                    for number, client in enumerate([leaver, *clients]):
                        await client.append(number)
                    for client in [leaver, *clients]:
                        await until_shown(client, everybody)
                        await until_count(client, 9)
                    staying.cancel_scope.cancel()
                # As on a machine that hangs, which no longer sees its clients go.
                os.kill(victim := await worker_of(address, "client=0"), signal.SIGSTOP)
            os.kill(victim, signal.SIGKILL)
            del everybody[signer(2).did]
            for number, client in enumerate(clients):
                await client.append(["after", number])
            for client in clients:
                await until_count(client, 16)
                await until_shown(client, everybody)
            await until_equal(*clients)
            nursery.cancel_scope.cancel()
    async with gossiplog.open(url, read_only=True) as log:
        assert await log.count() == 16


async def worker_of(address: str, client: str) -> int:
    """Return the process that serves a client."""
    while True:
        async with httpx.AsyncClient() as http:
            told = (await http.get(f"http://{address}/own")).json()
        if client in told["clients"]:
            process: int = told["process"]
            return process


async def keep_cursor(log: GossipLog, number: int) -> None:
    while True:
        await log.presence.set({"cursor": number}, ttl_s=20)
        await trio.sleep(4)


async def until_shown(log: GossipLog, states: object) -> None:
    while log.presence.states != states:
        await trio.sleep(0.02)


async def test_the_guides_application_runs_as_it_is_written(tmp_path: Path) -> None:
    program, port = guides_program(0), free_port()
    (tmp_path / "app.py").write_text(program.replace("8000", str(port)))
    topic, url = "notes.example.com", f"127.0.0.1:{port}/log/notes.example.com"
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(partial(trio.run_process, [sys.executable, "app.py"], cwd=tmp_path, stderr=-3))
            async with connected(f"ws://{url}", topic=topic) as log, httpx.AsyncClient() as http:
                entry = (await http.post(f"http://127.0.0.1:{port}/notes", params={"text": "milk"})).json()
                await until_count(log, 1)
                assert (await log.get(entry)).message.payload == {"text": "milk"}
            process.send_signal(signal.SIGINT)


@pytest.mark.parametrize(("server", "options"), [("uvicorn", ["--lifespan", "off"]), ("hypercorn", []), ("granian", [])])
async def test_a_log_that_the_first_request_opens_is_closed_with_the_process(server: str, options: list[str], tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text(guides_program(1))
    topic = "notes.example.com"
    with trio.fail_after(DEADLINE_S), serving_mounted("", server, *options, app=program) as address:
        url = f"ws://{address}/{topic}"
        async with connected(url, topic=topic) as one, connected(url, 3, topic) as other:
            entries = [await one.append(number) for number in range(20)]
            await until_has(other, entries)
    async with gossiplog.open(tmp_path / "notes.db", read_only=True) as log:
        assert all([await log.has(entry.id) for entry in entries])


def guides_program(number: int) -> str:
    """Return one of the programs in docs/asgi.md."""
    guide = Path(__file__).parents[2] / "docs" / "asgi.md"
    programs: list[str] = re.findall(r"```python\n(import asyncio.*?)```", guide.read_text(), re.DOTALL)
    return programs[number]


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: `apt-get install chromium`")
async def test_the_page_works_below_a_path(tmp_path: Path) -> None:
    with serving_mounted(tmp_path / "app.db") as address:
        await own(address, "by a handler")
        async with browsing(tmp_path) as browser:
            tab = await opened(browser, f"http://{address}/log/")
            await tab.wait("document.body.innerText.includes('1') && document.body.innerText.includes('test.example.com')")
            for view in ("overview", "network", "log"):
                await tab.run(f"location.hash = '#/{view}'")
                await tab.wait(f"document.querySelector('#view').className === 'view-{view}'")
                for width in (390, 1280):
                    await resize(tab, width)
                    assert await tab.run(SIDEWAYS) <= 0
            assert "no live facts" not in await tab.run("document.body.innerText")
            assert await tab.run("window.faults") == []
            await tab.save_picture(tmp_path / "page.png")
