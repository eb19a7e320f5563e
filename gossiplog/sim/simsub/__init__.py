"""simsub, the simulator of 2018 whose published figures ours reproduces."""

__all__: list[str] = []
