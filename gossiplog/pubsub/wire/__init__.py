"""RPCs as bytes, within limits, and strictly back."""

__all__: list[str] = []
