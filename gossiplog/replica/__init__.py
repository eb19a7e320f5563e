"""A stateful log without a network: one task writes, any number of tasks read, follow, copy and check."""

__all__: list[str] = []
