"""jupyter-collaboration with its notebooks in a log: real servers, JupyterLab in a real Chromium, and `kill -9`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from chromium import CHROMIUM, Browser, Tab, open_browser
from ports import free_port

import gossiplog
from gossiplog.pycrdt import APPLICATION, DOCUMENTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: `apt-get install chromium`"),
]
TOPIC = "notebooks.jupyter"
CELL = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [], "source": ["was_here = 0"]}
NOTEBOOK = {"cells": [CELL], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
DEADLINE_S = 120
MODEL = "jupyterapp.shell.currentWidget.context.model.sharedModel"
SOURCES = f"{MODEL}.cells.map((cell) => cell.source)"


@asynccontextmanager
async def server(folder: Path, port: int, log: str, **options: str) -> AsyncIterator[trio.Process]:
    """A Jupyter server whose notebooks are in a log. Servers of one folder know a file by the same name."""
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}", "--ServerApp.port_retries=0"]
    settings = {
        "IdentityProvider.token": "",
        "ServerApp.disable_check_xsrf": "True",
        "ServerApp.root_dir": str(folder / "notebooks"),
        "LabApp.expose_app_in_browser": "True",
        "YDocExtension.ystore_class": "gossiplog.pycrdt.jupyter.JupyterStore",
        "JupyterStore.log_path": str(folder / log),
        "JupyterStore.key_path": str(folder / log) + ".pem",
        **options,
    }
    homes = {"PYTHONPATH": str(folder)} | {
        name: str(folder / "home") for name in ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    with (folder / f"{log}.txt").open("ab") as said:
        async with trio.open_nursery() as nursery:
            command += [f"--{name}={value}" for name, value in settings.items()]
            run = partial(trio.run_process, command, env={**os.environ, **homes}, cwd=folder, stdout=said, stderr=said, check=False)
            process = await nursery.start(run)
            try:
                with trio.fail_after(DEADLINE_S):
                    while True:
                        assert process.poll() is None, (folder / f"{log}.txt").read_text()
                        try:
                            await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
                            break
                        except OSError:
                            await trio.sleep(0.1)
                yield process
            finally:
                process.kill()


async def open_notebook(browser: Browser, port: int, host: str = "127.0.0.1") -> Tab:
    tab = await browser.open(f"http://{host}:{port}/lab?reset")
    await tab.wait("Boolean(window.jupyterapp) && document.readyState === 'complete'")
    await tab.run("jupyterapp.restored.then(() => jupyterapp.commands.execute('docmanager:open', {path: 'plan.ipynb'})).then(() => null)")
    await tab.wait("Boolean(jupyterapp.shell.currentWidget?.context?.isReady)")
    return tab


async def add_cell(tab: Tab, source: str) -> None:
    cell = json.dumps({"cell_type": "code", "source": source})
    await tab.run(f"void {MODEL}.insertCell(0, {cell})")


async def until_shows(tab: Tab, *sources: str) -> None:
    with trio.fail_after(DEADLINE_S):
        await tab.wait(f"{json.dumps(sources)}.every((source) => {SOURCES}.includes(source))")


async def until_saved(folder: Path, cells: int) -> None:
    """Wait until the file has so many cells; it may be found half written."""
    with trio.fail_after(DEADLINE_S):
        while (folder / "notebooks" / "plan.ipynb").read_text().count('"cell_type"') != cells:
            await trio.sleep(0.1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "notebooks" / "plan.ipynb").write_text(json.dumps(NOTEBOOK))
    return tmp_path


async def test_two_browsers_edit_a_notebook_that_outlives_its_server(folder: Path) -> None:
    port = free_port()
    async with AsyncExitStack() as stack:
        browsers = [await stack.enter_async_context(open_browser(folder / f"profile {number}")) for number in range(3)]
        async with server(folder, port, "log.db") as process:
            tabs = [await open_notebook(browser, port) for browser in browsers[:2]]
            await add_cell(tabs[0], "first = 1")
            await add_cell(tabs[1], "second = 2")
            for tab in tabs:
                await until_shows(tab, "first = 1", "second = 2")
            await until_saved(folder, 3)
            process.kill()
        async with server(folder, port, "log.db"):
            for tab in tabs:
                await until_shows(tab, "first = 1", "second = 2")
            await add_cell(tabs[0], "third = 3")
            again = await open_notebook(browsers[2], port)
            for tab in (*tabs, again):
                await until_shows(tab, "first = 1", "second = 2", "third = 3")
                assert await tab.run(f"{SOURCES}.length") == 4, "nothing twice"
    async with gossiplog.open(folder / "log.db", topic=TOPIC, app=APPLICATION, read_only=True) as log:
        (name,) = await DOCUMENTS.names(log)
        assert name.startswith(".notebook:")
        signers = {entry.author async for entry in log.iterate()}
        assert signers == {gossiplog.Ed25519Signer.load(folder / "log.db.pem").did}


async def test_two_servers_are_one_room(folder: Path) -> None:
    ports, hub = [free_port(), free_port()], free_port()
    lab = {"ServerApp.jpserver_extensions": "{'jupyter_server_ydoc': False, 'gossiplog.pycrdt.lab': True}"}
    quiet = {"YDocExtension.document_save_delay": "None", "YDocExtension.file_poll_interval": "0", **lab}
    async with (
        server(folder, ports[0], "one.db", **lab, **{"JupyterStore.listen": f"127.0.0.1:{hub}"}),
        open_browser(folder / "profile") as browser,
    ):
        one = await open_notebook(browser, ports[0])
        await add_cell(one, "on_one = 1")
        await until_saved(folder, 2)
        async with server(folder, ports[1], "other.db", **quiet, **{"JupyterStore.connect": f"ws://127.0.0.1:{hub}"}):
            other = await open_notebook(browser, ports[1])
            await until_shows(other, "on_one = 1")
            await add_cell(other, "on_other = 2")
            await until_shows(one, "on_one = 1", "on_other = 2")
            # Each page shows who is on the other server.
            for tab, mate in ((one, other), (other, one)):
                id = await mate.run(f"{MODEL}.awareness.clientID")
                await tab.wait(f"Boolean({MODEL}.awareness.getStates().get({id})?.user?.name)")
            await add_cell(one, "again = 3")
            await until_shows(other, "again = 3")
            for tab in (one, other):
                assert await tab.run(f"{SOURCES}.length") == 4, "nothing twice"
            await until_saved(folder, 4)


USERS = """
from jupyter_server.auth import IdentityProvider, User

