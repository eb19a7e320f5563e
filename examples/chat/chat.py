"""A chat in the terminal, each with a log of their own: `python chat.py ann.db --name Ann`, and what it shows at the left for others."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Footer, Input, RichLog, Static

import gossiplog
from gossiplog import aio

HERE_S = 300
"""How long one is here without saying so again, which takes an entry of 500 bytes."""
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=30, pattern=r"\A[^\x00]*\Z")]
Words = Annotated[str, msgspec.Meta(min_length=1, max_length=2_000, pattern=r"\A[^\x00]*\Z")]


class Say(msgspec.Struct, tag_field="op", tag="say"):
    """Words in a room."""

    room: Name
    words: Words


class Here(msgspec.Struct, tag_field="op", tag="here"):
    """Somebody is in a room, until a time in seconds since 1970 unless they say so again; 0 says goodbye."""

    name: Name
    room: Name
    until: Annotated[int, msgspec.Meta(ge=0, le=2**40)]


def reset(tx: Any) -> None:
    """Begin with empty rooms."""
    tx.execute("DROP TABLE IF EXISTS words")
    tx.execute("DROP TABLE IF EXISTS people")
    tx.execute("CREATE TABLE words (id TEXT PRIMARY KEY, room TEXT, author TEXT, words TEXT)")
    tx.execute("CREATE TABLE people (author TEXT PRIMARY KEY, id TEXT, name TEXT, room TEXT, until BIGINT)")


def apply(entries: Sequence[gossiplog.Entry], tx: Any) -> None:
    """Note what was said. No clock is asked here: who is still in a room is decided where it is shown."""
    for entry in entries:
        try:
            said = msgspec.convert(entry.payload, Say | Here)
        except msgspec.ValidationError:
            continue  # Not for us.
        if isinstance(said, Say):
            tx.execute("INSERT INTO words VALUES ($1, $2, $3, $4)", [entry.id, said.room, entry.author, said.words])
        else:
            tx.execute(
                "INSERT INTO people VALUES ($1, $2, $3, $4, $5) ON CONFLICT (author) DO UPDATE SET id = excluded.id, name = excluded.name,"
                " room = excluded.room, until = excluded.until WHERE excluded.id > people.id",
                [entry.author, entry.id, said.name, said.room, said.until],
            )


application = gossiplog.Application("chat", 1, apply, reset, order_free=True)


def shown(text: str) -> str:
    """Return what somebody wrote as it may go to a terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


class Chat(App[None]):
    """The rooms as one person sees them."""

    CSS = "#side { width: 30; padding: 0 1 } RichLog { padding: 0 1 }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = [("ctrl+o", "switch", "go offline, or online again"), ("ctrl+q", "quit", "quit")]

    def __init__(self, entries: aio.GossipLog, options: argparse.Namespace) -> None:
        super().__init__()
        self.entries, self.options, self.room = entries, options, "lobby"
        self.link, self.state = AsyncExitStack(), "offline"

    def compose(self) -> ComposeResult:
        """Lay out."""
        yield Horizontal(Static(id="side", markup=False), Vertical(RichLog(wrap=True), Input(placeholder="words, or: /join ROOM")))
        yield Footer()

    async def on_mount(self) -> None:
        """Come in."""
        self.query_one(Input).focus()
        self.run_worker(self.follow())
        await self.action_switch()
        await self.stay()
        self.set_interval(HERE_S / 2, self.stay)

    async def follow(self) -> None:
        """Show the room whenever something has arrived."""
        async with self.entries.subscribe(from_now=True) as arrived:
            while await arrived.next_page():
                await self.show()

    async def stay(self, for_s: int = HERE_S) -> None:
        """Tell the others where one is."""
        until = int(time.time()) + for_s if for_s else 0
        await self.entries.append(msgspec.to_builtins(Here(self.options.name, self.room, until)))

    async def show(self) -> None:
        """Show the tables as they are."""
        now, room = time.time(), self.room
        people = await self.entries.query("SELECT author, name, room, until FROM people")
        # A name is what people call themselves; the end of the key says who they are.
        names = {author: f"{shown(name)}·{author[-4:]}" for author, name, _, _ in people}
        here = [(names[author], place) for author, _, place, until in people if now < until < now + 2 * HERE_S]
        rooms = {room, *(place for _, place in here), *(place for (place,) in await self.entries.query("SELECT DISTINCT room FROM words"))}
        listed = [f"{'▸' if place == room else ' '} {shown(place)}" for place in sorted(rooms)]
        present = [f"  {name}" for name, place in sorted(here) if place == room]
        self.query_one("#side", Static).update("\n".join(["ROOMS", *listed, "", "HERE", *present, "", self.state]))
        said = await self.entries.query("SELECT author, words FROM words WHERE room = $1 ORDER BY id DESC LIMIT 500", room)
        lines = self.query_one(RichLog).clear()
        for author, words in reversed(said):
            lines.write(Text.assemble((names.get(author, author[-4:]), "bold"), "  ", shown(words)))

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Say what was typed, or go to another room."""
        line = event.value.strip()
        event.input.clear()
        try:
            if line.startswith("/join "):
                self.room = msgspec.convert(line.removeprefix("/join ").strip(), Name)
                await self.stay()
            elif line:
                await self.entries.append(msgspec.to_builtins(msgspec.convert({"op": "say", "room": self.room, "words": line}, Say)))
        except msgspec.ValidationError as error:
            self.notify(str(error), severity="error", markup=False)

    async def action_switch(self) -> None:
        """Go offline, where one may go on talking, or online."""
        await self.link.aclose()
        if self.state != "offline":
            self.state = "offline"
        elif self.options.connect:
            await self.link.enter_async_context(self.entries.connect(self.options.connect))
            self.state = "online"
        else:
            hub = await self.link.enter_async_context(self.entries.listen(self.options.listen))
            self.options.listen = f"127.0.0.1:{hub.port}"
            self.state = f"--connect {hub.urls[0]}"
        await self.show()


async def main(options: argparse.Namespace) -> None:
    """Chat until Ctrl-Q."""
    key = options.log.with_suffix(".pem")
    if not key.exists():
        gossiplog.Ed25519Signer.generate().save(key)
    signer = gossiplog.Ed25519Signer.load(key)
    async with aio.open(options.log, topic="chat.example.com", signer=signer, app=application) as entries:
        chat = Chat(entries, options)
        await chat.run_async()
        await chat.stay(0)
        await asyncio.sleep(0.5)  # For the others to hear of it.
        await chat.link.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--connect", metavar="URL", help="another's chat, or a hub: `gossiplog serve`")
    parser.add_argument("--listen", default="127.0.0.1:8765", metavar="HOST:PORT", help="otherwise, where others connect")
    asyncio.run(main(parser.parse_args()))
