"""A text that many write at once, in browsers and in terminals: `python text.py`, and what it prints for others.

Each change is an update of a Yjs document (pycrdt), and the payload of an entry. What merges them is the document, in any order.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from pathlib import Path

import uvicorn
from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from fastapi.responses import FileResponse
from pycrdt import Doc, Text
from textual.app import App, ComposeResult
from textual.widgets import TextArea

import gossiplog
from gossiplog import aio, kit

TEXT_MAX = 200_000
EXCHANGE_S = 0.1


class Shared:
    """The text that all updates of the log make."""

    def __init__(self, log: aio.GossipLog, author: str) -> None:
        self.log, self.author, self.doc = log, author, Doc()
        self.text = self.doc.get("text", type=Text)

    async def follow(self) -> None:
        """Take in what the log has and gets."""
        async with self.log.subscribe() as entries:
            async for entry in entries:
                match entry.payload:
                    case {"op": "edit", "update": bytes(update)} if kit.is_yjs_text(update, entry.author):
                        with contextlib.suppress(ValueError):
                            self.doc.apply_update(update)


class Editor:
    """The text as one editor shows it. What is typed there is typed into that state, whatever the others did meanwhile."""

    def __init__(self, shared: Shared) -> None:
        self.shared, self.offered, self.name = shared, Doc().get_update(), f"{id(self):x}"
        self.doc: Doc[Text] = Doc(client_id=kit.yjs_client(shared.author))
        self.text = self.doc.get("text", type=Text)

    async def point(self, at: int) -> str:
        """Tell the others before which character the cursor is; return where theirs are."""
        await self.shared.log.presence.set({self.name: at}, ttl_s=5)
        cursors = [(who, *each) for who, states in self.shared.log.presence.states.items() for each in states.items()]
        return ", ".join(["connected", *(f"{who[-4:]} at {at}" for who, name, at in cursors if type(at) is int and name != self.name)])

    async def exchange(self, shown: str, took: bool) -> str:
        """Take the text that the editor shows now; return the one to show instead, unless something is typed before that comes.

        `took` says whether it came in time the last time.
        """
        if took:
            self.doc.apply_update(self.offered)
        if shown != str(self.text):
            await self.replace(shown)
        self.offered = self.shared.doc.get_update(self.doc.get_state())
        return str(self.shared.text)

    async def replace(self, new: str) -> None:
        """Make the text another one, of which one piece is different."""
        old, before, length = str(self.text), self.doc.get_state(), len(self.text)
        first = common(old, new)
        kept = common(old[first:][::-1], new[first:][::-1])
        places = len(old[:first].encode()), length - len(old[len(old) - kept :].encode())
        with self.doc.transaction():
            del self.text[slice(*places)]
            self.text.insert(places[0], new[first : len(new) - kept])
        update = self.doc.get_update(before)
        await self.shared.log.append({"op": "edit", "update": update})
        self.shared.doc.apply_update(update)


def common(a: str, b: str) -> int:
    """Count the characters with which both begin."""
    return next((index for index, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))


def make_page(shared: Shared) -> FastAPI:
    """Make the application that browsers talk to."""
    app = FastAPI()

    @app.get("/")
    async def page() -> FileResponse:
        return FileResponse(Path(__file__).with_name("text.html"))

    @app.websocket("/edit")
    async def edit(socket: WebSocket) -> None:
        await socket.accept()
        editor = Editor(shared)
        with contextlib.suppress(WebSocketDisconnect, ValueError):
            while True:
                match await socket.receive_json():
                    case {"text": str(text), "took": bool(took), "at": int(at)} if len(text) <= TEXT_MAX:
                        await socket.send_json([await editor.exchange(text, took), await editor.point(at)])

    return app


class Writer(App[None]):
    """The text in a terminal."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, shared: Shared) -> None:
        super().__init__()
        self.editor = Editor(shared)

    def compose(self) -> ComposeResult:
        """Lay out."""
        yield TextArea(soft_wrap=True)

    def on_mount(self) -> None:
        """Begin to exchange."""
        self.run_worker(self.exchange())

    async def exchange(self) -> None:
        """Do what the page does."""
        area, took = self.query_one(TextArea), False
        while True:
            shown = area.text
            text = await self.editor.exchange(shown, took)
            area.border_title = await self.editor.point(area.document.get_index_from_location(area.cursor_location))
            took = area.text == shown
            if took and text != shown:
                place = area.cursor_location
                area.text = text
                area.move_cursor(place)
            await asyncio.sleep(EXCHANGE_S)


async def main(options: argparse.Namespace) -> None:
    """Write until Ctrl-C, or Ctrl-Q in a terminal."""
    key = options.log.with_suffix(".pem")
    if not key.exists():
        gossiplog.Ed25519Signer.generate().save(key)
    signer = gossiplog.Ed25519Signer.load(key)
    async with (
        aio.open(options.log, topic="text.example.com", signer=signer, value_bytes_max=2**21) as log,
        log.connect(options.connect) if options.connect else log.listen("127.0.0.1:0") as peer,
    ):
        if isinstance(peer, aio.Hub):
            print(f"for others: python text.py --log other.db --port 8001 --connect {peer.urls[0]}, and --terminal", flush=True)
        shared = Shared(log, signer.did)
        following = asyncio.create_task(shared.follow())
        if options.terminal:
            await Writer(shared).run_async()
        else:
            await uvicorn.Server(uvicorn.Config(make_page(shared), port=options.port, timeout_graceful_shutdown=1)).serve()
        following.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, default=Path("text.db"))
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--connect", metavar="URL", help="another's hub")
    parser.add_argument("--terminal", action="store_true", help="write here instead of in browsers")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(parser.parse_args()))
