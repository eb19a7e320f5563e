"""The whole log under faults: real replicas in a simulated world, and what must hold of them."""
