"""Yamux as a machine without I/O: many streams, each with a window, over one ordered byte stream."""
