"""Fuzzing: every decoder of bytes or text that others send, as a target with seeds, and two ways to run them."""

__all__: list[str] = []
