"""The browser client in a real Firefox, by WebDriver BiDi: two tabs on one store, with a hub of ours."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from client_support import deepest_entries
from network_support import memory_log
from page_support import served
from trio_websocket import WebSocketConnection, open_websocket_url

FIREFOX = os.environ.get("FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(FIREFOX is None, reason="Firefox is not installed: `apt-get install firefox-esr`"),
]
TOPIC = "client.example.com"
OPENS = """(async () => {
    window.client = await import("/client.js")
    const apply = async ({ payload }, state) => state.set("sum", ((await state.get("sum")) ?? 0) + (payload.add ?? 0))
    window.log = await client.open("TOPIC", { signer: await client.keptSigner(), apply })
    window.link = log.connect("URL")
    await link.settled()
    return `${await log.count()} ${await log.state.get("sum")}`
})()"""
APPENDS = "(async () => { const { id } = await log.append({ add: 1, text: 'grüß dich 🌍' }); await link.settled(); return id })()"
IDS = "(async () => { const ids = []; for await (const { id } of log.iterate({ reverse: true })) ids.unshift(id); return ids.join() })()"
EXPORTS = "client.keptSigner().then(({ pair }) => crypto.subtle.exportKey('pkcs8', pair.privateKey)).then(() => 'read', () => 'refused')"


@contextmanager
def running_firefox(profile: Path) -> Iterator[str]:
    assert FIREFOX is not None
    profile.mkdir()
    command = [FIREFOX, "--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = next((found for line in process.stderr if (found := re.search(r"listening on (ws://\S+)", line))), None)
            assert found is not None, "Firefox ended"
            yield f"{found[1]}/session"
        finally:
            process.kill()


class Firefox:
    """One command after the other; events are passed over."""

    def __init__(self, socket: WebSocketConnection) -> None:
        self._socket = socket
        self._number = 0

    async def call(self, method: str, **params: Any) -> Any:
        self._number += 1
        await self._socket.send_message(json.dumps({"id": self._number, "method": method, "params": params}))
        while (answer := json.loads(await self._socket.get_message())).get("id") != self._number:
            pass
        assert answer["type"] == "success", answer
        return answer["result"]

    async def open(self, url: str) -> str:
        tab: str = (await self.call("browsingContext.create", type="tab"))["context"]
        await self.call("browsingContext.navigate", context=tab, url=url, wait="complete")
        return tab

    async def run(self, tab: str, script: str) -> Any:
        answer = await self.call("script.evaluate", expression=script, target={"context": tab}, awaitPromise=True)
        assert answer["type"] == "success", answer
        return answer["result"]["value"]


async def test_two_tabs_of_firefox_share_a_store_a_key_and_a_connection(tmp_path: Path) -> None:
    with running_firefox(tmp_path / "profile") as address, trio.fail_after(120):
        async with memory_log(1, TOPIC) as log, served(log) as hub, open_websocket_url(address, max_message_size=2**24) as socket:
            await log.append_many({"add": n} for n in range(1_000))
            assert all([(await log.insert(entry.value)).accepted for entry in deepest_entries(TOPIC)])
            firefox = Firefox(socket)
            await firefox.call("session.new", capabilities={})
            tabs = [await firefox.open(f"http://127.0.0.1:{hub.port}/livez") for _ in range(2)]
            for tab in tabs:
                opened = await firefox.run(tab, OPENS.replace("TOPIC", TOPIC).replace("URL", hub.urls[0]))
                assert opened == f"1006 {sum(range(1_000))}"
            assert len(hub.links()) == 1
            for tab in tabs:
                id = await firefox.run(tab, APPENDS)
                assert await log.heads() == [id]
            others = {entry.author for entry in deepest_entries(TOPIC)}
            assert len({entry.author async for entry in log.iterate()} - others) == 2
            for tab in tabs:
                assert (await firefox.run(tab, IDS)).split(",") == [entry.id async for entry in log.iterate()]
            assert await firefox.run(tabs[0], EXPORTS) == "refused"
