"""Measures a run: counters, metrics, traces, reports, plots."""
