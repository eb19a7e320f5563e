"""What a source may make a session work on at once is worked on beside the event loop."""

from __future__ import annotations

import math
from collections import deque
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from loop_watch import STEP_CPU_S, watching_loop
from network_support import TOPIC, signer

import gossiplog
from gossiplog.codec.framing import FrameDecoder, encode_frame
from gossiplog.errors import RemoteProtocolError
from gossiplog.net.ground.protocol_ids import sync_protocols
from gossiplog.net.service import sessions
from gossiplog.net.service.sessions import PullSession
from gossiplog.sync.client import SyncClient
from gossiplog.sync.limits import ClientLimits
from gossiplog.sync.result import Ending
from gossiplog.sync.rpc import ChildrenResponse, RootResponse
from gossiplog.sync.wire import encode_response
from gossiplog.tree.node import ANCHOR_HASH, Node, node_hash

CHILDREN = 88_000
"""Nearly what fits a frame, at any level."""
CHUNK = 65_536


class ScriptedStream:
    """A source that answers each request with the next response, in chunks, and then closes the stream."""

    def __init__(self, *responses: RootResponse | ChildrenResponse) -> None:
        self.protocol = sync_protocols(TOPIC)[1]
        self._frames = deque(encode_frame(encode_response(response)) for response in responses)
        self._requests = FrameDecoder()
        self._send, self._receive = trio.open_memory_channel[bytes](math.inf)

    async def send_all(self, data: bytes) -> None:
        for _ in self._requests.take(data):
            frame = self._frames.popleft() if self._frames else b""
            for low in range(0, len(frame) or 1, CHUNK):
                self._send.send_nowait(frame[low : low + CHUNK])

    async def receive_some(self) -> bytes:
        return await self._receive.receive()

    def close_sending(self) -> None:
        pass

    def reset(self) -> None:
        pass


async def never(entries: object) -> Any:
    raise AssertionError("nothing arrives that could be inserted")


def children_at(level: int) -> list[Node]:
    random = Random(level)
    keys = sorted(random.randbytes(20) for _ in range(CHILDREN))
    anchor = Node(level, None, b"\xff" * 16 if level else ANCHOR_HASH)
    return [anchor, *[Node(level, key, b"\xff" + random.randbytes(15)) for key in keys]]


@pytest.mark.parametrize("level", [0, 1])
async def test_a_node_with_as_many_children_as_a_frame_holds_does_not_hold_the_loop(tmp_path: Path, level: int) -> None:
    # The thread that takes them apart may have to wait for a core.
    children = children_at(level)
    root = Node(level + 1, None, node_hash(children))
    stream: Any = ScriptedStream(RootResponse(root), ChildrenResponse(children))
    async with gossiplog.open(tmp_path / "log.db", topic=TOPIC, signer=signer(1)) as log:
        await log.append("so that there is a tree to compare with")
        connection: Any = SimpleNamespace(is_over=False)
        client = SyncClient(limits=ClientLimits(rpc_s=60.0), in_parts=True)
        session = PullSession(log, connection, stream, client, never)
        with watching_loop() as held:
            await session.run()
    result = client.result
    assert result.ending is Ending.CLOSED and result.reason == "the stream ended", result
    # It went on to what the children lead to.
    assert result.requests > 2
    # The collector runs in whichever thread allocates when it is due, and looks at all of the process.
    assert [step for step in held if step["cpu_ms"] - step["gc_ms"] > 1e3 * STEP_CPU_S] == []


async def test_a_stream_that_was_never_taken_is_closed_in_peace() -> None:
    class Untaken(ScriptedStream):
        was_reset = False

        async def receive_some(self) -> bytes:
            raise RemoteProtocolError("the stream ended during its negotiation")

        def reset(self) -> None:
            self.was_reset = True

    stream: Any = Untaken()
    await sessions.close_in_peace(stream)
    assert stream.was_reset
