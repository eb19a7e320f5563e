"""Tabs of a real Chromium, by its own protocol."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import trio
from trio_websocket import WebSocketConnection, open_websocket_url

CHROMIUM = shutil.which("chromium")
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--remote-debugging-port=0")
PATIENCE_S = 300
"""A page that never answers, because it asks its user something, say, fails its test and does not hold up all others."""


class BetweenPages(AssertionError):
    """The tab had left one page, and did not have the next one yet."""


class Tab:
    """One page of the browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    async def run(self, script: str) -> Any:
        """Evaluate an expression, and return its value."""
        options = {"expression": script, "returnByValue": True, "awaitPromise": True}
        with trio.fail_after(PATIENCE_S):
            answer = await self._browser.call("Runtime.evaluate", options, self._session)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        is_true = False
        with trio.fail_after(PATIENCE_S):
            while not is_true:
                with suppress(BetweenPages):
                    is_true = await self.run(condition)
                await trio.sleep(0.02)

    async def type(self, text: str) -> None:
        """Type into what has the focus."""
        await self._browser.call("Input.insertText", {"text": text}, self._session)

    async def command(self, method: str, **options: Any) -> Any:
        """Ask for anything that the protocol has."""
        return await self._browser.call(method, options, self._session)

    async def press(self, key: str) -> None:
        """Press a key, by its name in `KeyboardEvent.key`."""
        text = {"text": key} if len(key) == 1 else {}
        await self.command("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        await self.command("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def choose_file(self, selector: str, path: Path) -> None:
        """Choose a file for the first input of a selector."""
        document = await self.command("DOM.getDocument")
        found = await self.command("DOM.querySelector", nodeId=document["root"]["nodeId"], selector=selector)
        await self.command("DOM.setFileInputFiles", files=[str(path)], nodeId=found["nodeId"])

    async def save_picture(self, path: Path) -> None:
        """Save what the tab shows."""
        answer = await self._browser.call("Page.captureScreenshot", {}, self._session)
        path.write_bytes(base64.b64decode(answer["data"]))


class Browser:
    """Requests one after the other; events are passed over."""

    def __init__(self, socket: WebSocketConnection) -> None:
        self._socket = socket
        self._number = 0

    async def call(self, method: str, options: dict[str, Any], session: str | None = None) -> Any:
        self._number += 1
        request = {"id": self._number, "method": method, "params": options}
        await self._socket.send_message(json.dumps(request if session is None else {**request, "sessionId": session}))
        while (answer := json.loads(await self._socket.get_message())).get("id") != self._number:
            pass
        if "error" in answer:
            message = answer["error"]["message"]
            raise BetweenPages(message) if re.search("execution context|navigated", message, re.IGNORECASE) else AssertionError(answer)
        return answer["result"]

    async def open(self, url: str) -> Tab:
        target = await self.call("Target.createTarget", {"url": url})
        session = await self.call("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})
        return Tab(self, session["sessionId"])


@contextmanager
def running_browser(profile: Path) -> Iterator[str]:
    """Run Chromium for the length of a block; `connected_to` its address from any event loop."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            found = next((found for line in lines if (found := re.search(r"listening on (ws://\S+)", line))), None)
            assert found is not None, "Chromium ended"
            yield found[1]
        finally:
            process.kill()


@asynccontextmanager
async def connected_to(url: str) -> AsyncIterator[Browser]:
    """Talk to a browser that runs."""
    async with open_websocket_url(url, max_message_size=2**24) as socket:
        yield Browser(socket)


@asynccontextmanager
async def open_browser(profile: Path) -> AsyncIterator[Browser]:
    """Run Chromium for the length of a block, and talk to it."""
    with ExitStack() as stack:
        url = await trio.to_thread.run_sync(stack.enter_context, running_browser(profile))
        async with connected_to(url) as browser:
            yield browser
