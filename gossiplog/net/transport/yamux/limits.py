"""What one side of a muxed connection holds at most; a stream's window is in `state.py`."""

from __future__ import annotations

__all__ = ["FRAMES_A_TURN", "GROWTH_BYTES", "OPENED_WINDOW_BYTES", "QUEUE_BYTES", "STREAMS_MAX", "UNREAD_BYTES_MAX"]

STREAMS_MAX = 128
"""Streams that the peer opened, and as many that we did."""
QUEUE_BYTES = 256 * 1024
"""Data waits with its owner while this much is queued. Frames without data are queued always."""
GROWTH_BYTES = 8 * 1024 * 1024
"""What the windows of all streams together may hold beyond the 256 KiB that each has."""
UNREAD_BYTES_MAX = 16 * 1024 * 1024
"""Unread bytes of all streams that the peer opened. The stream that goes beyond is reset: else 128 windows could be filled."""
OPENED_WINDOW_BYTES = 1024 * 1024
"""The window of a stream that we open, unless lazily: it is us who want the answers, and a response of a sync has up to 1 MiB."""
FRAMES_A_TURN = 512
"""How many frames `receive` takes at once: a chunk full of headers is thousands of them, for which others should not have to wait."""
