"""Commands of the simulator."""

__all__: list[str] = []
