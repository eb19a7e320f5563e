"""Commands of the data pipeline."""

__all__: list[str] = []
