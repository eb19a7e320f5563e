"""One log on the network: the broadcast machine, and the connections, streams, tasks and timers that drive it."""
