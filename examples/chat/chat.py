"""A chat in the terminal, each with a log of their own: `python chat.py ann.db --name Ann`, and what it shows at the left for others."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Footer, Input, RichLog, Static

import gossiplog
from gossiplog import aio

HERE_S, TYPING_S = 15, 2
"""How long one is here, and typing, without saying so again."""
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=30, pattern=r"\A[^\x00]*\Z")]
Words = Annotated[str, msgspec.Meta(min_length=1, max_length=2_000, pattern=r"\A[^\x00]*\Z")]


class Say(msgspec.Struct, tag_field="op", tag="say"):
    """Words in a room."""

    room: Name
    name: Name
    words: Words


class Here(msgspec.Struct):
    """Somebody is in a room: presence, which is stored nowhere."""

    room: Name
    name: Name
    typing: bool = False


def reset(tx: Any) -> None:
    """Begin with empty rooms."""
    tx.execute("DROP TABLE IF EXISTS words")
    tx.execute("CREATE TABLE words (id TEXT PRIMARY KEY, room TEXT, author TEXT, name TEXT, words TEXT)")


def apply(entries: Sequence[gossiplog.Entry], tx: Any) -> None:
    """Note what was said."""
    for entry in entries:
        try:
            said = msgspec.convert(entry.payload, Say)
        except msgspec.ValidationError:
            continue  # Not for us.
        tx.execute("INSERT INTO words VALUES ($1, $2, $3, $4, $5)", [entry.id, said.room, entry.author, said.name, said.words])


application = gossiplog.Application("chat", 2, apply, reset, order_free=True)


def shown(text: str) -> str:
    """Return what somebody wrote as it may go to a terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def called(name: str, author: str) -> str:
    """A name is what people call themselves; the end of the key says who they are."""
    return f"{shown(name)}·{author[-4:]}"


class Chat(App[None]):
    """The rooms as one person sees them."""

    CSS = "#side { width: 30; padding: 0 1 } RichLog { padding: 0 1 }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = [("ctrl+o", "switch", "go offline, or online again"), ("ctrl+q", "quit", "quit")]

    def __init__(self, entries: aio.GossipLog, options: argparse.Namespace) -> None:
        super().__init__()
        self.entries, self.options, self.room = entries, options, "lobby"
        self.link, self.state = contextlib.AsyncExitStack(), "offline"

    def compose(self) -> ComposeResult:
        """Lay out."""
        yield Horizontal(Static(id="side", markup=False), Vertical(RichLog(wrap=True), Input(placeholder="words, or: /join ROOM")))
        yield Footer()

    async def on_mount(self) -> None:
        """Come in."""
        self.query_one(Input).focus()
        self.run_worker(self.follow())
        self.run_worker(self.watch())
        await self.action_switch()
        await self.stay()
        self.set_interval(HERE_S / 3, self.stay)

    async def follow(self) -> None:
        """Show the room whenever something has arrived."""
        async with self.entries.subscribe(from_now=True) as arrived:
            while await arrived.next_page():
                await self.show()

    async def watch(self) -> None:
        """Show who is here whenever that changes."""
        async for _ in self.entries.presence:
            await self.show_people()

    async def stay(self) -> None:
        """Tell the others where one is."""
        await self.entries.presence.set({"room": self.room, "name": self.options.name}, ttl_s=HERE_S)

    async def on_input_changed(self, event: Input.Changed) -> None:
        """Tell the others that one is typing."""
        if event.value:
            await self.entries.presence.set({"typing": True}, ttl_s=TYPING_S)

    async def show_people(self) -> None:
        """Show the rooms, and who is in this one."""
        here: list[tuple[str, Here]] = []
        for author, states in self.entries.presence.states.items():
            with contextlib.suppress(msgspec.ValidationError):
                here.append((author, msgspec.convert(states, Here)))
        talked = await self.entries.query("SELECT DISTINCT room FROM words")
        rooms = {self.room, *(each.room for _, each in here), *(place for (place,) in talked)}
        listed = [f"{'▸' if place == self.room else ' '} {shown(place)}" for place in sorted(rooms)]
        people = sorted((called(each.name, author), each.typing) for author, each in here if each.room == self.room)
        present = [f"  {name}{' …' if is_typing else ''}" for name, is_typing in people]
        self.query_one("#side", Static).update("\n".join(["ROOMS", *listed, "", "HERE", *present, "", self.state]))

    async def show(self) -> None:
        """Show everything as it is."""
        await self.show_people()
        said = await self.entries.query("SELECT author, name, words FROM words WHERE room = $1 ORDER BY id DESC LIMIT 500", self.room)
        lines = self.query_one(RichLog).clear()
        for author, name, words in reversed(said):
            lines.write(Text.assemble((called(name, author), "bold"), "  ", shown(words)))

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Say what was typed, or go to another room."""
        line = event.value.strip()
        event.input.clear()
        try:
            if line.startswith("/join "):
                self.room = msgspec.convert(line.removeprefix("/join ").strip(), Name)
                await self.stay()
                await self.show()
            elif line:
                said = {"op": "say", "room": self.room, "name": self.options.name, "words": line}
                await self.entries.append(msgspec.to_builtins(msgspec.convert(said, Say)))
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
        await chat.link.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--connect", metavar="URL", help="another's chat, or a hub: `gossiplog serve`")
    parser.add_argument("--listen", default="127.0.0.1:8765", metavar="HOST:PORT", help="otherwise, where others connect")
    asyncio.run(main(parser.parse_args()))
