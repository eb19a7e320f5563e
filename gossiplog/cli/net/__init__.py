"""Commands that use the network: serve, sync, peers."""
