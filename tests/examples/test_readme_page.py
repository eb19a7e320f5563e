"""README's application with a page, as somebody who follows README would run it: one port, two browsers, and no server in between."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from chromium import CHROMIUM, Browser, Tab, open_browser
from example_support import DEADLINE_S, EXAMPLES
from ports import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: `apt-get install chromium`"),
]
LINES_MAX = 60
NOTES = "[...document.querySelectorAll('li')].map((item) => item.textContent.split(': ')[1]).join()"


@contextmanager
def running(folder: Path, port: int) -> Iterator[None]:
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port), "--timeout-graceful-shutdown", "1"]
    with subprocess.Popen(command, cwd=folder) as process:
        try:
            yield
        finally:
            process.terminate()


async def opened(browser: Browser, port: int) -> Tab:
    tab = await browser.open("about:blank")
    while not await tab.run("Boolean(document.querySelector('form'))"):
        await tab.command("Page.navigate", url=f"http://127.0.0.1:{port}")
        await trio.sleep(0.2)
    return tab


async def note(tab: Tab, text: str) -> None:
    await tab.run("document.querySelector('input').focus()")
    await tab.type(text)
    await tab.run("document.querySelector('form').requestSubmit()")
    await tab.wait(f"{NOTES}.includes('{text}')")


async def test_two_browsers_share_notes_of_an_application_on_one_port(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(# app\.py\n.*?)```", (EXAMPLES.parent / "README.md").read_text("utf-8"), re.DOTALL)
    assert len(program.splitlines()) <= LINES_MAX
    (tmp_path / "app.py").write_text(program)
    port = free_port()
    with trio.fail_after(DEADLINE_S):
        async with open_browser(tmp_path / "one") as one, open_browser(tmp_path / "two") as two:
            with running(tmp_path, port):
                tabs = [await opened(browser, port) for browser in (one, two)]
                for tab in tabs:
                    await tab.wait("document.querySelector('output').textContent === 'online'")
                await note(tabs[0], "bread")
                await note(tabs[1], "olives")
                for tab in tabs:
                    await tab.wait(f"{NOTES} === 'bread,olives'")
            await tabs[0].wait("document.querySelector('output').textContent.startsWith('offline')")
            await note(tabs[0], "coffee")
            with running(tmp_path, port):
                await tabs[1].wait(f"{NOTES} === 'bread,olives,coffee'")
                await tabs[1].save_picture(tmp_path / "notes.png")
                assert await tabs[1].run("document.querySelector('output').textContent") == "online"
