"""A sync session that is cut short: its client is told our heads if it does not go on by itself, and not while it may."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from math import inf

import pytest
import trio
from hostile_client import SYNC, muxed, push_stream
from network_support import eventually, memory_log

from gossiplog.broadcast.broadcast import Broadcast
from gossiplog.codec.framing import FrameDecoder, encode_frame
from gossiplog.net import Connection, Stream
from gossiplog.sync.rpc import AbortResponse, GetRoot
from gossiplog.sync.wire import decode_response, encode_request

SOON_S = 60.0
LONG_ENOUGH_S = 0.5
"""For what is told within `RESUME_S`, which is shorter here."""


class Client:
    """One that pulls by hand.

    Attributes:
        updates: Messages that it was pushed, which are heads, as nothing new is there.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.updates = 0

    async def listen(self) -> None:
        stream, frames = await push_stream(self._connection), FrameDecoder()
        while data := await stream.receive_some():
            self.updates += len(frames.take(data))

    async def until_told(self, updates: int) -> None:
        with trio.fail_after(SOON_S):
            await eventually(lambda: self.updates >= updates)

    async def begin(self) -> Stream:
        """Begin a session, and read until it is cut short."""
        stream, frames = await self._connection.open_stream([SYNC]), FrameDecoder()
        await stream.send_all(encode_frame(encode_request(GetRoot())))
        with trio.fail_after(SOON_S):
            while True:
                answers = frames.take(await stream.receive_some())
                if any(isinstance(decode_response(answer), AbortResponse) for answer in answers):
                    return stream


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """Of a hub that cuts sessions short after a moment."""
    monkeypatch.setattr("gossiplog.net.service.sessions.SESSION_S", 0.02)
    monkeypatch.setattr("gossiplog.net.service.syncs.RESUME_S", 0.1)
    monkeypatch.setattr("gossiplog.broadcast.pushes.PUSH_AGAIN_S", 0.01)
    # Nobody is told our heads again for another reason.
    monkeypatch.setattr("gossiplog.net.service.service.Broadcast", partial(Broadcast, tell_again_s=inf))
    async with memory_log(1) as log:
        await log.append(1)
        async with log.listen("127.0.0.1:0") as hub, muxed(hub) as connection, trio.open_nursery() as nursery:
            client = Client(connection)
            nursery.start_soon(client.listen)
            await client.until_told(1)
            yield client
            nursery.cancel_scope.cancel()


async def test_who_does_not_go_on_is_told_once_it_has_heard_of_the_end(client: Client) -> None:
    before = client.updates
    stream = await client.begin()
    # It inserts what it got, and asks for more only then.
    await trio.sleep(LONG_ENOUGH_S)
    assert client.updates == before
    stream.close_sending()
    await client.until_told(before + 1)


async def test_who_goes_on_is_not_told(client: Client) -> None:
    before = client.updates
    for _ in range(3):
        (await client.begin()).close_sending()
    held = await client.begin()
    await trio.sleep(LONG_ENOUGH_S)
    assert client.updates == before
    held.close_sending()
    await client.until_told(before + 1)
