"""Commands that use the network: serve, sync, peers."""

__all__: list[str] = []
