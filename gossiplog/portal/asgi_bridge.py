"""One ASGI connection between a task of asyncio, where its server is, and one of trio, where the log is.

Each direction has a bounded queue. A side that fills its queue waits until the other has taken something, so a client that does not read
holds up only its own connection. A side is woken once for all messages that came meanwhile, because a change of threads costs more than a
message does.

Only one thread writes each number and flag, except for the flags that say who sleeps. A side that is about to sleep sets its flag, looks
once more, and sleeps. A side that has something for the sleeper clears the flag and wakes it. So no wake is lost, and a spare one does no
harm.

Source: the ASGI specification, "HTTP & WebSocket".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any, TypeAlias

import trio

from ..errors import ClosedError
from .thread import TrioThread
from .waiting import Facade, call_of

Message: TypeAlias = MutableMapping[str, Any]
_WINDOW_BYTES = 256 * 1024
"""What may be under way each way, and one message beyond it."""
_MESSAGE_BYTES = 64
"""What one costs beside its contents."""
_GONE: Message = {"type": "http.disconnect"}
_GOODBYES = ("http.disconnect", "websocket.disconnect")


async def serve_across(
    facade: Facade[Any],
    serve: Callable[[Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]],
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
    message_s: float,
) -> None:
    """Serve a connection of asyncio's in trio; return when it is over.

    Args:
        facade: Stands for what serves it. The service ends with that.
        serve: Serves it, in trio, by the `receive` and `send` that it is given; `send.now` sends if there is room, without waiting.
        message_s: How many seconds the client has for each message that is left when the service has ended; what it does not read is lost.
    """
    bridge = _Bridge(facade._thread, asyncio.get_running_loop())
    reading = asyncio.create_task(bridge.read(receive))
    writing = asyncio.create_task(bridge.write(send))
    try:
        await call_of(facade, partial(serve, bridge.receive, bridge)).wait_in_asyncio()
        bridge.finish()
        written = -1
        while not writing.done() and written != bridge.written:
            written = bridge.written
            await asyncio.wait([writing], timeout=message_s)
        if writing.done():
            await writing
    finally:
        for task in (reading, writing):
            task.cancel()
        await asyncio.gather(reading, writing, return_exceptions=True)


class _Bridge:
    """Both queues, and who waits at them; the ASGI `send` of the side in trio.

    Attributes:
        written: Bytes that asyncio ever wrote.
    """

    def __init__(self, thread: TrioThread, loop: asyncio.AbstractEventLoop) -> None:
        self._thread = thread
        self._loop = loop
        # In: what asyncio received, bytes that it ever put there, bytes that trio ever took.
        self._inbox: deque[Message] = deque()
        self._put_in = self._taken = 0
        self._room_in = asyncio.Event()
        self._is_reader_asleep = False
        self._arrived = trio.lowlevel.ParkingLot()
        self._is_receiver_asleep = False
        # Out: what trio sends, bytes that it ever put there.
        self._outbox: deque[Message] = deque()
        self._put = self.written = 0
        self._due = asyncio.Event()
        self._is_writer_asleep = False
        self._room_out = trio.lowlevel.ParkingLot()
        self._is_sender_asleep = False
        self._is_finished = False
        self._is_broken = False

    # In asyncio.

    async def read(self, receive: Callable[[], Awaitable[Message]]) -> None:
        """Receive until the client has gone."""
        is_over = False
        while not is_over:
            try:
                message = await receive()
            except Exception:
                self._put_inbox(_GONE)
                raise
            is_over = message["type"] in _GOODBYES
            self._put_inbox(message)
            while self._put_in - self._taken > _WINDOW_BYTES:
                self._room_in.clear()
                self._is_reader_asleep = True
                if self._put_in - self._taken > _WINDOW_BYTES:
                    await self._room_in.wait()

    def _put_inbox(self, message: Message) -> None:
        self._put_in += _size(message)
        self._inbox.append(message)
        if self._is_receiver_asleep:
            self._is_receiver_asleep = False
            self._thread.hand_over(self._arrived.unpark_all)

    async def write(self, send: Callable[[Message], Awaitable[None]]) -> None:
        """Send until all is sent after `finish`."""
        while True:
            while self._outbox:
                message = self._outbox.popleft()
                try:
                    await send(message)
                except BaseException as error:
                    self._is_broken = True
                    self._wake_sender()
                    if isinstance(error, OSError):
                        # So the specification has servers say that the client has gone.
                        return
                    raise
                self.written += _size(message)
                if self._put - self.written <= _WINDOW_BYTES:
                    self._wake_sender()
            if self._is_finished:
                return
            self._due.clear()
            self._is_writer_asleep = True
            if not self._outbox and not self._is_finished:
                await self._due.wait()

    def _wake_sender(self) -> None:
        if self._is_sender_asleep:
            self._is_sender_asleep = False
            self._thread.hand_over(self._room_out.unpark_all)

    def finish(self) -> None:
        """Say that nothing more will be put out."""
        self._is_finished = True
        self._due.set()

    # In trio.

    async def receive(self) -> Message:
        """Return the next message; the last one again and again."""
        while not self._inbox:
            self._is_receiver_asleep = True
            if not self._inbox:
                await self._arrived.park()
        if self._inbox[0]["type"] in _GOODBYES:
            return self._inbox[0]
        message = self._inbox.popleft()
        self._taken += _size(message)
        if self._is_reader_asleep and self._put_in - self._taken <= _WINDOW_BYTES:
            self._is_reader_asleep = False
            self._call_in_asyncio(self._room_in.set)
        return message

    async def __call__(self, message: Message) -> None:
        """Send a message, after waiting for room.

        Raises:
            ClosedError: The connection is broken.
        """
        while True:
            if self._is_broken:
                raise ClosedError("the client has gone")
            if self.now(message):
                return
            self._is_sender_asleep = True
            if self._put - self.written > _WINDOW_BYTES and not self._is_broken:
                await self._room_out.park()

    def now(self, message: Message) -> bool:
        """Send a message if there is room for it now, or if nobody will ever read it. Raises nothing."""
        if self._put - self.written > _WINDOW_BYTES and not self._is_broken:
            return False
        self._put += _size(message)
        self._outbox.append(message)
        if self._is_writer_asleep:
            self._is_writer_asleep = False
            self._call_in_asyncio(self._due.set)
        return True

    def _call_in_asyncio(self, function: Callable[[], object]) -> None:
        # A loop that was closed has no task that waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)


def _size(message: Message) -> int:
    return _MESSAGE_BYTES + len(message.get("body") or message.get("bytes") or message.get("text") or b"")
