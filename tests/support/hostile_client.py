"""Clients that misbehave, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import trio
from network_support import PATIENCE_S, TOPIC

from gossiplog.codec.framing import encode_frame
from gossiplog.entry import Entry
from gossiplog.net import Connection, Stream, open_muxed
from gossiplog.net.hub.client import open_websocket, parse_url
from gossiplog.net.hub.server import Hub
from gossiplog.pubsub.types import PeerId
from gossiplog.sync.rpc import Insert
from gossiplog.sync.wire import encode_event

PUSH = f"/canvas/v1/{TOPIC}/push"
SYNC = f"/canvas/v1/{TOPIC}/sync"


@asynccontextmanager
async def muxed(hub: Hub | str) -> AsyncIterator[Connection]:
    """Connect with a hub, or a URL, as a client that does nothing by itself."""
    websocket = await open_websocket(parse_url(hub if isinstance(hub, str) else hub.urls[0]))
    async with open_muxed(websocket, is_client=True, peer=PeerId("hub")) as connection:
        yield connection


async def push_stream(connection: Connection) -> Stream:
    return await connection.open_stream([PUSH])


async def push(stream: Stream, entries: Iterable[Entry]) -> None:
    for entry in entries:
        await stream.send_all(encode_frame(encode_event(Insert(entry.key, entry.value))))


async def hostile_push(hub: Hub | str, entries: Iterable[Entry]) -> str:
    """Push entries, and return why the connection ended."""
    async with muxed(hub) as connection:
        await push(await push_stream(connection), entries)
        with trio.fail_after(PATIENCE_S):
            return await connection.wait_ended()
