"""A stateful log without a network: one task writes, any number of tasks read, follow, copy and check."""
