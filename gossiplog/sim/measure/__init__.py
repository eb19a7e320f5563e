"""Measures a run: counters, metrics, traces, reports, plots."""

__all__: list[str] = []
