"""One log on the network: the broadcast machine, and the connections, streams, tasks and timers that drive it."""

__all__: list[str] = []
