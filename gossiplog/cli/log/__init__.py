"""Commands about one log: making it, reading it, checking it, moving it."""
