"""The jobs whole: read, compute, publish, report."""

__all__: list[str] = []
