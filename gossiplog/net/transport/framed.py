"""Frames of a stream, each handed on in the step in which it arrives unless that has to wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from ...codec.framing import FrameDecoder
from .muxed import Stream


async def read_frames(
    stream: Stream, frames: FrameDecoder, take_now: Callable[[bytes], bool], take: Callable[[bytes], Awaitable[None]], *, at_once_max: int
) -> None:
    """Hand on frames, without their prefix, until the peer closes its side.

    Args:
        frames: A new decoder, with the limit of a frame.
        take_now: Takes a frame in the step in which it arrives, unless that has to wait; then it returns False.
        take: Takes a frame that `take_now` refused, or that came together with many. Nothing more is read until it returns.
        at_once_max: How many frames that came together are taken before other tasks get their turn.

    Raises:
        DecodeError: What arrived is no sequence of frames.
        StreamReset: The stream broke.
    """
    left: bytes | None = None

    def take_arrived(data: bytes) -> bool:
        nonlocal left
        frames.feed(data)
        for _ in range(at_once_max):
            if (left := frames.next()) is None:
                return True
            if not take_now(left):
                return False
            left = None
            if not frames.buffered_bytes:
                return True
        return False

    goes_on = True
    while goes_on:
        goes_on = await stream.hand_on(take_arrived)
        while (frame := frames.next() if left is None else left) is not None:
            left = None
            await take(frame)
            if frames.buffered_bytes:
                # One chunk may be thousands of small frames, and other tasks should not wait for all of them.
                await trio.lowlevel.checkpoint()
