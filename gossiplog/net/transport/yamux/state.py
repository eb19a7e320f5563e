"""The state of one stream of a muxer."""

from __future__ import annotations

__all__ = ["WINDOW_BYTES", "WINDOW_BYTES_MAX", "StreamState"]

WINDOW_BYTES = 256 * 1024
"""What each side may send at first, by the specification."""
WINDOW_BYTES_MAX = 4 * 1024 * 1024
"""How far a stream's receive window grows: 40 MiB/s over a round trip of 100 ms."""


class StreamState:
    """One stream as the muxer knows it; only the muxer changes it.

    Unread bytes and what the peer may still send are together never more than the window, so a stream holds no more than that.

    Attributes:
        id: 1 … 2^32 − 1, odd for those that the client opened.
        is_inbound: The peer opened it.
        buffer: What arrived and was not read.
        window: Bytes that we hold for it at most.
        credit: Bytes that the peer may still send.
        send_window: Bytes that we may still send.
        granted_at: When the peer was last given credit.
        is_announced: A frame of ours has said that we opened it, or that we took one that the peer opened.
        is_finished_sending: We closed our side.
        is_finished_receiving: The peer closed its side.
        is_reset: Either side reset it, or the connection ended before the peer closed its side. What the peer sent before can be read.
        is_released: Its owner is done with it; what arrives is thrown away.
    """

    __slots__ = (
        "buffer",
        "credit",
        "granted_at",
        "id",
        "is_announced",
        "is_finished_receiving",
        "is_finished_sending",
        "is_inbound",
        "is_released",
        "is_reset",
        "send_window",
        "window",
    )

    def __init__(self, id: int, *, is_inbound: bool, now: float) -> None:
        self.id = id
        self.is_inbound = is_inbound
        self.buffer = bytearray()
        self.window = WINDOW_BYTES
        self.credit = WINDOW_BYTES
        self.send_window = WINDOW_BYTES
        self.granted_at = now
        self.is_announced = False
        self.is_finished_sending = False
        self.is_finished_receiving = False
        self.is_reset = False
        self.is_released = False

    @property
    def is_over(self) -> bool:
        """Nothing more will be sent or arrive; there may be bytes to read."""
        return self.is_reset or (self.is_finished_sending and self.is_finished_receiving)

    def __repr__(self) -> str:
        return f"<stream {self.id}{' reset' if self.is_reset else ''}>"