class ByHost(IdentityProvider):
    def get_user(self, handler):
        return User("reader" if handler.request.host.startswith("localhost") else "writer")
"""


async def test_members_who_read_change_nothing_and_see_everything(folder: Path) -> None:
    """A reader's page types, and saves. What it typed is in that page alone."""
    (folder / "users.py").write_text(USERS)
    server_key, writer, reader = (gossiplog.Ed25519Signer.generate() for _ in range(3))
    server_key.save(folder / "log.db.pem")
    policy = gossiplog.Policy([server_key.did])
    async with gossiplog.open(folder / "log.db", topic=TOPIC, policy=policy, signer=server_key, app=APPLICATION) as log:
        topic = log.topic
        await log.grant(writer.did, "write")
        await log.grant(reader.did, "read")
    dids = {"writer": writer.did, "reader": reader.did}
    options = {
        "ServerApp.jpserver_extensions": "{'jupyter_server_ydoc': False, 'gossiplog.pycrdt.lab': True}",
        "ServerApp.authorizer_class": "gossiplog.pycrdt.lab.MemberAuthorizer",
        "ServerApp.identity_provider_class": "users.ByHost",
        "ServerApp.allow_unauthenticated_access": "True",
        "MemberAuthorizer.dids": repr(dids),
        "JupyterStore.topic": topic,
    }
    port = free_port()
    async with AsyncExitStack() as stack:
        browsers = [await stack.enter_async_context(open_browser(folder / f"profile {number}")) for number in range(2)]
        await stack.enter_async_context(server(folder, port, "log.db", **options))
        reads = await open_notebook(browsers[0], port, "localhost")
        await until_shows(reads, "was_here = 0")
        writes = await open_notebook(browsers[1], port)
        await add_cell(reads, "by_a_reader = 1")
        await add_cell(writes, "by_a_writer = 2")
        await until_shows(reads, "by_a_writer = 2")
        await until_saved(folder, 2)
        # Not waited for: it may ask the reader what to do about the refusal.
        await reads.run("void jupyterapp.commands.execute('docmanager:save')")
        await add_cell(writes, "and_on = 3")
        await until_saved(folder, 3)
        await until_shows(reads, "and_on = 3")
        assert "by_a_reader" not in (folder / "notebooks" / "plan.ipynb").read_text()
        assert "by_a_reader = 1" not in await writes.run(SOURCES)
        # Beside the notebook itself, a reader writes no file.
        wrote = "fetch('/api/contents/other.txt', {method: 'PUT', body: JSON.stringify({type: 'file', format: 'text', content: 'x'})})"
        assert await reads.run(f"{wrote}.then(({{ status }}) => status)") == 403
        assert await writes.run(f"{wrote}.then(({{ status }}) => status)") == 201
    async with gossiplog.open(folder / "log.db", topic=topic, app=APPLICATION, read_only=True) as log:
        updates = b"".join([entry.value async for entry in log.iterate()])
        assert b"by_a_writer" in updates
        assert b"by_a_reader" not in updates
