"""What a run is measured by: counters, metrics, traces, reports, plots, sweeps."""

__all__: list[str] = []
