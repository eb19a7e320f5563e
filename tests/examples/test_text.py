"""The example `examples/text`: two servers, two tabs of a real browser and a terminal, and one text."""

from __future__ import annotations

import random
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
import trio
from chromium import CHROMIUM, Tab, open_browser
from example_support import DEADLINE_S, EXAMPLES, poison_like, running_page, stranger
from terminal import Terminal

TEXT = EXAMPLES / "text" / "text.py"
TOPIC = "text.example.com"
QUIT = "\x11"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: `apt-get install chromium`"),
]


async def shows(tab: Tab, text: str) -> None:
    await tab.wait(f"document.querySelector('textarea')?.value === {text!r}")


async def place_caret(tab: Tab, place: str) -> None:
    await tab.run(f"{{ const area = document.querySelector('textarea'); area.focus(); area.setSelectionRange({place}, {place}) }}")


async def test_two_browsers_and_a_terminal_write_one_text(tmp_path: Path) -> None:
    with (
        trio.fail_after(DEADLINE_S),
        running_page(TEXT, tmp_path, "a") as (url, hub),
        running_page(TEXT, tmp_path, "b", "--connect", hub) as (other_url, _),
    ):
        async with open_browser(tmp_path / "profile") as browser:
            here, there = await browser.open(url), await browser.open(other_url)
            for tab in (here, there):
                await tab.wait("document.getElementById('state')?.textContent.startsWith('connected')")
            await place_caret(here, "0")
            await here.type("bread 🥖 and butter")
            await shows(there, "bread 🥖 and butter")
            # A page counts 🥖 as two.
            await there.wait("/^connected, .{4} at 19$/.test(document.getElementById('state').textContent)")
            # At the same time, at both ends of it, a key at a time.
            await place_caret(here, "0")
            await place_caret(there, "area.value.length")
            for left, right in zip("white ", ", salt", strict=True):
                await here.type(left)
                await there.type(right)
            for tab in (here, there):
                await shows(tab, "white bread 🥖 and butter, salt")
            with Terminal(str(TEXT), "--log", "c.db", "--connect", hub, "--terminal", folder=tmp_path) as terminal:
                await trio.to_thread.run_sync(terminal.wait, "white bread", "and butter, salt", " at ")
                terminal.type("fresh ")
                for tab in (here, there):
                    await shows(tab, "fresh white bread 🥖 and butter, salt")
                await place_caret(here, str(len("fresh white")))
                await here.type("st")
                await trio.to_thread.run_sync(terminal.wait, "fresh whitest bread")
                terminal.type("very ")
                await shows(there, "fresh very whitest bread 🥖 and butter, salt")
                terminal.type(QUIT)
                assert terminal.wait_ended() == 0
            await there.save_picture(tmp_path / "text.png")
            late = await browser.open(url)
            await shows(late, "fresh very whitest bread 🥖 and butter, salt")


async def test_nothing_that_a_stranger_writes_stops_it_or_moves_what_is_typed(tmp_path: Path) -> None:
    import pycrdt

    with trio.fail_after(DEADLINE_S), running_page(TEXT, tmp_path, "a") as (url, hub), stranger(hub, TOPIC) as log:
        async with open_browser(tmp_path / "profile") as browser:
            tab = await browser.open(url)
            await tab.wait("document.getElementById('state')?.textContent === 'connected'")
            await place_caret(tab, "0")
            await tab.type("né 🥖 z")
            # The numbers that are the stranger's own, so that more of it is read.
            tag = int.from_bytes(blake2b(log.append("hello").author.encode(), digest_size=4).digest()) << 20
            await trio.to_thread.run_sync(
                log.append_many, [*poison_like({"op": "edit", "update": b""}), *hostile_updates(1), *hostile_updates(tag)]
            )
            last = pycrdt.Doc(client_id=tag)
            last.get("text", type=pycrdt.Text).insert(0, "last")
            await trio.to_thread.run_sync(log.append, {"op": "edit", "update": last.get_update()})
            await tab.wait("['né 🥖 zlast', 'lastné 🥖 z'].includes(document.querySelector('textarea').value)")
            shown = await tab.run("document.querySelector('textarea').value")
            # What it is typed between counts as it did, although something is there that is not shown.
            await place_caret(tab, str(shown.index("é") + 1))
            await tab.type("!")
            second = await browser.open(url)
            await shows(second, shown.replace("é", "é!"))
            await shows(tab, shown.replace("é", "é!"))


def hostile_updates(writer: int) -> Iterator[Any]:
    """Updates of other types under the text's name, with what is no text in it, and what is nearly an update."""
    import pycrdt

    array, embedded = pycrdt.Doc(client_id=writer + 1), pycrdt.Doc(client_id=writer + 2)
    array.get("text", type=pycrdt.Array).extend([None, 1, "x", {"a": [1]}])
    embedded.get("text", type=pycrdt.Text).insert_embed(0, {"image": "x"})
    updates = [array.get_update(), embedded.get_update()]
    chance = random.Random(7)
    for _ in range(200):
        update = bytearray(chance.choice(updates[:2]))
        update[chance.randrange(len(update))] = chance.randrange(256)
        updates.append(bytes(update[: chance.randrange(len(update) + 1)]))
    yield from ({"op": "edit", "update": update} for update in updates)
